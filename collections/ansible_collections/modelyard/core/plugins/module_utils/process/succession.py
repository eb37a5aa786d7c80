"""A program of a keeper in the place of the one before, while the port stays open (entry.py).

Who wants it writes the order and waits (`replace`). The keeper starts launch.sh once more. When the new program has written down
that it takes connections, the keeper makes it the one that counts and tells the one before to take none any more and to end with
its last request (SIGUSR1). When it does not come that far, it is ended, and nothing has changed for anybody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import history, layout, proc

if TYPE_CHECKING:
    from ansible_collections.modelyard.core.plugins.module_utils.process.keeper import Keeper

#: Below run/: the order, and the number of the process that takes connections now.
ORDER, TAKES = "succeed.json", "gateway.pid"
#: How long the new program may take, and how long is waited for the keeper beyond that.
READY_S, KEEPER_S, STEP_S = 30.0, 10.0, 0.1
RETIRE = signal.SIGUSR1
#: What stays as it is for as long as a keeper lives.
FIXED = ("host", "port", "supervisor", "session")


class NotReplaced(Exception):
    """The one before serves on as it did; the text says why, for people."""


class _Candidate(NamedTuple):
    pid: int
    start: int
    log: Path
    request: Dict[str, Any]
    began: float  # monotonic
    at: float  # seconds since 1970


class Succession:
    """The keeper's side. `pending`: a new program has been started and does not count yet."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._candidate: Optional[_Candidate] = None
        self._retired: Dict[int, Dict[str, Any]] = {}  # pid -> its entry among the starts

    @property
    def pending(self) -> bool:
        """Is one on its way?"""
        return self._candidate is not None

    def look(self) -> None:
        """Obey an order, and see how far the new program has come."""
        candidate = self._candidate
        if candidate is None:
            self._begin()
        elif _takes(self._keeper.folder) == candidate.pid:
            self._candidate = None
            self._promote(candidate)
        elif time.monotonic() - candidate.began > READY_S:
            os.kill(candidate.pid, signal.SIGKILL)  # a child that was not reaped: the number is its own
            self._failed(candidate.request, f"it did not take connections within {READY_S:.0f} s", candidate.log)

    def reaped(self, pid: int, status: int) -> None:
        """A child has ended that is not the leader."""
        started = self._retired.pop(pid, None)
        if started is not None:
            started.update(history.end(status, time.time()))
            state = self._keeper.state
            state["retired"] = [one for one in state["retired"] if one["pid"] != pid]
            self._keeper.write()
        elif self._candidate is not None and pid == self._candidate.pid:
            end = history.end(status, time.time())
            how = f"signal {end['signal']}" if end["signal"] else f"exit status {end['code']}"
            self._failed(self._candidate.request, f"it ended at once ({how})", self._candidate.log)

    def _begin(self) -> None:
        order = self._keeper.folder / "run" / ORDER
        wanted = layout.read_json(order)
        if wanted is None:
            return
        with contextlib.suppress(OSError):
            order.unlink()
        request = layout.request(self._keeper.folder)
        if request is None or request["digest"] != wanted.get("digest"):
            self._failed({"digest": wanted.get("digest")}, f"{layout.REQUEST_FILE} is of another plan", None)
            return
        try:
            log, pid = self._keeper.launch(request)
        except OSError as error:
            self._failed(request, str(error), None)
            return
        start = proc.identity(pid)[1]
        self._candidate = _Candidate(pid, start, log, request, time.monotonic(), round(time.time(), 3))

    def _promote(self, new: _Candidate) -> None:
        keeper = self._keeper
        before, started = keeper.state["leader"], keeper.starts[-1]
        lives = keeper.state["ended"] is None
        if lives:
            started.update(asked=True, served_s=keeper.served_s())
            self._retired[before["pid"]] = started
            keeper.state["retired"] = [*keeper.state["retired"], before]
        leader = {"pid": new.pid, "start": new.start}
        keeper.state.update(leader=leader, request=new.request, log=str(new.log), started_at=new.at, ready_at=None, ended=None)
        keeper.follows(new.log)
        keeper.starts.append(history.entry(new.log.name, new.at, True))
        keeper.write()
        if lives:
            os.kill(before["pid"], RETIRE)  # a child that was not reaped

    def _failed(self, request: Dict[str, Any], why: str, log: Optional[Path]) -> None:
        self._candidate = None
        if self._keeper.state["ended"] is not None:
            self._keeper.close_entry()
        self._keeper.state["not_replaced"] = {"digest": request.get("digest"), "why": why, "log": str(log or "")}
        self._keeper.write()


def _takes(folder: Path) -> int:
    """The process that has written down that it takes connections; 0 for none."""
    try:
        return int((folder / "run" / TAKES).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def obstacle(folder: Path, wanted: Optional[Dict[str, Any]]) -> str:
    """Why what runs here can only be stopped and started anew; empty when it can be replaced. `wanted`: instance.json."""
    known = layout.state(folder)
    if known is None or not layout.leader_alive(known) or not layout.keeper_alive(known):
        return "it does not run"
    if not known.get("entry"):
        return "it was started by an earlier version, whose keeper does not hold the port"
    changed = [name for name in FIXED if (wanted or {}).get(name) != known["request"].get(name)]
    return f"{' and '.join(changed)} changed" if changed else ""


def replace(folder: Path, wanted: Dict[str, Any]) -> int:
    """Have the keeper put what `wanted` (instance.json) says in the place of what runs; the pid of that one. NotReplaced."""
    before = layout.state(folder)
    problem = obstacle(folder, wanted)
    if problem or before is None:
        raise NotReplaced(problem)
    refused = before.get("not_replaced")
    layout.write_json(folder / "run" / ORDER, {"digest": wanted["digest"], "at": time.time()})
    limit = time.monotonic() + READY_S + KEEPER_S
    while time.monotonic() < limit:
        now = layout.state(folder)
        if now and now["leader"] != before["leader"]:
            return int(now["leader"]["pid"])
        if now and now.get("not_replaced") != refused:
            said = now["not_replaced"]
            raise NotReplaced(said["why"] + (f"; its log is {said['log']}" if said["log"] else ""))
        if not layout.keeper_alive(before):
            raise NotReplaced("its keeper has ended meanwhile")
        time.sleep(STEP_S)
    with contextlib.suppress(OSError):
        (folder / "run" / ORDER).unlink()
    raise NotReplaced("its keeper did not obey")


def wait_retired(folder: Path, limit_s: float, say: Callable[[str], None]) -> bool:
    """Wait until those that were replaced have worked off their requests and ended, at most so long; True when they have."""
    limit, told = time.monotonic() + limit_s, False
    while True:
        left: List[Dict[str, Any]] = [
            one for one in (layout.state(folder) or {}).get("retired", []) if proc.alive(int(one["pid"]), int(one["start"]))
        ]
        if not left:
            return True
        if not told:
            told = True
            say(f"the one before (pid {left[0]['pid']}) takes no new requests and ends with its last one")
        if time.monotonic() >= limit:
            return False
        time.sleep(STEP_S)
