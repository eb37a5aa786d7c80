"""Where things lie below the project's home on a host, and the small JSON files in it.

services/<name>/                     service.json  modelyard.pyz  start.sh ...  api_key  client.env  manifest.json  accepted.json
services/<name>/instance-<i>/        instance.json (what is to be started)  launch.sh  env  modelyard-<session>.service
services/<name>/instance-<i>/run/    state.json and starts.json (written by the keeper), the working directory of the engine
services/<name>/instance-<i>/logs/   one file per start, current.log points to the newest
runtimes/<id>/   evidence/<time>-<service>-<reason>/   lock
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

INSTANCE = "instance-"
SERVICE_FILE, REQUEST_FILE, PROGRAM = "service.json", "instance.json", "modelyard.pyz"
#: Below run/: what a start asked for, only where a person had it start otherwise than instance.json says.
BY_HAND = "request.json"
#: Below run/: the leader that somebody asked to stop. An end of any other leader came by itself.
ASKED = "asked.json"
NEEDS_ADMIN = "needs_admin.json"


def service_dir(home: str, service: str) -> Path:
    """The folder of one service."""
    return Path(home) / "services" / service


def instance_dir(home: str, service: str, index: int) -> Path:
    """The folder of one instance of a service."""
    return service_dir(home, service) / f"{INSTANCE}{index}"


def read_json(path: Path) -> Optional[Dict[str, Any]]:
    """The object in a JSON file; None when there is no readable, whole one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def give(path: Path) -> None:
    """As root: whoever owns the folder that it lies in gets it, and can go on with it after a stop by root."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            owner = path.parent.stat()
            os.chown(str(path), owner.st_uid, owner.st_gid, follow_symlinks=False)


def write_json(path: Path, data: Dict[str, Any], mode: int = 0o644) -> None:
    """Write whole or not at all: a reader never sees half a file, a full disk leaves the old one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        fresh.chmod(mode)
        give(fresh)
        fresh.replace(path)
    finally:
        if fresh.exists():
            fresh.unlink()


def instances(home: str, service: str) -> List[Tuple[int, Path]]:
    """Instances that have a folder, in order: (index, folder)."""
    found = []
    for path in service_dir(home, service).glob(INSTANCE + "*"):
        tail = path.name[len(INSTANCE) :]
        if tail.isdigit():
            found.append((int(tail), path))
    return sorted(found)


def services(home: str) -> List[str]:
    """Names of the services that have a folder; none where this user may not look."""
    try:
        return sorted(path.name for path in (Path(home) / "services").iterdir() if path.is_dir())
    except OSError:
        return []


def state(folder: Path) -> Optional[Dict[str, Any]]:
    """What the keeper wrote about the newest start of an instance.

    None when it was never started, or when the file is not whole: then the process table alone tells what runs.
    """
    found = read_json(folder / "run" / "state.json") or {}
    people = [found.get("keeper"), found.get("leader")]
    whole = all(isinstance(p, dict) and isinstance(p.get("pid"), int) and isinstance(p.get("start"), int) for p in people)
    request = found.get("request")
    if not whole or not isinstance(request, dict) or not {"digest", "host", "port", "launch"} <= set(request):
        return None
    return found if {"log", "started_at", "ended"} <= set(found) else None


def service(home: str, name: str) -> Dict[str, Any]:
    """What service.json says; empty where a service was deployed by an earlier version, or never."""
    return read_json(service_dir(home, name) / SERVICE_FILE) or {}


def request(folder: Path) -> Optional[Dict[str, Any]]:
    """What the next start of this instance is to start: what a person asked for by hand, else what was deployed."""
    return read_json(folder / "run" / BY_HAND) or read_json(folder / REQUEST_FILE)


def ask_for(folder: Path, wanted: Dict[str, Any]) -> None:
    """Write down what the next start is to start; what was deployed needs no second file."""
    (folder / "run").mkdir(exist_ok=True)
    if wanted == read_json(folder / REQUEST_FILE):
        with contextlib.suppress(FileNotFoundError):
            (folder / "run" / BY_HAND).unlink()
    else:
        write_json(folder / "run" / BY_HAND, wanted)


def asked_to_stop(folder: Path) -> None:
    """Write down that the engine which runs now is being stopped by order, so that its end counts as no failure.

    A disk that is full, or files that somebody took away, are no reason not to stop it.
    """
    known = state(folder)
    if known:
        with contextlib.suppress(OSError):
            write_json(folder / "run" / ASKED, {"leader": known["leader"]})


def of_this_boot(known: Dict[str, Any]) -> bool:
    """Do the pids and start times of a state mean anything here and now? They are counted from the boot of that very machine."""
    return known.get("boot") in (None, proc.boot_id())


def leader_alive(known: Dict[str, Any]) -> bool:
    """Does the process that was started (vLLM's API server) still live?"""
    return of_this_boot(known) and proc.alive(int(known["leader"]["pid"]), int(known["leader"]["start"]))


def keeper_alive(known: Dict[str, Any]) -> bool:
    """Does its keeper still live? It does as long as anything of the engine is left."""
    return of_this_boot(known) and proc.alive(int(known["keeper"]["pid"]), int(known["keeper"]["start"]))


class Busy(Exception):
    """Somebody else is just starting this instance."""


@contextlib.contextmanager
def starting(folder: Path) -> Iterator[None]:
    """Held while an instance is looked at and started, so that no two do it at once; raises Busy. The kernel frees it."""
    (folder / "run").mkdir(exist_ok=True)
    with (folder / "run" / "start.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise Busy(f"{folder} is just being started by somebody else") from exc
        yield


def unreadable(home: str, service: str) -> List[int]:
    """Instances that were started, but whose state cannot be read."""
    return [i for i, folder in instances(home, service) if state(folder) is None and (folder / "run" / "state.json").exists()]
