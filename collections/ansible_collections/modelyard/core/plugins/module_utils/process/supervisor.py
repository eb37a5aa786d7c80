"""Who keeps an instance running, behind one small interface.

`plain` needs nothing of the host: the keeper (roles/service/files/keeper.py) starts the engine in a session of its own.
A further supervisor is one more class here and one more entry in SUPERVISORS.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Protocol

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc

START_LIMIT_S = 10.0


class StartError(Exception):
    """The supervisor could not start the instance; the text says why, for people."""


class Supervisor(Protocol):
    """What every supervisor can do with an instance's folder."""

    def start(self, folder: Path, request: Dict[str, Any], python: str) -> Dict[str, Any]:
        """Start it and return its state (see `layout.state`); raises StartError."""


class Plain:
    """The keeper as a detached process: own session, child subreaper, one log file per start."""

    def start(self, folder: Path, request: Dict[str, Any], python: str) -> Dict[str, Any]:
        """Start the keeper and wait until it has written down the engine's pid."""
        run = folder / "run"
        run.mkdir(exist_ok=True)
        layout.write_json(run / "request.json", request)
        before = layout.state(folder)
        with (run / "keeper.err").open("wb") as errors:
            keeper = subprocess.Popen(
                [python, str(folder.parent / "keeper.py"), str(folder)],
                cwd=str(run),
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home()), **request["marker"]},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        limit = time.monotonic() + START_LIMIT_S
        while time.monotonic() < limit:
            state = layout.state(folder)
            if state and state != before and state["keeper"]["pid"] == keeper.pid:
                return state
            if keeper.poll() is not None:
                break
            time.sleep(0.02)
        said = (run / "keeper.err").read_text(encoding="utf-8", errors="replace").strip()
        raise StartError(f"the keeper of {folder} did not start the engine: {said or 'it said nothing'}")


SUPERVISORS: Dict[str, Supervisor] = {"plain": Plain()}


def of_this_boot(state: Dict[str, Any]) -> bool:
    """Do its pids and start times mean anything here and now? Start times are counted from the boot, of that very machine."""
    return state.get("boot") in (None, proc.boot_id())


def leader_alive(state: Dict[str, Any]) -> bool:
    """Does the process that was started (vLLM's API server) still live?"""
    return of_this_boot(state) and proc.alive(int(state["leader"]["pid"]), int(state["leader"]["start"]))
