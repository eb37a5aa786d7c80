"""Whose process is it?

Port and name do not find vLLM's workers, and a similar command line proves nothing. So several signs are looked at
together, and no single one is enough: an admin's shell may stand in our folder, another service shares the runtime, a
session's number can be used again, an environment can be sourced into any shell. A process is ours when signs
agree that tie it to a start of the service (RULES) and none speaks against it; else it is suspect: shown and left alone.

`observe` reads /proc, once for any number of claims. What follows from it, `signs` and `verdict`, is pure.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import cgroup, opened, proc

MARKER, INSTANCE_MARKER = "MODELYARD_SERVICE", "MODELYARD_INSTANCE"
#: OTHER: of the same service, but of another instance than the one that is asked about.
OURS, SUSPECT, OTHER, STRANGER = "ours", "suspect", "other instance", "stranger"
#: Sets of signs of which one must be shown whole, together with at least one further sign if it is a single one.
RULES = (
    frozenset({"recorded"}),
    frozenset({"session"}),
    # A unit's name can be the same in two homes; the folder cannot.
    frozenset({"unit", "folder"}),
    frozenset({"marker", "folder", "runtime"}),
)
#: With one of these a process is never ours, whatever else it shows.
AGAINST = frozenset({"other user", "other mounts", "other instance", "no instance", "terminal"})
SIGNS_NEEDED = 2

#: What each sign means, as it is shown to people.
SIGNS = {
    "marker": f"{MARKER} in its environment names this service",
    "session": "it belongs to the session that the service was started in",
    "unit": "it belongs to the service's systemd unit",
    "folder": "it works below the service's folder",
    "runtime": "it has files of the service's runtime in memory",
    "recorded": "its pid and start time were written down at the start",
    "handed over": "an earlier stop proved that it is the service's and could not end it",
    "instance": "marker, folder, session or unit name this very instance",
    "other user": "it belongs to another user than the service's folder",
    "terminal": "it was started from a terminal, and an engine is not: somebody works there with the service's environment",
    "other mounts": "it lives in another mount namespace, as in a container: its paths are other files",
    "other instance": "marker, folder or session name another instance of the service",
    "no instance": "nothing says which instance of the service it belongs to",
}
_INSTANCE_FOLDER = re.compile(r"instance-([0-9]+)(?:/|$)")


class Recorded(NamedTuple):
    """A process that was written down at a start: the pid together with its start time."""

    pid: int
    start: int


class Claim(NamedTuple):
    """What is known about a service's processes, or those of one instance, before looking: the ground for the signs."""

    service: str
    folder: str  # services/<name>
    runtime: str  # the runtime's folder; "" when unknown
    recorded: FrozenSet[Recorded]
    sessions: FrozenSet[Recorded]  # session leaders (keepers)
    more_runtimes: Tuple[str, ...] = ()  # further places of runtimes, for when nothing readable names the one
    uid: Optional[int] = None  # owner of the service's folder; None when there is none
    units: FrozenSet[str] = frozenset()  # systemd units, as "modelyard-x.service"
    instance: Optional[int] = None  # only this instance's processes; None for all of the service
    others: FrozenSet[Recorded] = frozenset()  # keepers and leaders of the other instances


class Seen(NamedTuple):
    """What was read about one process. None: not there, not readable, or not looked at."""

    process: proc.Process
    marker: Optional[str] = None
    instance: Optional[str] = None
    cwd: Optional[str] = None
    unit: str = ""
    files: FrozenSet[str] = frozenset()  # the program, and what it has in memory
    mounts: Optional[str] = None
    living: bool = True


class Found(NamedTuple):
    """A process that shows at least one sign."""

    process: proc.Process
    signs: FrozenSet[str]
    living: bool = True

    @property
    def verdict(self) -> str:
        """`ours`, `suspect` or `other instance`."""
        return verdict(self.signs)


def verdict(signs: FrozenSet[str]) -> str:
    """Decide from the signs alone."""
    ties = signs - AGAINST - {"instance"}
    if not ties:
        return STRANGER
    if "other instance" in signs and "instance" not in signs:
        return OTHER
    if not signs & AGAINST and len(ties) >= SIGNS_NEEDED and any(rule <= ties for rule in RULES):
        return OURS
    return SUSPECT


def _below(path: Optional[str], folder: str) -> bool:
    return bool(path and folder) and (path == folder or str(path).startswith(folder.rstrip("/") + "/"))


def _in_session(process: proc.Process, leaders: Collection[Recorded], table: Mapping[int, proc.Process]) -> bool:
    for leader in leaders:
        if process.sid != leader.pid or process.start < leader.start:
            continue
        present = table.get(leader.pid)
        # The number lives on while the session has members; a new process under it is somebody else's.
        if present is None or present.start == leader.start:
            return True
    return False


def _instances(seen: Seen, claim: Claim) -> Set[str]:
    """Numbers of the instances that marker and folder name, as text."""
    named = set()
    if seen.marker == claim.service and seen.instance:
        named.add(seen.instance)
    if _below(seen.cwd, claim.folder):
        match = _INSTANCE_FOLDER.match(str(seen.cwd)[len(claim.folder.rstrip("/")) + 1 :])
        if match:
            named.add(match.group(1))
    return named


def signs(seen: Seen, claim: Claim, table: Mapping[int, proc.Process], mounts: Optional[str] = None) -> FrozenSet[str]:
    """The signs that a process shows for a claim. `table`: all processes; `mounts`: the looking process' mount namespace."""
    process = seen.process
    found: Set[str] = set()
    if Recorded(process.pid, process.start) in claim.recorded | claim.sessions:
        found.add("recorded")
    if _in_session(process, claim.sessions, table):
        found.add("session")
    if seen.marker == claim.service:
        found.add("marker")
    if _below(seen.cwd, claim.folder):
        found.add("folder")
    if seen.unit and seen.unit in claim.units:
        found.add("unit")
    if not found:
        return frozenset()
    places = [place for place in (claim.runtime, *claim.more_runtimes) if place]
    if any(_below(file, place) for place in places for file in seen.files):
        found.add("runtime")
    if claim.instance is not None:
        found |= _of_instance(seen, claim, found, table)
    if process.tty and {"marker", "folder", "runtime"} <= found and not found & {"recorded", "session", "unit"}:
        found.add("terminal")
    if claim.uid is not None and process.uid != claim.uid:
        found.add("other user")
    if mounts and seen.mounts and seen.mounts != mounts:
        found.add("other mounts")
    return frozenset(found)


def _of_instance(seen: Seen, claim: Claim, found: Set[str], table: Mapping[int, proc.Process]) -> Set[str]:
    """Does it belong to the claim's instance? Processes of an earlier version have no marker of the instance."""
    process = seen.process
    named = _instances(seen, claim)
    mine = bool(found & {"recorded", "session", "unit"}) or str(claim.instance) in named
    others = _in_session(process, claim.others, table) or Recorded(process.pid, process.start) in claim.others
    more = {"instance"} if mine else set()
    if others or named - {str(claim.instance)}:
        more.add("other instance")
    return more or {"no instance"}


def observe(
    claims: Collection[Claim],
    table: Dict[int, proc.Process],
    root: Path = proc.PROC,
    skip: Collection[int] = (),
    mute: Collection[int] = (),
) -> List[Seen]:
    """Read about every process what the signs of these claims need, by pid.

    The looking process itself and its ancestors are left out, and the pids in `skip`. Memory maps are long, and the runtime
    alone proves nothing: they are read only of a process that shows a sign already. Of the pids in `mute` environment, command
    line and map are not read: they hang with the lock on their memory, and the reader would hang with them.
    """
    left_out = _self_and_ancestors(table) | set(skip)
    with_units = any(claim.units for claim in claims)
    found = []
    for process in sorted(table.values(), key=lambda p: p.pid):
        if process.pid in left_out:
            continue
        pid, folder = proc.window(process, root)
        silent = process.pid in mute
        values = [None, None] if silent else proc.environment_of(pid, (MARKER, INSTANCE_MARKER), folder)
        seen = Seen(
            process,
            marker=values[0],
            instance=values[1],
            cwd=proc.cwd(pid, folder),
            unit=cgroup.unit_of(cgroup.path_of(pid, folder)) if with_units else "",
            living=process.state not in "ZX" or pid != process.pid,
        )
        if any(signs(seen, claim, table) for claim in claims):
            # argv[0] counts as well: the resource tracker is a bare Python that maps nothing of the runtime.
            program = "" if silent else (proc.command(pid, folder) or "").split(" ", 1)[0]
            files = frozenset() if silent else frozenset({program, *opened.mapped_files(pid, folder)})
            seen = seen._replace(files=files, mounts=proc.mounts(pid, folder))
        found.append(seen)
    return found


def _self_and_ancestors(table: Mapping[int, proc.Process]) -> Set[int]:
    mine: Set[int] = set()
    pid = os.getpid()
    while pid and pid in table and pid not in mine:
        mine.add(pid)
        pid = table[pid].ppid
    return mine


def census(claim: Claim, table: Optional[Dict[int, proc.Process]] = None, root: Path = proc.PROC) -> List[Found]:
    """Every process with at least one sign, by pid. The looking process itself and its ancestors are never among them."""
    table = proc.processes(root) if table is None else table
    return judge(claim, observe([claim], table, root), table, proc.mounts("self", root))


def judge(claim: Claim, seen: Collection[Seen], table: Mapping[int, proc.Process], mounts: Optional[str]) -> List[Found]:
    """Those of the seen processes that show a sign for the claim, in the same order."""
    judged = (Found(one.process, signs(one, claim, table, mounts), one.living) for one in seen)
    return [found for found in judged if found.signs]


def describe(found: Found, command: Optional[str] = None) -> Dict[str, object]:
    """Plain data about a found process, for results and messages. A `command` that is given is not read again."""
    process = found.process
    if command is None:
        command = proc.command(*proc.window(process)) or ""
    return {
        "pid": process.pid,
        "start": process.start,
        "ppid": process.ppid,
        "state": process.state,
        "living": found.living,
        "user": proc.user_name(process.uid),
        "comm": process.comm,
        "command": command or f"[{process.comm}]",
        "signs": sorted(found.signs),
        "verdict": found.verdict,
    }
