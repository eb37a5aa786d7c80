"""Words for people, on the screen or in a log. That they cannot be written there never costs a verdict."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def prepare() -> None:
    """Characters that the locale of a timer does not have are written in another way."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def out(text: str, end: str = "\n") -> str:
    """To the standard output. Returns why it was not shown; a reader that has gone (`| head`) is no reason."""
    return _write(text, end, sys.stdout)


def err(text: str) -> None:
    """To the standard error output."""
    _write(text, "\n", sys.stderr)


def _write(text: str, end: str, stream: TextIO | None) -> str:
    if stream is None:  # closed by whoever has started this
        return "the output is closed"
    try:
        print(text, end=end, file=stream, flush=True)
    except OSError as exc:
        # What is left must not be tried again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(exc, BrokenPipeError) else str(exc.strerror or exc)
    return ""
