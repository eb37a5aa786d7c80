"""Room on the file systems that somebody wants to write to. Reads only; standard library only."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

MOUNTS = Path("/proc/self/mountinfo")
OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo: numbers of the mount and of the one that it lies on, where it is, kind of file system."""

    number: str
    parent: str
    point: str
    fs: str


def look(wanted: Dict[str, List[str]], mounts_file: Path = MOUNTS) -> List[Dict[str, Any]]:
    """survey["disks"]: one entry for each path of `wanted` = {path: purposes}, in its order.

    `place` is the nearest folder that exists as far as this user can see, links followed; the figures are those of its file
    system. `free_mib` is what this user may still fill; `free_inodes` is None where the file system does not count files.
    `problem` is empty, or says why the figures are missing (None) or may be those of another file system than the path's.
    """
    mounts = read_mounts(mounts_file)
    return [_one(path, purposes, mounts) for path, purposes in wanted.items()]


def _one(path: str, purposes: Sequence[str], mounts: Sequence[Mount]) -> Dict[str, Any]:
    real = os.path.realpath(path)  # also of a link to a folder that is still to be made: the room is needed there
    place = nearest(real)
    found: Dict[str, Any] = {
        "path": path,
        "place": place,
        "purposes": list(purposes),
        "free_mib": None,
        "total_mib": None,
        "free_inodes": None,
        "read_only": None,
        "fs": file_system(place, mounts),
        "problem": "",
    }
    try:
        room = os.statvfs(place)
    except OSError as exc:
        found["problem"] = f"{place}: {exc.strerror}"
        return found
    found["free_mib"] = room.f_bavail * room.f_frsize // 2**20
    found["total_mib"] = room.f_blocks * room.f_frsize // 2**20
    found["free_inodes"] = room.f_favail if room.f_files else None
    found["read_only"] = bool(room.f_flag & os.ST_RDONLY)
    if real != place and not os.access(place, os.X_OK):
        found["problem"] = f"no right to look into {place}: {path} may be there, on another file system"
    return found


def nearest(path: str) -> str:
    """The folder itself, or the nearest one above it that exists as far as this user can see. `path` is absolute."""
    while not os.path.isdir(path):  # no error in a folder that may not be looked into
        path = str(Path(path).parent)
    return path


def read_mounts(mounts_file: Path = MOUNTS) -> List[Mount]:
    """What is mounted for this process; nothing when it cannot be read."""
    try:
        return parse_mounts(mounts_file.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return []


def parse_mounts(text: str) -> List[Mount]:
    """The mounts in the text of /proc/PID/mountinfo; lines of another form are passed by."""
    found = []
    for line in text.split("\n"):
        head, _, tail = line.partition(" - ")
        fields, kind = head.split(" "), tail.split(" ")
        if len(fields) > 4 and kind[0]:
            found.append(Mount(fields[0], fields[1], _plain(fields[4]), kind[0]))
    return found


def file_system(place: str, mounts: Sequence[Mount]) -> str:
    """Kind of the file system that `place` (absolute, without links) lies on; empty when the mounts do not say.

    The way of the kernel: from the mount at the top down, each time into the first one on the way to `place`. So a mount that was
    covered by a later one above it does not count, which the longest matching mount point alone would not show.
    """
    numbers = {m.number for m in mounts}
    left = [m for m in mounts if _covers(m.point, place)]
    step = [m for m in left if m.parent not in numbers or m.parent == m.number]
    fs = ""
    while step:
        entered = min(step, key=lambda m: len(m.point))
        fs = entered.fs
        left.remove(entered)
        step = [m for m in left if m.parent == entered.number]
    return fs


def _covers(point: str, place: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")


def _plain(escaped: str) -> str:
    """A mount point as it is named: the kernel writes blanks, tabs, line ends and backslashes as octal numbers."""
    return OCTAL.sub(lambda m: chr(int(m.group(1), 8)), escaped)
