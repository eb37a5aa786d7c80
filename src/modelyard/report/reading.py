"""Reading records that may be old, damaged or hostile: a value is of the wanted kind, or counts as not there. Pure functions."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timezone
from typing import Any

#: Longest text of one value; what engines say in an error has no bound.
LONGEST = 2000
#: Control characters, half characters, and marks that turn the direction of what follows: shown as a replacement.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")
#: Ids of runs and load tests: 20261130T114200Z.
_STAMP = re.compile(r"(\d{8}T\d{6})Z")


def text(value: Any, longest: int = LONGEST) -> str:
    """Any value as words that are safe to show, no longer than `longest` characters; empty for None."""
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, default=str)
        except (ValueError, RecursionError):
            value = "(not readable)"
    if len(value) > longest:
        value = f"{value[:longest]} ... ({len(value) - longest} characters more)"
    return _UNWANTED.sub("\ufffd", value).strip()


def line(value: Any, longest: int = 400) -> str:
    """The same on one line, and of printable characters alone: also for terminals and mails."""
    words = " ".join(text(value, longest).split())
    return "".join(char if char.isprintable() else "\ufffd" for char in words)


def number(value: Any) -> float | None:
    """A finite number; None for everything else, also for true and false."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """A whole number of a size that counts can have."""
    found = number(value)
    return int(found) if found is not None and found == int(found) and abs(found) < 1e15 else None


def mapping(value: Any) -> dict[str, Any]:
    """A dictionary with text as keys; empty for everything else."""
    return {key: item for key, item in value.items() if isinstance(key, str)} if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list; empty for everything else."""
    return value if isinstance(value, list) else []


def mappings(value: Any) -> list[dict[str, Any]]:
    """The dictionaries of a list."""
    return [mapping(item) for item in items(value) if isinstance(item, dict)]


def moment(seconds: Any) -> str:
    """`2026-11-30 11:42 UTC` for seconds since 1970; empty when it is no time."""
    found = number(seconds)
    if not found or found < 0:
        return ""
    try:
        return datetime.fromtimestamp(found, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def stamp(name: Any) -> float | None:
    """The time that an id of a run says, in seconds since 1970."""
    found = _STAMP.fullmatch(name) if isinstance(name, str) else None
    try:
        return datetime.strptime(f"{found[1]}+0000", "%Y%m%dT%H%M%S%z").timestamp() if found else None
    except (ValueError, OverflowError):
        return None
