"""What a filter over a reader wants of its caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def wanted(filter_name: str, **given: Any) -> None:
    """Each of `given` (what it is -> value) must be text.

    :raises AnsibleFilterError: one is not; mostly the whole result of a command was passed.
    """
    for what, value in given.items():
        if not isinstance(value, str):
            kind = "a mapping" if isinstance(value, Mapping) else type(value).__name__
            raise AnsibleFilterError(f"{filter_name} reads the {what} as text, not {kind}: pass the .stdout of the command.")
