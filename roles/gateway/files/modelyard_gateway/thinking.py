"""Does a reply have a thinking part? Told by the fields of reasoning parsers, or by tags in the text. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Optional

OPEN, CLOSE = "<think>", "</think>"
FIELDS = ("reasoning", "reasoning_content")


def field(message: Mapping[str, Any]) -> str:
    """The text of a reasoning field of a message or a delta; empty without one."""
    return next((value for value in (message.get(name) for name in FIELDS) if isinstance(value, str) and value), "")


def in_text(text: str, whole: bool) -> Optional[bool]:
    """Is there a thinking part in the text itself? None when the beginning that is known does not tell.

    An empty pair of tags, as models write it whose thinking is switched off, is none. A text that only closes is a thinking part
    whose opening tag stood in the prompt.

    :param whole: False when more text follows that is not known
    """
    text = text.lstrip()
    if text.startswith(OPEN):
        inside = text[len(OPEN) :].lstrip()
        if inside.startswith(CLOSE):
            return False
        return None if not whole and CLOSE.startswith(inside) else True
    if not whole and OPEN.startswith(text):
        return None
    before, close, _ = text.partition(CLOSE)
    if close and OPEN not in before:
        return bool(before.strip())
    return False if whole else None
