"""Shared memory of a service's engines: written down while they run, removed when nobody holds it any more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Collection, Dict, Iterable, List, Optional, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import processes

FILE = "segments.json"


def record(folder: Path, pids: Iterable[int]) -> Dict[str, int]:
    """Write down which /dev/shm segments the processes hold, by name and inode, so that a stop after a crash knows them."""
    segments: Dict[str, int] = {}
    for pid in pids:
        for name in opened.shared_memory(pid):
            try:
                segments[name] = (opened.SHM / name).stat().st_ino
            except OSError:
                continue
    layout.write_json(folder / "run" / FILE, segments)
    return segments


def recorded(home: str, service: str, indexes: Optional[Collection[int]] = None) -> Set[str]:
    """Segments that were written down while the service ran, as far as they are still the same files (by inode)."""
    names: Set[str] = set()
    for index, folder in layout.instances(home, service):
        if indexes is not None and index not in indexes:
            continue
        for name, inode in (layout.read_json(folder / "run" / FILE) or {}).items():
            try:
                if opened.SEGMENT.fullmatch(name) and (opened.SHM / name).stat().st_ino == inode:
                    names.add(name)
            except OSError:
                continue
    return names


def remove_unheld(names: Collection[str], uid: Optional[int] = None) -> Tuple[List[str], str]:
    """Remove those of the segments that nobody has open or mapped; (their names, why some could not be told).

    `uid`: whose they are; this user's when None. Of a process that hangs with the lock on its memory the map is not read, because
    the reader would hang with it: as long as one of that user is there, what it holds is not known and nothing is removed.
    """
    if not names:
        return [], ""
    owner = os.geteuid() if uid is None else uid
    table = proc.processes()
    doubtful = {pid: p for pid, p in table.items() if p.state in "DR" or proc.half_ended(p)}
    mute = {pid for pid in processes.stuck(doubtful) if processes.memory_locked(table[pid])} if doubtful else set()
    mine = sorted(pid for pid in mute if table[pid].uid == owner)
    if mine:
        return [], f"shared memory is left as it is: what {', '.join(map(str, mine))} holds cannot be looked at while it hangs"
    held: Set[str] = set()
    for process in table.values():
        if process.pid not in mute:
            pid, root = proc.window(process)
            held |= opened.shared_memory(pid, root)
    removed = []
    for name in sorted(set(names) - held):
        path = opened.SHM / name
        try:
            if path.stat().st_uid == owner:
                path.unlink()
                removed.append(name)
        except OSError:
            continue
    return removed, ""
