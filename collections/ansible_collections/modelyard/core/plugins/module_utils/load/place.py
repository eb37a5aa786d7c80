"""Where load tests lie on a host: services/<name>/load/STAMP.json, the run below load/run/, and the lock of the home."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout

#: In the home: two load tests of one host would measure each other, whatever services they are of.
LOCK = "load.lock"
PROGRESS, WATCH, STOP, LOG = "progress.json", "watch", "stop", "runner.log"
#: A record is some 10 KiB; below this much room nothing is begun.
FREE_BYTES = 32 * 2**20


class Busy(Exception):
    """Another load test runs; the text says whose."""


def folder(home: str, service: str) -> Path:
    """The load tests of a service."""
    return layout.service_dir(home, service) / "load"


def run_folder(home: str, service: str) -> Path:
    """Files of the run that is going on, or of the last one."""
    return folder(home, service) / "run"


def take(home: str, holder: Mapping[str, Any]) -> int:
    """Take the lock; a descriptor. The kernel frees it when the last process that has it ends. Raises Busy."""
    path = Path(home) / LOCK
    descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        said = layout.read_json(path) or {}
        who = f" by {said['by']}" if said.get("by") else ""
        since = f", since {said['since']}" if said.get("since") else ""
        raise Busy(f"a load test of {said.get('service', 'a service of this home')} runs already{who}{since}") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, (json.dumps(dict(holder)) + "\n").encode(), 0)
    layout.give(path)
    return descriptor


def is_held(home: str) -> bool:
    """Does a load test of this home run now?"""
    try:
        descriptor = os.open(str(Path(home) / LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def free_bytes(home: str) -> int:
    """Room that this user may still fill."""
    found = os.statvfs(home)
    return found.f_bavail * found.f_frsize


def prepare(home: str, service: str, id: str) -> Path:
    """An empty folder for the run of this id."""
    base = folder(home, service)
    base.mkdir(exist_ok=True)
    layout.give(base)
    run = run_folder(home, service)
    run.mkdir(exist_ok=True)
    layout.give(run)
    for path in run.iterdir():
        if not is_asked_to_end(run, id) or path.name != STOP:
            with contextlib.suppress(OSError):
                path.unlink()
    return run


def ask_to_end(run: Path, id: str) -> None:
    """Ask the test of this id to end, also one that has not begun yet."""
    with contextlib.suppress(OSError):
        (run / STOP).write_text(id, encoding="ascii")


def is_asked_to_end(run: Path, id: str) -> bool:
    """Was the test of this id asked to end?"""
    try:
        return (run / STOP).read_text(encoding="ascii") == id
    except (OSError, UnicodeDecodeError):
        return False


def stamp(base: Path) -> str:
    """A name for a record that is not taken."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = [now, *(f"{now}-{number}" for number in range(1, 1000))]
    return next(name for name in names if not (base / f"{name}.json").exists())


def records(base: Path) -> List[Dict[str, Any]]:
    """What is kept, oldest first; files that hold no object are passed over."""
    found = [layout.read_json(path) for path in sorted(base.glob("*.json"))]
    return [record for record in found if record is not None]


def keep(base: Path, record: Dict[str, Any], most: int) -> None:
    """Write a record and take away the oldest ones; the last one that passed stays, because the next is compared with it."""
    layout.write_json(base / f"{record['id']}.json", record)
    kept = sorted(base.glob("*.json"))
    passed = [path for path in kept if (layout.read_json(path) or {}).get("passed") is True]
    for path in kept[: -max(1, most)]:
        if path not in passed[-1:]:
            with contextlib.suppress(OSError):
                path.unlink()


def progress(run: Path) -> Optional[Dict[str, Any]]:
    """What the runner wrote last."""
    return layout.read_json(run / PROGRESS)
