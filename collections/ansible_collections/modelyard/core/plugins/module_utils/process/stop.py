"""End exactly one service's processes, gently first, and say what was done.

Order: SIGINT once to each API server, and wait for it to end by itself; then TERM to what is left, engine cores first;
then KILL, one proven process at a time. A pid is signalled only together with its start time (through a pidfd where the
system has one). Zombies are named with their parent and never signalled. Strangers and suspects are left alone.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set

from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, proc, supervisor

POLL_S = 0.2
SEGMENTS = "segments.json"
#: An API server whose engine has ended can wait for ever for a client that does not hang up (seen: 41 s and more).
LINGER_S = 5.0
#: A signal sent while the engine loads was once lost: it is sent again when nothing has moved for so long.
REPEAT_S = 20.0
TERM_S = 30.0  # EngineCore without its API server takes 10 to 25 s to end (seen)
KILL_S = 10.0
KEEPER_S = 5.0
DRAIN_MARGIN_S = 15.0


class Limits(NamedTuple):
    """How long each step may take, in seconds."""

    grace_s: float = 45.0
    term_s: float = TERM_S
    kill_s: float = KILL_S


class Stopper:
    """One stop of one service. `actions` collects, in order, what was done, in words."""

    def __init__(self, home: str, service: str, limits: Optional[Limits] = None, runtimes_dir: str = "") -> None:
        self.home = home
        self.service = service
        self.limits = limits or Limits()
        self.actions: List[str] = []
        self.signalled: List[Dict[str, Any]] = []
        self.states = {i: layout.state(folder) for i, folder in layout.instances(home, service)}
        self.claim = claim(home, service, runtimes_dir)
        drains = [s["request"].get("shutdown_timeout_s") or 0 for s in self.states.values() if s]
        #: What the engine itself was allowed for open requests; a second signal would cut it short.
        self.drain_s = float(max(drains, default=0))
        self.segments: Set[str] = set()

    # -- looking -------------------------------------------------------------------------------------------------

    def ours(self) -> List[identity.Found]:
        """The service's processes as they are now; remembers the shared memory that they hold."""
        found = [f for f in identity.census(self.claim) if f.verdict == identity.OURS]
        for item in found:
            self.segments |= proc.shared_memory(item.process.pid)
        return found

    def _is_keeper(self, found: identity.Found) -> bool:
        return identity.Recorded(found.process.pid, found.process.start) in self.claim.sessions

    def _leaders(self, found: List[identity.Found]) -> List[identity.Found]:
        leaders = {identity.Recorded(int(s["leader"]["pid"]), int(s["leader"]["start"])) for s in self.states.values() if s}
        return [f for f in found if identity.Recorded(f.process.pid, f.process.start) in leaders and _living(f)]

    def _engine(self, found: List[identity.Found]) -> List[identity.Found]:
        """Living processes of the service but for its keepers."""
        return [f for f in found if _living(f) and not self._is_keeper(f)]

    # -- acting --------------------------------------------------------------------------------------------------

    def _signal(self, found: identity.Found, number: signal.Signals, why: str) -> None:
        process = found.process
        if send(process.pid, process.start, number):
            self.actions.append(f"{number.name} to {process.pid} ({process.comm}): {why}")
            self.signalled.append({"pid": process.pid, "start": process.start, "signal": number.name})

    def run(self) -> List[identity.Found]:
        """Stop it; returns what is left of it (empty: nothing)."""
        self._gently()
        roots_first = sorted(self._engine(self.ours()), key=lambda f: (f.process.comm[:15] != "VLLM::EngineCor", f.process.pid))
        if roots_first:
            self._firmly(roots_first)
        self._let_keepers_go()
        return self.ours()

    def _gently(self) -> None:
        leaders = self._leaders(self.ours())
        for leader in leaders:
            self._signal(leader, signal.SIGINT, "asked to stop")
        sent = time.monotonic()
        limit = sent + max(self.limits.grace_s, self.drain_s + DRAIN_MARGIN_S * bool(self.drain_s))
        alone_since: Optional[float] = None
        before = -1
        while leaders and time.monotonic() < limit:
            engine = self._engine(self.ours())
            leaders = self._leaders(engine)
            if not leaders:
                break
            now = time.monotonic()
            if len(engine) != before:
                before, sent = len(engine), now
            elif now - sent > REPEAT_S + self.drain_s:
                last, sent = sent, now
                for leader in leaders:
                    self._signal(leader, signal.SIGTERM, f"asked again, nothing moved for {now - last:.0f} s")
            if len(engine) > len(leaders) or any(f.process.comm.startswith("VLLM::") for f in engine):
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif now - alone_since > LINGER_S:
                return
            time.sleep(POLL_S)
        # Its children leave a moment after the API server.
        self._wait_until_gone(2.0)

    def _firmly(self, remaining: List[identity.Found]) -> None:
        first = [f for f in remaining if f.process.comm[:15] == "VLLM::EngineCor"]
        for found in first or remaining:
            self._signal(found, signal.SIGTERM, "left over, asked to end")
        if self._wait_until_gone(self.limits.term_s):
            return
        for found in self._engine(self.ours()):
            self._signal(found, signal.SIGKILL, "did not end when asked")
        self._wait_until_gone(self.limits.kill_s)

    def _let_keepers_go(self) -> None:
        """A keeper ends by itself when its last child has; one that hangs on is ended."""
        if self._engine(self.ours()):
            return
        limit = time.monotonic() + KEEPER_S
        while time.monotonic() < limit:
            if not [f for f in self.ours() if self._is_keeper(f) and _living(f)]:
                return
            time.sleep(POLL_S)
        for found in self.ours():
            if self._is_keeper(found) and _living(found):
                self._signal(found, signal.SIGKILL, "keeper without an engine")
        time.sleep(POLL_S)

    def _wait_until_gone(self, seconds: float) -> bool:
        limit = time.monotonic() + seconds
        while self._engine(self.ours()):
            if time.monotonic() > limit:
                return False
            time.sleep(POLL_S)
        return True

    def remove_segments(self) -> List[str]:
        """Remove /dev/shm segments that only this service's processes held and that nobody holds now; returns names."""
        known = self.segments | recorded_segments(self.home, self.service)
        held: Set[str] = set()
        for pid in proc.processes():
            held |= proc.shared_memory(pid)
        removed = []
        for name in sorted(known - held):
            path = proc.SHM / name
            try:
                if path.stat().st_uid == os.geteuid():
                    path.unlink()
                    removed.append(name)
            except OSError:
                continue
        if removed:
            self.actions.append(f"removed {len(removed)} shared-memory segment(s): {', '.join(removed)}")
        return removed


def _living(found: identity.Found) -> bool:
    return found.process.state not in "ZX"


def send(pid: int, start: int, number: int) -> bool:
    """Signal this very process; False when it is gone or its pid belongs to another process now."""
    if not hasattr(os, "pidfd_open"):
        if not proc.alive(pid, start):
            return False
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True
    try:
        handle = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return False
    try:
        # The descriptor holds the process; if its start time is right now, the signal cannot reach another one.
        if not proc.alive(pid, start):
            return False
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def recorded_segments(home: str, service: str) -> Set[str]:
    """Segments that were written down while the service ran, as far as they are still the same files (by inode)."""
    names: Set[str] = set()
    for _, folder in layout.instances(home, service):
        for name, inode in (layout.read_json(folder / "run" / SEGMENTS) or {}).items():
            try:
                if proc.SEGMENT.fullmatch(name) and (proc.SHM / name).stat().st_ino == inode:
                    names.add(name)
            except OSError:
                continue
    return names


def claim(home: str, service: str, runtimes_dir: str = "") -> identity.Claim:
    """The claim of a service from what is written down in its folder; works when nothing is, and when the folder is gone."""
    folder_path = layout.service_dir(home, service)
    manifest = layout.read_json(folder_path / "manifest.json") or {}
    known = manifest.get("runtime")
    more = [str(known.get("path", "")) if isinstance(known, dict) else "", runtimes_dir or f"{home}/runtimes"]
    recorded: Set[identity.Recorded] = set()
    sessions: Set[identity.Recorded] = set()
    runtime = ""
    for _, folder in layout.instances(home, service):
        state = layout.state(folder)
        if not state:
            continue
        if supervisor.of_this_boot(state):
            recorded.add(identity.Recorded(int(state["leader"]["pid"]), int(state["leader"]["start"])))
            sessions.add(identity.Recorded(int(state["keeper"]["pid"]), int(state["keeper"]["start"])))
        runtime = str(state.get("request", {}).get("runtime") or runtime)
    return identity.Claim(
        service=service,
        folder=os.path.realpath(str(folder_path)),  # the kernel names working directories by their real path
        runtime=runtime,
        more_runtimes=tuple({place for path in more if path for place in (path, os.path.realpath(path))}),
        uid=folder_path.stat().st_uid if os.path.isdir(str(folder_path)) else None,
        recorded=frozenset(recorded),
        sessions=frozenset(sessions),
    )


def record_segments(folder: Path, pids: Iterable[int]) -> Dict[str, int]:
    """Write down which /dev/shm segments the processes hold, by name and inode, so that a stop after a crash knows them."""
    segments: Dict[str, int] = {}
    for pid in pids:
        for name in proc.shared_memory(pid):
            try:
                segments[name] = (proc.SHM / name).stat().st_ino
            except OSError:
                continue
    layout.write_json(folder / "run" / SEGMENTS, segments)
    return segments
