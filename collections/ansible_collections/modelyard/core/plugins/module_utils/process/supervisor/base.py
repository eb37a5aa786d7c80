"""What all supervisors have in common."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc

START_LIMIT_S = 15.0
STEP_S = 0.02
SAID_BYTES = 2000


class StartError(Exception):
    """The supervisor could not start the instance; the text says why, for people."""


class NotReleased(StartError):
    """The supervisor may start the instance again; the text says why, `done` what was done before."""

    def __init__(self, text: str, done: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.done = list(done)


class Running(StartError):
    """It runs already: whoever wanted it to run has it."""


class Supervisor(Protocol):
    """What every supervisor can do with an instance's folder. `request`: see layout.request."""

    def start(self, folder: Path, request: Dict[str, Any], python: str) -> Dict[str, Any]:
        """Start it and return its state (see `layout.state`); raises StartError."""

    def release(self, folder: Path, request: Dict[str, Any], limit_s: float) -> List[str]:
        """Make sure that it is not started again, within the limit; what was done, in words. Raises NotReleased."""

    def describe(self, folder: Path, request: Dict[str, Any]) -> Dict[str, Any]:
        """{kind, name, alive, detail, attach}: whether the supervisor itself is there, which says nothing about the engine.

        `alive` is None when that cannot be told. `attach` is a command to copy, or empty.
        """


def environment() -> Dict[str, str]:
    """What the programs between us and the keeper get: nothing of the caller's shell."""
    home = os.environ.get("HOME") or str(Path.home())
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, "LANG": "C.UTF-8"}


def program(folder: Path) -> Path:
    """The by-hand program of the service of this instance; raises StartError."""
    path = folder.parent / layout.PROGRAM
    if not path.is_file():
        raise StartError(f"{path} is not there: deploy the service again")
    return path


def said(path: Path) -> str:
    """The end of a small file with what a program has said; words for nothing."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as exc:
        return str(exc)
    if not text and os.statvfs(str(path.parent)).f_bavail == 0:
        return f"the disk of {path.parent} is full. Free some of it: old files are in logs and in the folder evidence of the home"
    return text[-SAID_BYTES:] or "it said nothing"


def wait_for_state(
    folder: Path, before: Optional[Dict[str, Any]], limit_s: float, failed: Callable[[], str]
) -> Optional[Dict[str, Any]]:
    """The state that a new keeper writes; None when none came within the limit. `failed` gives words once there is no hope."""
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        hopeless = failed()
        state = layout.state(folder)
        if state and (before is None or state["keeper"] != before["keeper"]):
            return state
        if hopeless:
            raise StartError(hopeless)
        time.sleep(STEP_S)
    return None


def keeper_line(folder: Path) -> str:
    """How it stands with the engine under the supervisor, for `detail`."""
    state = layout.state(folder)
    if state is None:
        return "never started"
    if layout.leader_alive(state):
        return f"engine pid {state['leader']['pid']}, keeper pid {state['keeper']['pid']}"
    if layout.keeper_alive(state):
        return f"the API server has ended, parts of the engine live on (keeper pid {state['keeper']['pid']})"
    return "nothing of it runs"


def age(state: Dict[str, Any]) -> float:
    """Seconds since the engine's start; no clock that somebody can set takes part."""
    return proc.age_s(int(state["leader"]["start"]))
