"""Numbers as inventories have them."""

from __future__ import annotations

from typing import Any, Optional


def number(value: Any) -> Optional[int]:
    """A whole number that may be written as text, as `-e` does; None for anything else (auto, 32k)."""
    text = str(value)
    digits = text[1:] if text.startswith("-") else text
    return int(text) if digits.isascii() and digits.isdecimal() and not isinstance(value, bool) else None
