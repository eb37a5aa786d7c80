"""Words for people, on the screen or in a log. That they cannot be written there never costs a verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO


def prepare() -> None:
    """The first thing that a program does. Characters that the locale of a timer does not have are written in another way."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Closed by whoever has started this: the next file that is opened would take its place, and be written into.
            os.open(os.devnull, os.O_RDWR)
    # Python has none where they were closed, and what starts programs for us wants one.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  as long as the program lives
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def out(text: str, end: str = "\n") -> str:
    """To the standard output. Returns why it was not shown; a reader that has gone (`| head`) is no reason."""
    return _write(text, end, sys.stdout)


def err(text: str) -> None:
    """To the standard error output."""
    _write(text, "\n", sys.stderr)


def _write(text: str, end: str, stream: TextIO) -> str:
    try:
        print(text, end=end, file=stream, flush=True)
    except OSError as exc:
        # What is left must not be tried again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(exc, BrokenPipeError) else str(exc.strerror or exc)
    return ""
