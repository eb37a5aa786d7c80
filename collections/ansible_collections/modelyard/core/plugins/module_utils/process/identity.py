"""Whose process is it?

Port and name do not find vLLM's workers, and a similar command line proves nothing. So several signs are looked at
together, and no single one is enough: an admin's shell may stand in our folder, another service shares the runtime, a
session's number can be used again, an environment can be sourced into any shell. A process is ours when signs
agree that tie it to a start of the service (RULES) and none speaks against it; else it is suspect: shown and left alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

MARKER = "MODELYARD_SERVICE"
OURS, SUSPECT, STRANGER = "ours", "suspect", "stranger"
#: Sets of signs of which one must be shown whole, together with at least one further sign if it is a single one.
RULES = (frozenset({"recorded"}), frozenset({"session"}), frozenset({"marker", "folder", "runtime"}))
#: With one of these a process is never ours, whatever else it shows.
AGAINST = frozenset({"other user", "other mounts"})
SIGNS_NEEDED = 2

#: What each sign means, as it is shown to people.
SIGNS = {
    "marker": f"{MARKER} in its environment names this service",
    "session": "it belongs to the session that the service was started in",
    "folder": "it works below the service's folder",
    "runtime": "it has files of the service's runtime in memory",
    "recorded": "its pid and start time were written down at the start",
    "other user": "it belongs to another user than the service's folder",
    "other mounts": "it lives in another mount namespace, as in a container: its paths are other files",
}


class Recorded(NamedTuple):
    """A process that was written down at a start: the pid together with its start time."""

    pid: int
    start: int


class Claim(NamedTuple):
    """What is known about a service's processes before looking: the ground for the signs."""

    service: str
    folder: str  # services/<name>
    runtime: str  # the runtime's folder; "" when unknown
    recorded: FrozenSet[Recorded]
    sessions: FrozenSet[Recorded]  # session leaders (keepers)
    more_runtimes: Tuple[str, ...] = ()  # further places of runtimes, for when nothing readable names the one
    uid: Optional[int] = None  # owner of the service's folder; None when there is none


class Found(NamedTuple):
    """A process that shows at least one sign."""

    process: proc.Process
    signs: FrozenSet[str]

    @property
    def verdict(self) -> str:
        """`ours` or `suspect`."""
        return verdict(self.signs)


def verdict(signs: FrozenSet[str]) -> str:
    """Decide from the signs alone."""
    if signs & AGAINST:
        return SUSPECT
    if len(signs) >= SIGNS_NEEDED and any(rule <= signs for rule in RULES):
        return OURS
    return SUSPECT if signs else STRANGER


def _below(path: Optional[str], folder: str) -> bool:
    return bool(path and folder) and (path == folder or str(path).startswith(folder.rstrip("/") + "/"))


def _session_is_ours(process: proc.Process, claim: Claim, table: Dict[int, proc.Process]) -> bool:
    for leader in claim.sessions:
        if process.sid != leader.pid or process.start < leader.start:
            continue
        present = table.get(leader.pid)
        # The number lives on while the session has members; a new process under it is somebody else's.
        if present is None or present.start == leader.start:
            return True
    return False


def signs(process: proc.Process, claim: Claim, table: Dict[int, proc.Process], root: Path = proc.PROC) -> FrozenSet[str]:
    """The signs that this process shows for this claim.

    Memory maps are read only when another sign is there already: they are long, and the runtime alone proves nothing.
    """
    found: Set[str] = set()
    if Recorded(process.pid, process.start) in claim.recorded | claim.sessions:
        found.add("recorded")
    if _session_is_ours(process, claim, table):
        found.add("session")
    if proc.environment(process.pid, MARKER, root) == claim.service:
        found.add("marker")
    if _below(proc.cwd(process.pid, root), claim.folder):
        found.add("folder")
    # argv[0] counts as well: the resource tracker is a bare Python that maps nothing of the runtime.
    places = [place for place in (claim.runtime, *claim.more_runtimes) if place]
    if found and places:
        program = (proc.command(process.pid, root) or "").split(" ", 1)[0]
        files = {program, *proc.mapped_files(process.pid, root)}
        if any(_below(file, place) for place in places for file in files):
            found.add("runtime")
    if found and claim.uid is not None and process.uid != claim.uid:
        found.add("other user")
    here, there = proc.mounts("self", root), proc.mounts(process.pid, root)
    if found and here and there and here != there:
        found.add("other mounts")
    return frozenset(found)


def census(claim: Claim, table: Optional[Dict[int, proc.Process]] = None, root: Path = proc.PROC) -> List[Found]:
    """Every process with at least one sign, by pid. The looking process itself and its ancestors are never among them."""
    table = proc.processes(root) if table is None else table
    mine: Set[int] = set()
    pid = os.getpid()
    while pid and pid in table and pid not in mine:
        mine.add(pid)
        pid = table[pid].ppid
    found = []
    for process in sorted(table.values(), key=lambda p: p.pid):
        if process.pid in mine:
            continue
        shown = signs(process, claim, table, root)
        if shown:
            found.append(Found(process, shown))
    return found


def describe(found: Found) -> Dict[str, object]:
    """Plain data about a found process, for results and messages."""
    process = found.process
    return {
        "pid": process.pid,
        "start": process.start,
        "ppid": process.ppid,
        "state": process.state,
        "user": proc.user_name(process.uid),
        "comm": process.comm,
        "command": proc.command(process.pid) or f"[{process.comm}]",
        "signs": sorted(found.signs),
        "verdict": found.verdict,
    }
