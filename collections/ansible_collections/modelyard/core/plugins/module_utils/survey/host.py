"""One look at a host: machine, home, runtimes, models, services, ports. Reads only; standard library only."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, proc, stop, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.survey import http

QUICK_CHECK = (
    "import importlib.metadata as m, importlib.util as u;"
    "assert u.find_spec('vllm'), 'no package vllm';assert u.find_spec('torch'), 'no package torch';print(m.version('vllm'))"
)
FULL_CHECK = "import torch, vllm, vllm.entrypoints.cli.main;from transformers import AutoTokenizer;print(vllm.__version__)"
CHECK_LIMIT_S = 120
COMPLETE = "modelyard.json"  # written last into a runtime: without it the runtime is half-made


def machine() -> Dict[str, Any]:
    """Name, user, kernel, cores, memory (MiB) and shared memory (MiB) of this host."""
    memory = {}
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        key, _, rest = line.partition(":")
        memory[key] = int(rest.split()[0]) // 1024
    shm = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    return {
        "name": socket.gethostname(),
        "user": proc.user_name(os.geteuid()),
        "uid": os.geteuid(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory_total_mib": memory.get("MemTotal", 0),
        "memory_available_mib": memory.get("MemAvailable", 0),
        "shm_free_mib": shm.f_bavail * shm.f_frsize // 2**20 if shm else 0,
    }


def python(path: str) -> Dict[str, str]:
    """The interpreter that runtimes are made with: path and version; the running one when `path` is empty."""
    if not path:
        return {
            "path": sys.executable,
            "version": platform.python_version(),
            "short": ".".join(platform.python_version_tuple()[:2]),
        }
    try:
        done = subprocess.run(
            [path, "-c", "import platform;print(platform.python_version())"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        version = done.stdout.strip()
    except (OSError, subprocess.SubprocessError) as exc:
        return {"path": path, "version": f"unknown ({exc})", "short": ""}
    return {"path": path, "version": version, "short": ".".join(version.split(".")[:2])}


def existing_parent(path: str) -> Path:
    """The folder itself, or the nearest one above it that exists as far as this user can see."""
    place = Path(path)
    while not os.path.exists(str(place)):  # unlike Path.exists, no error in a folder that may not be looked into
        place = place.parent
    return place


def home_problem(home: str) -> str:
    """Why this user cannot work in `home`; empty when it can, or could make it."""
    place = existing_parent(home)
    if not os.path.isdir(str(place)):
        return f"{place} is not a folder"
    if not os.access(str(place), os.W_OK | os.X_OK):
        return f"no right to write in {place} (owner {proc.user_name(place.stat().st_uid)})"
    return ""


def model_listing(path: str) -> Dict[str, Any]:
    """Files of a model folder by relative name and size, shards that its index names, and config.json.

    `problem` says what this user may not read; the rest then holds what it may.
    """
    folder = Path(path)
    listing: Dict[str, Any] = {"path": path, "exists": False, "problem": "", "files": {}, "shards": [], "config": {}}
    try:
        listing["exists"] = folder.is_dir()
        for file in sorted(folder.rglob("*")) if listing["exists"] else ():
            inside = file.relative_to(folder)
            if file.is_file() and inside.parts[0] not in (".cache", ".git"):
                listing["files"][str(inside)] = file.stat().st_size
                os.close(os.open(str(file), os.O_RDONLY))
    except OSError as exc:
        listing["problem"] = str(exc)
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        index = layout.read_json(folder / name)
        if index:
            listing["shards"] = sorted(set(index.get("weight_map", {}).values()))
            break
    listing["config"] = layout.read_json(folder / "config.json") or {}
    return listing


def runtime(path: str, full: bool) -> Dict[str, Any]:
    """Is there a whole runtime, and can it import vllm? `full` imports it (seconds), else its packages are looked up."""
    folder = Path(path)
    found: Dict[str, Any] = {"exists": os.path.isdir(path), "complete": False, "error": "", "vllm": ""}
    if not found["exists"]:
        return found
    found["complete"] = layout.read_json(folder / COMPLETE) is not None
    program = folder / "bin" / "python"
    if not os.access(str(program), os.X_OK):
        found["error"] = "there is no Python environment in this folder that this user may run (bin/python)"
        return found
    try:
        done = subprocess.run(
            [str(program), "-c", FULL_CHECK if full else QUICK_CHECK],
            capture_output=True,
            text=True,
            timeout=CHECK_LIMIT_S,
            check=False,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": "/nonexistent",
                "VLLM_NO_USAGE_STATS": "1",
                "VLLM_LOGGING_LEVEL": "ERROR",
            },
        )
    except (OSError, subprocess.SubprocessError) as exc:
        found["error"] = f"{program}: {exc}"
        return found
    if done.returncode == 0:
        found["vllm"] = done.stdout.strip().splitlines()[-1]
    else:
        found["error"] = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return found


def service(home: str, name: str, table: Dict[int, proc.Process], runtimes_dir: str = "") -> Dict[str, Any]:
    """State of one service from its folder and the process table, never from memory of what was done."""
    claim = stop.claim(home, name, runtimes_dir)
    found = identity.census(claim, table)
    keepers = {recorded.pid for recorded in claim.sessions}
    instances: List[Dict[str, Any]] = []
    sessions_alive = set()
    for index, folder in layout.instances(home, name):
        state = layout.state(folder)
        if state is None:
            continue
        request = state["request"]
        alive = supervisor.leader_alive(state)
        if alive:
            sessions_alive.add(int(state["keeper"]["pid"]))
        instances.append(
            {
                "index": index,
                "alive": alive,
                "ready": alive and http.status((request["host"], request["port"]), "/health") == 200,
                "port": request["port"],
                "leader": state["leader"],
                "started_at": state["started_at"],
                "ended": state["ended"],
                "log": state["log"],
                "digest": request["digest"],
                "launch": request["launch"],
            }
        )
    leftovers = [
        identity.describe(f)
        for f in found
        if f.verdict == identity.OURS
        and f.process.state not in "ZX"
        and f.process.pid not in keepers
        and f.process.sid not in sessions_alive
    ]
    accepted = layout.read_json(layout.service_dir(home, name) / "accepted.json") or {}
    return {
        "instances": instances,
        "leftovers": leftovers,
        "suspects": [identity.describe(f) for f in found if f.verdict == identity.SUSPECT and f.process.state not in "ZX"],
        "accepted": any(i["alive"] for i in instances)
        and accepted.get("instances") == accepted_for(instances)
        and all(i["ready"] for i in instances if i["alive"]),
        "known": bool(instances or found or os.path.isdir(str(layout.service_dir(home, name)))),
        "pids": [f.process.pid for f in found if f.verdict == identity.OURS],
    }


def accepted_for(instances: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """What an acceptance is bound to: these very processes with these very parameters."""
    return [{"index": i["index"], "leader": i["leader"], "digest": i["digest"]} for i in instances if i["alive"]]


def ports(wanted: Sequence[int], services: Dict[str, Dict[str, Any]], table: Dict[int, proc.Process]) -> Dict[str, Any]:
    """Those of the wanted ports that somebody listens on: {port: {service, pid, user, command}}."""
    found: Dict[str, Any] = {}
    for listener in proc.listeners():
        if listener.port not in wanted or str(listener.port) in found:
            continue
        pid = proc.socket_owner(listener.inode, table)
        owner = next((name for name, s in services.items() if pid is not None and pid in s["pids"]), "")
        found[str(listener.port)] = {
            "service": owner,
            "pid": pid,
            "user": proc.user_name(listener.uid),
            "command": proc.command(pid) if pid else "",
        }
    return found


def state_digest(home: str) -> str:
    """Changes whenever a deploy or teardown has changed something in `home`: the keepers' states of all services."""
    states = {}
    for name in layout.services(home):
        for index, folder in layout.instances(home, name):
            state = layout.state(folder) or {}
            states[f"{name}/{index}"] = [state.get("keeper"), state.get("ended")]
    return json.dumps(states, sort_keys=True)


def shared_with(home: str) -> str:
    """Name of another machine that runs services from this very home (a home on a network file system); empty for none."""
    for name in layout.services(home):
        for _, folder in layout.instances(home, name):
            state = layout.state(folder) or {}
            if state.get("machine") not in (None, socket.gethostname()) and not state["ended"]:
                return str(state["machine"])
    return ""


def look(
    home: str,
    runtimes: Sequence[str],
    models: Sequence[str],
    wanted_ports: Sequence[int],
    python_path: str,
    names: Sequence[str] = (),
    runtimes_dir: str = "",
) -> Dict[str, Any]:
    """The whole survey.

    `runtimes`, `models`, `names` (of services): what to look for besides what is found in `home`; a service is looked for by its
    name even when its folder was removed.
    """
    table = proc.processes()
    names_here = sorted({*layout.services(home), *names})
    services = {name: service(home, name, table, runtimes_dir) for name in names_here}
    in_use = {i["launch"]["argv"][0] for s in services.values() for i in s["instances"] if i["alive"]}
    host = machine()
    disk_path = existing_parent(str(Path(runtimes[0]).parent) if runtimes else home)
    return {
        "host": host,
        "python": python(python_path),
        "home_problem": home_problem(home),
        "home_shared_with": shared_with(home),
        "disk_path": str(disk_path),
        "disk_free_mib": shutil.disk_usage(str(disk_path)).free // 2**20,
        "card_kind": "CPU core",
        "cards": [{"index": core} for core in host["cores"]],
        "lock": layout.read_json(Path(home) / "lock"),
        "runtimes": {path: runtime(path, full=f"{path}/bin/vllm" not in in_use) for path in runtimes},
        "models": {path: model_listing(path) for path in models},
        "services": services,
        "ports": ports(wanted_ports, services, table),
        "digest": state_digest(home),
    }
