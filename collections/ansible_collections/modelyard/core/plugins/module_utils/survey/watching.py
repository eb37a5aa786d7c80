"""One look at an engine that is starting, runs or has ended: how far it is, in words. Reads only; standard library only."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, Dict

from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_log
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import http

LOG_BYTES = 2 * 2**20
HEALTH_LIMIT_S = 1.0


def tail(path: str) -> str:
    """The end of a log file; empty when it cannot be read."""
    try:
        with Path(path).open("rb") as stream:
            stream.seek(max(0, Path(path).stat().st_size - LOG_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def how_it_ended(folder: Path) -> str:
    """In words; the keeper writes it down a moment after the end."""
    for _ in range(10):
        ended = (layout.state(folder) or {}).get("ended")
        if ended:
            break
        time.sleep(0.1)
    else:
        return "its keeper is gone and did not write down how"
    if ended["signal"] == signal.SIGKILL:
        return "killed by signal 9: by somebody, or by the kernel because memory ran out (see dmesg)"
    return f"killed by signal {ended['signal']}" if ended["signal"] else f"exit code {ended['code']}"


def look(folder: Path) -> Dict[str, Any]:
    """{phase, words, ready, ended, deciding (lines of the log, once it has ended), log, elapsed_s} of one instance."""
    state = layout.state(folder)
    if state is None:
        seen = {"phase": "absent", "words": "was never started", "ready": False, "ended": True}
        return {**seen, "deciding": [], "log": "", "elapsed_s": 0}
    text = tail(state["log"])
    phase, words = engine_log.progress(text)
    # Asked before the process is looked at: one that answers and then dies is seen as dead.
    ready = http.status((state["request"]["host"], state["request"]["port"]), "/health", HEALTH_LIMIT_S) == 200
    alive = layout.leader_alive(state)
    seen = {
        "phase": phase,
        "words": words,
        "ready": ready and alive,
        "ended": not alive,
        "deciding": [],
        "log": state["log"],
        "elapsed_s": round(proc.age_s(int(state["leader"]["start"])), 1),
    }
    if not alive:
        seen.update(phase="ended", words=f"ended ({how_it_ended(folder)})", deciding=engine_log.deciding_lines(text))
    elif ready:
        seen.update(phase="ready", words="answers on /health")
    return seen
