"""The parts of the tests beside each other: what is shown, and that nothing runs on after a failure or Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import ROOT, alive, until

#: Each part is a function of this script; `note` writes down who began and who ended.
PARTS = """#!/bin/bash
note() { echo "$1" >> "$NOTES"; }
good() { echo "3 passed, 1 skipped in 0.1s"; echo "SKIPPED [1] x: no screen"; echo "Left out: what needs nginx"; }
slow() { sleep 0.5; }
bad() { sleep 0.3; echo "what went wrong"; return 3; }
long() { trap 'note "long was asked"; exit 130' INT; sleep 300 & note "$!"; wait; }
deaf() { trap '' INT TERM; while :; do sleep 0.1; done; }
note "begin $1"; "$1"; code=$?; note "end $1"; exit $code
"""


class Lanes:
    """A run of tools/lanes.py over PARTS."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        (folder / "parts").write_text(PARTS, encoding="utf-8")
        (folder / "parts").chmod(0o755)

    def begin(self, *lanes: str, ends: str = "") -> subprocess.Popen[str]:
        # With other limits the program is the same.
        code = f"import sys; sys.path.insert(0, 'tools'); import lanes\n{ends}\nsys.exit(lanes.main())"
        return subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder / "parts"), str(self.folder / "logs"), *lanes],
            cwd=ROOT,
            env={**os.environ, "NOTES": str(self.notes)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *lanes: str, **more: str) -> tuple[int, str]:
        process = self.begin(*lanes, **more)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    @property
    def noted(self) -> list[str]:
        return self.notes.read_text(encoding="utf-8").splitlines() if self.notes.exists() else []


@pytest.fixture
def lanes(tmp_path: Path) -> Lanes:
    return Lanes(tmp_path)


def test_parts_of_a_lane_follow_each_other_beside_the_other_lanes(lanes: Lanes) -> None:
    code, said = lanes.run("slow good", "good slow")
    assert code == 0, said
    # The second lane's first part has ended before the first lane's has.
    assert lanes.noted.index("end good") < lanes.noted.index("end slow")
    assert lanes.noted.count("end good") == lanes.noted.count("end slow") == 2
    assert said.count("(3 passed, 1 skipped)") == 2
    assert "   Left out: what needs nginx" in said
    assert "   SKIPPED [1] x: no screen" in said


def test_the_first_failure_is_shown_whole_and_ends_the_others(lanes: Lanes) -> None:
    began = time.monotonic()
    code, said = lanes.run("long good", "bad good")
    assert code == 1
    assert time.monotonic() - began < 30
    assert "== bad: FAILED after " in said and "what went wrong" in said
    assert "== ended: long" in said
    assert "long was asked" in lanes.noted
    assert "begin good" not in lanes.noted
    (sleep,) = (int(pid) for pid in lanes.noted if pid.isdigit())
    until(lambda: not alive(sleep), 5, "what it has started is gone as well")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_somebody_ends_it_all(lanes: Lanes, number: int) -> None:
    process = lanes.begin("long good", "long good")
    until(lambda: sum(map(str.isdigit, lanes.noted)) == 2, 20, "both lanes run")
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert lanes.noted.count("long was asked") == 2
    assert "Traceback" not in said


def test_what_hears_no_signal_is_killed(lanes: Lanes) -> None:
    soon = "lanes.ENDS = tuple((number, 0.3) for number, _ in lanes.ENDS)"
    code, said = lanes.run("deaf", "bad", ends=soon)
    assert (code, "== ended: deaf" in said) == (1, True)
    assert "end deaf" not in lanes.noted
