"""Numbers as inventories have them, and bytes as people read them."""

from __future__ import annotations

import re
from typing import Any, Optional

#: The engine's own short forms of lengths: decimal in small letters, binary in capitals.
UNITS = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}
_SHORT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmM])")


def number(value: Any) -> Optional[int]:
    """A whole number that may be written as text, as `-e` does; None for anything else (auto, 32k)."""
    text = str(value)
    digits = text[1:] if text.startswith("-") else text
    return int(text) if digits.isascii() and digits.isdecimal() and not isinstance(value, bool) else None


def length(value: Any) -> Optional[int]:
    """A length in tokens as the engine reads it (32768, 32k, 32K); None for anything else, also for auto."""
    short = _SHORT.fullmatch(str(value))
    found = int(float(short.group(1)) * UNITS[short.group(2)]) if short else number(value)
    return found if found and found > 0 else None


def size(count: Optional[float]) -> str:
    """Bytes for people: `5.0 GiB`, `896 MiB`, `160 KiB`, `256 bytes`; `?` for what is not known."""
    if count is None:
        return "?"
    for exponent, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        unit = 2**exponent
        if abs(count) >= unit:
            return f"{count / unit:.1f} {name}" if abs(count) < 10 * unit else f"{count / unit:.0f} {name}"
    return f"{count:.0f} bytes"
