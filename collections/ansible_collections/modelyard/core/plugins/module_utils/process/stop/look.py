"""Looking at a service's processes again and again while it is stopped: whose they are, and what they hold."""

from __future__ import annotations

import os
from typing import Any, Collection, Dict, List, Mapping, Optional, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import admin, claims, phases
from ansible_collections.modelyard.core.plugins.module_utils.survey import processes

Key = Optional[int]


class Watch:
    """The processes of a service, or of some of its instances, by instance.

    What was ours once stays ours as long as it lives: while a process ends it loses its environment, folder and memory map, and
    of one that hangs nothing may be read, because the reader could hang with it.
    """

    def __init__(self, home: str, service: str, indexes: Optional[Collection[int]] = None, runtimes_dir: str = "") -> None:
        self.home, self.service = home, service
        present = [index for index, _ in layout.instances(home, service)]
        #: Instances that are meant; for a service without any folder of them: none, and None stands for the service.
        self.indexes = sorted(indexes) if indexes is not None else present
        self.states = {i: layout.state(layout.instance_dir(home, service, i)) for i in self.indexes}
        self.claims: Dict[Key, identity.Claim] = {i: claims.claim(home, service, runtimes_dir, i) for i in self.indexes}
        if indexes is None:
            self.claims[None] = claims.claim(home, service, runtimes_dir)
        folder = layout.service_dir(home, service)
        #: Whom the service's folder belongs to; None without one.
        self.uid = folder.stat().st_uid if folder.is_dir() else None
        self.leaders = {leader for claim in self.claims.values() for leader in claim.recorded}
        self.keepers = {keeper for claim in self.claims.values() for keeper in claim.sessions}
        self.ours: Dict[identity.Recorded, Tuple[Key, identity.Found]] = {}
        self.commands: Dict[identity.Recorded, str] = {}
        self.suspects: Dict[identity.Recorded, identity.Found] = {}
        self.table: Dict[int, proc.Process] = {}
        self.segments: Set[str] = set()
        self.mounts = proc.mounts("self")
        self._take_over()

    def _take_over(self) -> None:
        """What an earlier stop of these instances has handed over is ours, even if nothing can be read of it any more."""
        known = layout.read_json(admin.path(self.home, self.service)) or {}
        if None not in self.claims and not set(admin.numbers(known.get("instances"))) <= set(self.indexes):
            return
        left = admin.left_of(known)
        self.table = proc.processes() if left else {}
        for pid, start in left:
            process = self.table.get(pid)
            if process is not None and process.start == start:
                found = identity.Found(process, frozenset({"recorded", "handed over"}))
                self.ours[identity.Recorded(pid, start)] = (None, found)

    def look(self) -> Dict[Key, List[phases.Member]]:
        """The living processes of each instance as they are now."""
        self.table = table = proc.processes()
        for known in [known for known in self.ours if not _is_same(known, table)]:
            del self.ours[known]
        mute = self._mute(table)
        seen = identity.observe(list(self.claims.values()), table, skip={known.pid for known in self.ours}, mute=mute)
        self.suspects = {}
        for one in seen:
            self._judge(one, one.process.pid in mute)
        groups: Dict[Key, List[phases.Member]] = {key: [] for key in [*self.claims, *(key for key, _ in self.ours.values())]}
        for known, (key, found) in self.ours.items():
            process = table[known.pid]
            living = proc.living(process)
            self.ours[known] = (key, found._replace(process=process, living=living))
            if living:
                groups[key].append(self._member(known, process))
        return groups

    def _judge(self, seen: identity.Seen, mute: bool) -> None:
        known = identity.Recorded(seen.process.pid, seen.process.start)
        verdict, key, found = assign(seen, self.claims, self.table, self.mounts)
        if verdict == identity.OURS:
            self.ours[known] = (key, found)
            if seen.living and not mute:
                self.segments |= opened.shared_memory(*proc.window(seen.process))
        elif verdict == identity.SUSPECT and seen.living:
            self.suspects[known] = found
        if verdict in (identity.OURS, identity.SUSPECT) and seen.living and not mute and known not in self.commands:
            self.commands[known] = proc.command(*proc.window(seen.process)) or ""

    def _mute(self, table: Dict[int, proc.Process]) -> Set[int]:
        """Pids that are not known yet and hang with the lock on their memory."""
        known = {mine.pid for mine in self.ours}
        # One whose first thread has ended shows nothing of its own: it is read through a thread, which may hang.
        doubtful = {pid: p for pid, p in table.items() if (p.state in "DR" or proc.half_ended(p)) and pid not in known}
        hung = processes.stuck(doubtful) if doubtful else []
        return {pid for pid in hung if processes.memory_locked(table[pid])}

    def _member(self, known: identity.Recorded, process: proc.Process) -> phases.Member:
        role = phases.role_of(process.comm, self.commands.get(known, ""), known in self.keepers, known in self._only_leaders)
        return phases.Member(process.pid, process.start, process.comm, process.state, role)

    @property
    def _only_leaders(self) -> Set[identity.Recorded]:
        return self.leaders - self.keepers

    def remember_segments(self) -> None:
        """Look again at the shared memory of what still runs: engines make it as they go."""
        for _, found in self.ours.values():
            if found.living and found.process.state not in "DRZ":
                self.segments |= opened.shared_memory(*proc.window(found.process))

    def living(self) -> List[identity.Found]:
        """Processes of the last look that have not ended."""
        return [found for _, found in self.ours.values() if found.living]

    def zombies(self) -> List[identity.Found]:
        """Processes of the last look that have ended and wait for their parents."""
        return [found for _, found in self.ours.values() if not found.living]

    def describe(self, found: identity.Found) -> Dict[str, Any]:
        """Plain data about a process of ours; what it was called when it was found first."""
        known = identity.Recorded(found.process.pid, found.process.start)
        return identity.describe(found, self.commands.get(known, ""))

    def is_mine(self, pid: int) -> bool:
        """Was this process, as it is in the table of the last look, ever found to be ours?"""
        process = self.table.get(pid)
        return process is not None and identity.Recorded(pid, process.start) in self.ours


def assign(
    seen: identity.Seen, claims: Mapping[Key, identity.Claim], table: Mapping[int, proc.Process], mounts: Optional[str]
) -> Tuple[str, Key, identity.Found]:
    """(verdict, instance, signs) of a process, from the claims by instance. Pure.

    The claim of an instance comes before that of the whole service (None). A suspect of one instance that is proven to be the
    service's belongs to None: its signs contradict each other.
    """
    suspect: Optional[Tuple[str, Key, identity.Found]] = None
    for key in sorted(claims, key=lambda k: (k is None, k)):
        found = identity.Found(seen.process, identity.signs(seen, claims[key], table, mounts), seen.living)
        if found.verdict == identity.OURS:
            return identity.OURS, key, found
        if found.verdict == identity.SUSPECT:
            suspect = (identity.SUSPECT, key, found)
    return suspect or (identity.STRANGER, None, identity.Found(seen.process, frozenset(), seen.living))


def _is_same(known: identity.Recorded, table: Dict[int, proc.Process]) -> bool:
    return known.pid in table and table[known.pid].start == known.start


def no_right(home: str, service: str) -> str:
    """Why this user cannot stop the service or tell what runs of it, with what to do; empty when it can."""
    folder = layout.service_dir(home, service)
    try:
        owner = folder.stat().st_uid
    except PermissionError:
        return f"user {proc.user_name(os.geteuid())} may not look into {folder}. Run it as the user of the service, or as root."
    except OSError:
        return ""
    name = proc.user_name(owner)
    if os.geteuid() == owner:
        return ""
    if os.geteuid() == 0:
        kept = [layout.read_json(place / "instance.json") or {} for _, place in layout.instances(home, service)]
        if not any(request.get("supervisor") == "systemd_user" for request in kept):
            return ""
        return f"units of the user {name} keep it, which only that user can stop: they would start it again. Run it as {name}."
    return f"it belongs to user {name}, whose processes this user may not look into. Run it as {name}, or as root."
