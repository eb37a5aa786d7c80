"""The version of this project, for what a deploy writes down."""

from __future__ import annotations

import functools
import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[6] / "pyproject.toml"


@functools.lru_cache(maxsize=1)
def project() -> str:
    """As pyproject.toml has it; empty where that is not there."""
    try:
        found = re.search(r'(?m)^version = "([^"]+)"', PROJECT.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found.group(1) if found else ""
