"""Ansible hands out lazy, tagged containers; our own code wants plain ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: Any) -> Any:
    """The same value out of plain str, int, float, bool, None, list and dict."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Sequence):
        return [plain(v) for v in value]
    for kind in (int, float):  # bool is an int and comes back as itself
        if isinstance(value, kind) and not isinstance(value, bool):
            return kind(value)
    return value
