"""Numbers as inventories have them."""

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
