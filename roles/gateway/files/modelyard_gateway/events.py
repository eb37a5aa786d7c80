"""Lines about events, on standard output, for people and for whoever keeps the output."""

from __future__ import annotations

import contextlib
import time
import traceback
from typing import Optional


def say(text: str) -> None:
    """One line with the time. Without a place to write to it is lost, and nothing else happens."""
    with contextlib.suppress(OSError, ValueError):
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text.rstrip("\n"), flush=True)


def mistake(error: Optional[BaseException]) -> None:
    """A mistake of the gateway itself, with where it happened."""
    if error is not None:
        say("internal error: " + "".join(traceback.format_exception(type(error), error, error.__traceback__)))
