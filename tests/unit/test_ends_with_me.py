"""What a benchmark has started ends with it: killed, or asked to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, alive, end, until

BENCHMARK = """
import subprocess, sys, time
sys.path.insert(0, {tools!r})
import ends_with_me
ends_with_me.clean_up_on_signals()
helper = subprocess.Popen(["sleep", "300"], preexec_fn=ends_with_me.child(), start_new_session=True)
try:
    print(helper.pid, flush=True)
    time.sleep(300)
finally:
    open({place!r}, "w").close()
"""


@pytest.mark.parametrize(("number", "cleaned"), [(signal.SIGKILL, False), (signal.SIGTERM, True), (signal.SIGHUP, True)])
def test_a_helper_ends_with_the_benchmark_however_that_ends(tmp_path: Path, number: int, cleaned: bool) -> None:
    place = tmp_path / "cleaned"
    code = BENCHMARK.format(tools=str(ROOT / "tools"), place=str(place))
    benchmark = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert benchmark.stdout
        helper = int(benchmark.stdout.readline())
        assert alive(helper)
        benchmark.send_signal(number)
        benchmark.wait(10)
        until(lambda: not alive(helper), 10, "the helper has ended")
        assert place.exists() == cleaned
    finally:
        end(benchmark)


def test_a_helper_whose_benchmark_has_just_ended_does_not_begin() -> None:
    code = (
        f"import os, subprocess, sys\nsys.path.insert(0, {str(ROOT / 'tools')!r})\nimport ends_with_me\n"
        "begin = ends_with_me.child()\n"
        "if os.fork() == 0:\n    begin()\n    print('it began')\n    os._exit(0)\n"
        "print(os.wait()[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "it began" in done.stdout
    orphan = code.replace("os.fork() == 0", "os.fork() == 0 and os.fork() == 0").replace("print(os.wait()[1])", "")
    done = subprocess.run([sys.executable, "-c", orphan], capture_output=True, text=True, check=True)
    assert "it began" not in done.stdout
