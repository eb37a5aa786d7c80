"""Log lines with vLLM's prefixes. All processes of an engine write to one file, so each line is one write."""

from __future__ import annotations

import contextlib
import os
import time


class Log:
    """The log of one kind of process, as vLLM names it: APIServer, EngineCore, Worker, Worker_TP0."""

    def __init__(self, name):
        self.prefix = f"({name} pid={os.getpid()}) "

    def say(self, place, text) -> None:
        """One line. `place`: file and line of the real one that says so."""
        self._write("INFO", place, text)

    def caution(self, place, text) -> None:
        """One line."""
        self._write("WARNING", place, text)

    def fail(self, place, text) -> None:
        """One line for each line of the text."""
        for line in text.splitlines():
            self._write("ERROR", place, line)

    def _write(self, level, place, text) -> None:
        plain(f"{self.prefix}{level} {time.strftime('%m-%d %H:%M:%S')} [{place}] {text}")


def plain(text) -> None:
    """Text as it is."""
    with contextlib.suppress(OSError):  # a full disk stops nobody, as with the real one's logger
        os.write(2, f"{text}\n".encode())
