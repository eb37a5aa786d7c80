"""One run at a time for each state folder.

The kernel holds the lock (flock on the folder itself, which needs no room on a full disk) and frees it when its owner has
ended, however that was. The file `lock.json` says who it is: pid and start time. An owner that was killed can have left its
ansible-playbook behind, which still asks hosts; so that one is written down as well, and counts while it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from modelyard import files

FILE = "lock.json"


class Held(Exception):
    """Another run is under way; the text says which, and since when."""


class Unusable(Exception):
    """The folder cannot be used for a lock; the text says why."""


def started(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, which with its number names it for good; None for one that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    rest = stat.rpartition(")")[2].split()
    return None if rest[0] in "ZX" else int(rest[19])


class Lock:
    """Held; `note` adds to what lock.json says."""

    def __init__(self, folder: Path, trigger: str) -> None:
        self.path = folder / FILE
        self.holder: dict[str, Any] = {
            "pid": os.getpid(),
            "start": started(os.getpid()),
            "by": f"{_user()} on {socket.gethostname()}",
            "trigger": trigger,
            "since": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        }
        self.note()

    def note(self, **more: Any) -> None:
        """On a full disk the lock holds as well; then only its owner is not named."""
        self.holder.update(more)
        with contextlib.suppress(OSError):
            files.write_json(self.path, self.holder)


@contextlib.contextmanager
def taken(folder: Path, trigger: str) -> Iterator[Lock]:
    """Holds the lock of a state folder meanwhile. Raises Held and Unusable."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise Unusable(f"{folder} cannot be opened: {exc.strerror}") from exc
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(_words(files.read_json(folder / FILE) or {}, folder)) from None
        except OSError as exc:
            raise Unusable(f"{folder} lies on a file system without locks: {exc.strerror}") from exc
        before = files.read_json(folder / FILE) or {}
        if _playing(before):
            left = f"It was killed, and its ansible-playbook (pid {before['ansible']['pid']}) lives on"
            raise Held(f"{_words(before, folder)}. {left}")
        yield Lock(folder, trigger)
        with contextlib.suppress(OSError):
            (folder / FILE).unlink()
    finally:
        os.close(handle)


def _playing(holder: Mapping[str, Any]) -> bool:
    """Does the ansible-playbook live that a dead owner has left behind?"""
    left = holder.get("ansible")
    if not isinstance(left, dict) or not isinstance(left.get("pid"), int) or left.get("start") is None:
        return False
    return bool(started(left["pid"]) == left["start"])


def _words(holder: Mapping[str, Any], folder: Path) -> str:
    who = f"pid {holder.get('pid', '?')} of {holder.get('by', 'an unknown user')}, since {holder.get('since', 'an unknown time')}"
    return f"another run is under way in {folder}: {who}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
