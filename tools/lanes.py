"""Run the parts of the tests in lanes: parts of one lane one after the other, the lanes beside each other.

usage: lanes.py COMMAND LOGS LANE...      each LANE is one argument with names in it: "lint unit"

A part is `COMMAND NAME`, in a session of its own, and all it says goes to LOGS/NAME.log. Of one that has passed a line is shown,
and what it has left out. Of the first one that fails all is shown, and the other lanes are ended. Ctrl-C ends all. Exit status: 0
when all have passed, 1 when one has not, 130 after Ctrl-C or SIGTERM. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

LOOK_S = 0.1
#: A part that is asked to end takes down what it has started, containers among it.
ENDS = ((signal.SIGINT, 60.0), (signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0))
#: What a log says of itself: how many tests have passed, and what was not done.
SUMMARY = re.compile(r"(?m)^.*?(\d+ (?:passed|failed)\b.*?) in [\d.]+s")
LEFT_OUT = re.compile(r"(?m)^(?:Left out: |SKIPPED |   No other ).*$")


class Interrupted(Exception):
    """Somebody wants it all to end."""


class Part:
    """One part while it runs."""

    def __init__(self, command: str, name: str, logs: Path) -> None:
        self.name, self.log, self.began = name, logs / f"{name}.log", time.monotonic()
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [command, name], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self.began

    def said(self) -> str:
        """All it has said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def signal(self, number: int) -> None:
        """To it and to what it has started in its session, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def show(text: str) -> None:
    """A line, at once."""
    print(text, flush=True)


def passed(part: Part) -> None:
    """What is shown of a part that has passed."""
    said = part.said()
    counts = "; ".join(SUMMARY.findall(said))
    show(f"== {part.name}: passed in {part.seconds:.0f} s{f' ({counts})' if counts else ''}")
    for line in dict.fromkeys(LEFT_OUT.findall(said)):
        show(f"   {line.strip()}")


def failed(part: Part) -> None:
    """All of a part that has not."""
    show(f"== {part.name}: FAILED after {part.seconds:.0f} s with {part.process.returncode}. All it said:")
    show(part.said())
    show(f"== {part.name}: FAILED, its log is {part.log}")


def end(parts: Sequence[Part]) -> None:
    """End them gently first, and wait until they have ended."""
    for number, limit_s in ENDS:
        living = [part for part in parts if part.process.poll() is None]
        for part in living:
            part.signal(number)
        limit = time.monotonic() + limit_s
        while any(part.process.poll() is None for part in living) and time.monotonic() < limit:
            time.sleep(LOOK_S)
    for part in parts:  # programs that a shell has started beside it do not hear SIGINT
        part.signal(signal.SIGKILL)
    if parts:
        show(f"== ended: {', '.join(part.name for part in parts)}")


def run(command: str, logs: Path, lanes: Sequence[Sequence[str]]) -> int:
    """All lanes, to their end or to the first failure; the exit status."""
    logs.mkdir(parents=True, exist_ok=True)
    waiting = [list(lane) for lane in lanes]
    running: dict[int, Part] = {}
    try:
        while True:
            for number, lane in enumerate(waiting):
                if lane and number not in running:
                    running[number] = Part(command, lane.pop(0), logs)
                    show(f"== {running[number].name}")
            for number, part in list(running.items()):
                if part.process.poll() is None:
                    continue
                del running[number]
                if part.process.returncode:
                    failed(part)
                    return 1
                passed(part)
            if not running and not any(waiting):
                return 0
            time.sleep(LOOK_S)
    finally:
        end(list(running.values()))


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once is enough: what is being ended then takes its time.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise Interrupted


def main() -> int:
    """For the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    command, logs, *lanes = sys.argv[1:]
    try:
        return run(command, Path(logs), [lane.split() for lane in lanes])
    except Interrupted:
        return 130


if __name__ == "__main__":
    sys.exit(main())
