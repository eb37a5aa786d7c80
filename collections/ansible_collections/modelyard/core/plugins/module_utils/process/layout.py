"""Where things lie below the project's home on a host, and the small JSON files in it.

services/<name>/                     keeper.py  api_key  manifest.json  accepted.json
services/<name>/instance-<i>/        launch.sh  env
services/<name>/instance-<i>/run/    state.json (written by the keeper), the working directory of the engine
services/<name>/instance-<i>/logs/   one file per start, current.log points to the newest
runtimes/<id>/   evidence/<time>-<service>-<reason>/   lock
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

INSTANCE = "instance-"


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


def write_json(path: Path, data: Dict[str, Any], mode: int = 0o644) -> None:
    """Write whole or not at all: a reader never sees half a file, a full disk leaves the old one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        fresh.chmod(mode)
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


def unreadable(home: str, service: str) -> List[int]:
    """Instances that were started, but whose state cannot be read."""
    return [i for i, folder in instances(home, service) if state(folder) is None and (folder / "run" / "state.json").exists()]
