"""Who has the package manager locked? The kernel knows it of apt's locks, dnf writes it down."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

#: struct flock: type, whence, start, length, pid.
FLOCK = "hhqqi"
STEP_S = 1.0


def of(sysroot: str, locks: Sequence[str], pid_files: Sequence[str]) -> str:
    """`pid 4711 of user root (apt-get upgrade)`; empty where it is free. Needs root for apt's locks."""
    for path in locks:
        pid = _locker(below(sysroot, path))
        if pid is not None:
            return _words(pid, path)
    for path in pid_files:
        try:
            pid = int(Path(below(sysroot, path)).read_text(encoding="utf-8").split()[0])
        except (OSError, ValueError, IndexError):
            continue
        if pid != os.getpid() and proc.read(pid):
            return _words(pid, path)
    return ""


def wait(sysroot: str, locks: Sequence[str], pid_files: Sequence[str], limit_s: float) -> str:
    """Wait until it is free, or the limit; who holds it then."""
    end = time.monotonic() + limit_s
    while True:
        holder = of(sysroot, locks, pid_files)
        if not holder or time.monotonic() >= end:
            return holder
        time.sleep(min(STEP_S, max(0.0, end - time.monotonic())))


def _locker(path: str) -> Optional[int]:
    """The pid that holds the lock of a file; 0 where it is in another container; None where nobody does."""
    try:
        with Path(path).open("rb") as stream:
            ask = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(stream, fcntl.F_GETLK, ask)[: struct.calcsize(FLOCK)])
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else max(0, int(pid))


def _words(pid: int, path: str) -> str:
    seen = proc.read(pid) if pid else None
    if seen is None:
        return f"a process that is not to be seen here holds {path}"
    command = (proc.command(pid) or seen.comm)[:120]
    return f"pid {pid} of user {proc.user_name(seen.uid)} ({command}) holds {path}"
