"""Who has a device file open, found by its inode. Without the right to look at a process it is not seen."""

from __future__ import annotations

import os
from pathlib import Path


def find(files):
    """{name: path} -> {name: [pid, ...]}, ascending. A file that is not there has no holder."""
    wanted = {}
    for name, path in files.items():
        try:
            found = Path(path).stat()
        except OSError:
            continue
        wanted[(found.st_dev, found.st_ino)] = name
    held = {name: [] for name in files}
    if not wanted:
        return held
    with os.scandir("/proc") as entries:
        pids = sorted(int(entry.name) for entry in entries if entry.name.isdigit())
    pids.remove(os.getpid())  # the tool itself may have inherited an open file
    for pid in pids:
        for name in _open_files(pid, wanted):
            held[name].append(pid)
    return held


def _open_files(pid, wanted):
    files, is_answer = _look(f"/proc/{pid}/fd", wanted)
    if is_answer:
        return files
    # The first thread has ended (state Zl) or this is a thread of the kernel: others may still hold files.
    try:
        if os.geteuid() not in (0, Path(f"/proc/{pid}").stat().st_uid):
            return files
        with os.scandir(f"/proc/{pid}/task") as entries:
            threads = [entry.name for entry in entries]
    except OSError:
        return files
    for thread in threads if len(threads) > 1 else ():
        files |= _look(f"/proc/{pid}/task/{thread}/fd", wanted)[0]
    return files


def _look(folder, wanted):
    """Names of the wanted files that stand in a folder of descriptors, and whether it showed any descriptor."""
    found = set()
    is_answer = False
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_answer = True
                try:
                    stat = entry.stat()
                except OSError:
                    continue
                name = wanted.get((stat.st_dev, stat.st_ino))
                if name is not None:
                    found.add(name)
    except OSError:
        pass
    return found, is_answer


def name(pid) -> str:
    """The first word of a command line, as the vendor tools print it; empty when it cannot be looked up."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0])
    except OSError:
        return ""


def start(pid) -> str:
    """When a process began, so that a pid used again is another process; empty when it is gone or a zombie without threads."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]
