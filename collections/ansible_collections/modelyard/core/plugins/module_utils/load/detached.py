"""The process of a load test: made by the task that begins it, and going on when that has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.load import place
from ansible_collections.modelyard.core.plugins.module_utils.load.runner import Run
from ansible_collections.modelyard.core.plugins.module_utils.process import children, layout, proc

# Read now: the files of this program are gone when the task that began it has ended.
from ansible_collections.modelyard.core.plugins.module_utils.survey import rocm_smi  # noqa: F401
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import xml_log  # noqa: F401

START_S = 5.0


def begin(home: str, request: Mapping[str, Any], plan: Mapping[str, Any], folder: Path, lock: int) -> Tuple[int, int]:
    """Start the runner, which keeps the lock; its pid and start time. The caller ends soon after."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        found = layout.read_json(folder / place.PROGRESS) or {}
        if status or "pid" not in found:
            raise OSError("the load test could not be started (is the disk full?)")
        return proc.identity(int(found["pid"]))
    code = 1
    try:
        os.setsid()
        if os.fork():  # so that nobody waits for the runner, and it waits for nobody
            limit = time.monotonic() + START_S
            while place.progress(folder) is None and time.monotonic() < limit:
                time.sleep(0.02)
            os._exit(0)
        _detach(folder, lock)
        code = _main(home, request, plan, folder)
    except BaseException:
        with contextlib.suppress(OSError):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)


def _detach(folder: Path, lock: int) -> None:
    """Nothing of the task is held open: it ends only when nobody has its pipes any more."""
    os.chdir("/")
    empty = os.open(os.devnull, os.O_RDWR)
    log = os.open(str(folder / place.LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for number, target in ((0, empty), (1, log), (2, log)):
        os.dup2(target, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  numbers, no paths
        if int(name) > 2 and int(name) != lock:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _main(home: str, request: Mapping[str, Any], plan: Mapping[str, Any], folder: Path) -> int:
    run = Run(home, request, plan, folder)

    def asked(number: int, _: Any) -> None:
        run.asked_to_end = f"it was ended by signal {number}"

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, asked)
    children.adopt()
    run.tell({"ended": False, "now": None, "levels": []})
    try:
        result = run.carry_out()
    except Exception as exc:
        traceback.print_exc()
        result = {
            "ended": True,
            "stopped": f"a defect of the load test: {type(exc).__name__}: {str(exc)[:300]}",
            "levels": run.levels,
        }
    finally:
        children.end_all_but(())
    run.tell(result)
    return 0
