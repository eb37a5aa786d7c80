"""What processes have open or mapped: files, devices, segments of shared memory. A reader of /proc, nothing else.

Standard library only; runs on managed hosts. What may not be read is an answer and never an exception, as in proc.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, FrozenSet, Iterator, NamedTuple, Optional, Set

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

SHM = Path("/dev/shm")
#: Seen of vLLM 0.32 on CPU: psm_*, sem.mp-*, vllm_dist_*; torch_* and nccl-* are PyTorch's and NCCL's own.
SEGMENT = re.compile(r"(psm_|sem\.mp-|vllm_|torch_|nccl-)[^/]+")
DELETED = " (deleted)"


class Handles(NamedTuple):
    """What the file descriptors of many processes point to, from one pass over /proc."""

    targets: Dict[int, FrozenSet[str]]  # paths, `socket:[inode]`, ...; " (deleted)" kept off; no entry for `denied`
    denied: Set[int]  # processes whose descriptors may not be read


def mapped_files(pid: int, root: Path = proc.PROC) -> Set[str]:
    """Files that the process has in its memory map, deleted ones by the name they had."""
    found: Set[str] = set()
    for line in (proc.read_text(root / str(pid) / "maps") or "").splitlines():
        _, slash, path = line.partition("/")
        if slash:
            found.add("/" + path.replace(DELETED, ""))
    return found


def open_files(pid: int, root: Path = proc.PROC) -> Iterator[str]:
    """The targets of the process' file descriptors; nothing when they may not be read."""
    folder = root / str(pid) / "fd"
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            yield os.readlink(str(entry))
        except OSError:
            continue


def handles(table: Dict[int, proc.Process], root: Path = proc.PROC) -> Handles:
    """Read every descriptor of every process once. Who holds a device, a socket or a segment follows from it."""
    found: Dict[int, FrozenSet[str]] = {}
    denied: Set[int] = set()
    for process in table.values():
        ended = process.state in "ZX" and not proc.half_ended(process)
        if ended or proc.kernel_thread(process, table):  # has none; for others than root it would look like a refusal
            found[process.pid] = frozenset()
            continue
        pid, place = proc.window(process, root)
        targets = _descriptors(f"{place}/{pid}/fd")
        if targets is None:
            denied.add(process.pid)
        else:
            found[process.pid] = targets
    return Handles(found, denied)


def _descriptors(folder: str) -> Optional[FrozenSet[str]]:
    """None when they may not be read. Names below an open folder and no paths: a machine may have 100 000 descriptors."""
    found: Set[str] = set()
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return None
    except OSError:
        return frozenset()
    try:
        with os.scandir(handle) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            try:
                found.add(os.readlink(name, dir_fd=handle))
            except PermissionError:  # root without the right to look into processes may list the names only
                return None
            except OSError:
                continue
    except OSError:
        pass  # it ended while it was read
    finally:
        os.close(handle)
    return frozenset(target[: -len(DELETED)] if target.endswith(DELETED) else target for target in found)


def shared_memory(pid: int, root: Path = proc.PROC) -> Set[str]:
    """Names of the engine's segments in /dev/shm that the process has mapped or open.

    Only names that engines make themselves: models, homes and other people's data can lie in /dev/shm as well.
    """
    prefix = str(SHM) + "/"
    paths = mapped_files(pid, root) | {p.replace(DELETED, "") for p in open_files(pid, root)}
    names = {p[len(prefix) :] for p in paths if p.startswith(prefix)}
    return {name for name in names | _named_later(pid, root) if SEGMENT.fullmatch(name)}


def _named_later(pid: int, root: Path) -> Set[str]:
    """Files in /dev/shm that the process has mapped by an earlier name.

    glibc maps a new semaphore under a name of its own, links it to the wanted one and removes the first: the map shows a
    deleted file.
    """
    lines = (proc.read_text(root / str(pid) / "maps") or "").splitlines()
    inodes = {line.split(None, 5)[4] for line in lines if f" {SHM}/" in line and line.endswith(DELETED)}
    try:
        return {entry.name for entry in os.scandir(str(SHM)) if str(entry.inode()) in inodes} if inodes else set()
    except OSError:
        return set()
