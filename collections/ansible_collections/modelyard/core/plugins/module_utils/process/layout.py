"""Where things lie below the project's home on a host, and the small JSON files in it.

services/<name>/                     service.json  modelyard.pyz  start.sh ...  api_key  client.env  manifest.json  accepted.json
services/<name>/instance-<i>/        instance.json (what is to be started)  launch.sh  env  modelyard-<session>.service
services/<name>/instance-<i>/run/    state.json and starts.json (written by the keeper), the working directory of the engine
services/<name>/instance-<i>/logs/   one file per start, current.log points to the newest
services/<name>/load/                records of load tests, and run/ of the one that goes on
runtimes/<id>/   evidence/<time>-<service>-<reason>/   lock   load.lock
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

INSTANCE = "instance-"
STEP_S = 0.1
SERVICE_FILE, REQUEST_FILE, PROGRAM = "service.json", "instance.json", "modelyard.pyz"
#: Below run/: what a start asked for, only where a person had it start otherwise than instance.json says.
BY_HAND = "request.json"
#: Below run/: the leader that somebody asked to stop. An end of any other leader came by itself.
ASKED = "asked.json"
NEEDS_ADMIN = "needs_admin.json"
#: A time that no clock shows yet, and that all can print.
LATEST = 2**35
#: What must be in the files, and of which kind, so that they can be used.
STATE_SHAPE = {"log": str, "started_at": (int, float), "ended": (dict, type(None))}
REQUEST_SHAPE = {"digest": str, "host": str, "port": int, "launch": dict}
REQUEST_OPTIONAL = {
    "name": str,
    "supervisor": str,
    "session": str,
    "index": int,
    "devices": list,
    "logs": dict,
    "marker": dict,
    "words": list,
    "entry": bool,
}
LAUNCH_SHAPE = {"argv": list, "environment": dict}


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
    except (OSError, ValueError, RecursionError):
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
    usable = whole and is_request(found.get("request")) and has_shape(found, STATE_SHAPE)
    return found if usable and 0 <= found["started_at"] < LATEST else None


def has_shape(data: Any, shape: Mapping[str, Any], optional: Mapping[str, Any] = {}) -> bool:
    """Is it an object with these keys, each of its kind? People and full disks touch the files as well."""
    if not isinstance(data, dict) or not set(shape) <= set(data):
        return False
    return all(isinstance(data[key], kind) for key, kind in {**optional, **shape}.items() if key in data)


def is_request(data: Any) -> bool:
    """Does it say what is to be started, as instance.json does?"""
    if not has_shape(data, REQUEST_SHAPE, REQUEST_OPTIONAL) or not has_shape(data["launch"], {}, LAUNCH_SHAPE):
        return False
    return all(isinstance(device, dict) for device in data.get("devices") or [])


def service(home: str, name: str) -> Dict[str, Any]:
    """What service.json says; empty where a service was deployed by an earlier version, or never."""
    return read_json(service_dir(home, name) / SERVICE_FILE) or {}


def request(folder: Path) -> Optional[Dict[str, Any]]:
    """What the next start of this instance is to start: what a person asked for by hand, else what was deployed."""
    found = [read_json(path) for path in (folder / "run" / BY_HAND, folder / REQUEST_FILE)]
    return next((one for one in found if is_request(one)), None)


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


def was_asked_to_stop(folder: Path, known: Mapping[str, Any]) -> bool:
    """Did somebody order the end of the engine of this state?"""
    return bool((read_json(folder / "run" / ASKED) or {}).get("leader") == known["leader"])


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
def starting(folder: Path, limit_s: float = 0.0) -> Iterator[None]:
    """Held while an instance is looked at and started, so that no two do it at once. The kernel frees it.

    Who finds it held waits for `limit_s`: as a rule the instance runs then. Raises Busy.
    """
    (folder / "run").mkdir(exist_ok=True)
    limit = time.monotonic() + limit_s
    with (folder / "run" / "start.lock").open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as exc:
                if time.monotonic() >= limit:
                    raise Busy(f"{folder} is just being started by somebody else") from exc
            time.sleep(STEP_S)
        yield


def unreadable(home: str, service: str) -> List[int]:
    """Instances that were started, but whose state cannot be read."""
    return [i for i, folder in instances(home, service) if state(folder) is None and (folder / "run" / "state.json").exists()]
