"""Segments in /dev/shm that engines left or use: size, age, and who holds them.

Standard library only; reads only. Only names that engines make themselves (`opened.SEGMENT`): models, homes and other people's
data can lie there as well.
"""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path
from typing import Any, Collection, Dict, Iterable, List, NamedTuple, Optional, Set

from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import processes

MIB = 2**20


class _Segment(NamedTuple):
    name: str
    uid: int
    mode: int
    held_bytes: int  # of memory; segments are sparse, so their length says little
    changed_at: float


def _segments(folder: Path) -> List[_Segment]:
    """The regular files with an engine's name, by name."""
    found = []
    try:
        with os.scandir(str(folder)) as entries:
            names = sorted(entry.name for entry in entries if opened.SEGMENT.fullmatch(entry.name))
    except OSError:
        return []
    for name in names:
        try:
            status = os.lstat(f"{folder}/{name}")
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.append(_Segment(name, status.st_uid, status.st_mode, status.st_blocks * 512, status.st_mtime))
    return found


def _may_open(process: proc.Process, segment: _Segment) -> bool:
    """Could this process have opened the segment by itself?

    Engines make them with mode 0600: then their owner. Root could as well, but if daemons of root counted, nobody but root would
    ever get an answer. Where root's processes can be read they are looked at all the same.
    """
    return _open_to_others(segment) or process.uid == segment.uid


def _open_to_others(segment: _Segment) -> bool:
    return bool(segment.mode & 0o066)


def _mapped(pid: int, root: Path, pattern: re.Pattern[bytes]) -> Optional[Set[str]]:
    """Names in the memory map; None when it may not be read. Removed ones are other files than those here."""
    try:
        raw = (root / str(pid) / "maps").read_bytes()
    except PermissionError:
        return None
    except OSError:
        return set()
    return {name.decode("utf-8", "replace") for name in pattern.findall(raw)}


def segments(
    handles: opened.Handles,
    table: Dict[int, proc.Process],
    hung: Collection[int] = (),
    folder: Path = opened.SHM,
    proc_root: Path = proc.PROC,
) -> Dict[str, Any]:
    """`{"total_mib", "free_mib", "segments": [{"name", "user", "mib", "age_s", "holders"}]}`.

    `mib` is the memory that the segment takes, `age_s` the time since it was made or last changed in size. `holders` are the pids
    that have it open or mapped; empty: surely nobody; None: nobody was seen, but a process that may not be read could hold it.

    Descriptors were read before. Memory maps are long: they are read only when there is a segment at all, and only of processes
    that could have opened one. Those of `hung` processes are not read, because the reader may hang with them.
    """
    result: Dict[str, Any] = {**_space(folder), "segments": []}
    found = _segments(folder)
    if not found:
        return result
    holders: Dict[str, Set[int]] = {segment.name: set() for segment in found}
    unread: List[proc.Process] = []
    pattern = re.compile(rb" " + re.escape(os.fsencode(f"{folder}/")) + rb"([^/\n]+)\n")
    for process in table.values():
        held = _descriptors(handles, process.pid, folder)
        wanted = _wanted(process, table, found)
        if process.pid in handles.denied or (wanted and process.pid in hung):  # map and descriptors need the same right
            unread.append(process)
        elif wanted:
            mapped = _mapped(*proc.window(process, proc_root), pattern)
            if mapped is None:
                unread.append(process)
            held |= mapped or set()
        for name in holders.keys() & held:
            holders[name].add(process.pid)
    incomplete = _elsewhere(proc_root)
    for segment in found:
        unsure = incomplete or any(_may_open(process, segment) for process in unread)
        unsure = unsure or (processes.hidden(table) and (segment.uid != os.geteuid() or _open_to_others(segment)))
        pids = sorted(holders[segment.name])
        result["segments"].append(
            {
                "name": segment.name,
                "user": proc.user_name(segment.uid),
                "mib": round(segment.held_bytes / MIB, 3),
                "age_s": max(0, int(time.time() - segment.changed_at)),
                "holders": None if unsure and not pids else pids,
            }
        )
    return result


def _space(folder: Path) -> Dict[str, int]:
    try:
        space = os.statvfs(str(folder))
    except OSError:
        return {"total_mib": 0, "free_mib": 0}
    return {
        "total_mib": space.f_blocks * space.f_frsize // MIB,
        "free_mib": space.f_bavail * space.f_frsize // MIB,
    }


def _descriptors(handles: opened.Handles, pid: int, folder: Path) -> Set[str]:
    prefix = f"{folder}/"
    return {target[len(prefix) :] for target in handles.targets.get(pid, ()) if target.startswith(prefix)}


def _wanted(process: proc.Process, table: Dict[int, proc.Process], found: Iterable[_Segment]) -> bool:
    """Is the memory map of this process worth its length?"""
    if process.state in "ZX" and not proc.half_ended(process):
        return False
    if proc.kernel_thread(process, table):
        return False
    return process.uid == 0 or any(_may_open(process, segment) for segment in found)


def _elsewhere(root: Path) -> bool:
    """Can processes that we do not see hold segments that we see?

    So in a container that shares the host's IPC namespace and with it /dev/shm (`--ipc=host`) but has process numbers of its own.
    """
    return (
        proc.namespace("self", "pid", root) not in (None, proc.FIRST_NAMESPACE["pid"])
        and proc.namespace("self", "ipc", root) == proc.FIRST_NAMESPACE["ipc"]
    )
