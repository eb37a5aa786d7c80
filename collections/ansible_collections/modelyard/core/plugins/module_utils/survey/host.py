"""One look at a host, put together from the other files of this folder. Reads only; standard library only.

The keys of the result are described where they are made: cards.py, processes.py, shared_memory.py, sessions.py, services.py,
supervisors.py, runtimes.py, libraries.py, models.py, shell_environment.py, stack.py, limits.py, machine.py, disks.py,
kernel_log.py, and where it was asked for deployed.py.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import (
    cards,
    deployed,
    device_files,
    disks,
    dtk,
    kernel_log,
    libraries,
    limits,
    machine,
    models,
    processes,
    runtimes,
    services,
    shared_memory,
    shell_environment,
    stack,
    supervisors,
    wheelhouse,
)

#: Seconds for reading the kernel's log, and for a proxy to answer.
LOG_LIMIT_S = 3.0
PROXY_LIMIT_S = 1.0
#: Seconds for which a process that has ended must stay to be worth a word.
ENDED_S = 0.3
#: Seconds between the two looks that call a process stuck.
STUCK_S = 1.0
#: Where programs of the system lie; a login without root often lacks the folders for its servers.
PROGRAM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Request(NamedTuple):
    """What to look for besides what is found in `home`; a service is looked for by its name even when its folder was removed."""

    home: str
    runtimes: Sequence[str] = ()
    models: Sequence[str] = ()
    ports: Sequence[int] = ()
    python: str = ""
    services: Sequence[str] = ()
    runtimes_dir: str = ""
    backends: Mapping[str, Mapping[str, Any]] = {}
    sysroot: str = "/"
    deployed: bool = False  # also what deploys have left in the home: hashes of files, versions of what is installed
    supervisors: Mapping[str, Sequence[str]] = {}
    programs: Sequence[str] = ()
    wheelhouse: str = ""
    vendor_wheels: str = ""
    libraries: Sequence[str] = ()
    library_folders: Sequence[str] = ()


def about(shm: Mapping[str, Any]) -> Dict[str, Any]:
    """Name, user, kernel, cores, memory (MiB) and shared memory (MiB) of this host."""
    memory = machine.memory()
    return {
        "name": socket.gethostname(),
        "user": proc.user_name(os.geteuid()),
        "uid": os.geteuid(),
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "machine": platform.machine(),
        "boot_id": proc.boot_id(),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory_total_mib": memory["total_mib"] or 0,
        "memory_available_mib": memory["available_mib"] or 0,
        "shm_free_mib": shm["free_mib"],
    }


def home_problem(home: str) -> str:
    """Why this user cannot work in `home`; empty when it can, or could make it."""
    place = Path(home)
    while not os.path.exists(str(place)):  # unlike Path.exists, no error in a folder that may not be looked into
        place = place.parent
    if not os.path.isdir(str(place)):
        return f"{place} is not a folder"
    if not os.access(str(place), os.W_OK | os.X_OK):
        return f"no right to write in {place} (owner {proc.user_name(place.stat().st_uid)})"
    return ""


def look(request: Request) -> Dict[str, Any]:
    """The whole survey."""
    table = proc.processes()
    began = time.monotonic()
    handles = opened.handles(table)
    names = sorted({*layout.services(request.home), *request.services})
    found, accelerators, raw = cards.look(
        request.backends, request.sysroot, lambda paths: processes.holders(paths, handles, request.sysroot)
    )
    files = [file["path"] for seen in accelerators.values() for file in seen["shared_files"]]
    files += [file["path"] for kind in found.values() for card in kind for file in card["device_files"]]
    on_devices = processes.device_holders(handles, files, request.sysroot) if accelerators else []
    hung = processes.stuck(table, watched=on_devices)
    if hung:  # what only waits for a disk has moved on a second later
        hung = processes.stuck({pid: table[pid] for pid in hung}, lambda: time.sleep(STUCK_S), hung)
    # Looking for signs of ours in a process that holds its memory's lock could hang with it.
    readable = {pid: p for pid, p in table.items() if pid not in hung or not processes.memory_locked(p)}
    ours = {name: services.service(request.home, name, readable, request.runtimes_dir) for name in names}
    shm = shared_memory.segments(handles, table, hung)
    seats = _sessions(table, handles)
    listening = services.listeners(handles, readable)
    ports = services.ports(request.ports, ours, listening)
    ended = [pid for pid in processes.zombies(table) if _remains(table[pid], began)]
    again = {pid: found for pid in ended for found in [proc.read(pid)] if found}
    dead = machine.unreaped(table, again, proc.uptime_s(), time.monotonic() - began)
    shell = shell_environment.look(os.environ, str(Path("~").expanduser()), limit_s=PROXY_LIMIT_S)
    log = kernel_log.read(LOG_LIMIT_S, bool(accelerators), device_files.below(request.sysroot, kernel_log.KMSG))
    about_host = about(shm)
    rooms = disks.look(_places(request))
    about_stack = stack.look(request.backends, accelerators, request.sysroot, {process.comm for process in table.values()})
    runtimes_disk = next(room for room in rooms if "runtimes" in room["purposes"])
    return {
        "host": about_host,
        "python": runtimes.python(request.python),
        "pythons": runtimes.pythons(os.environ.get("PATH", "")),
        "home_problem": home_problem(request.home),
        "home_shared_with": services.shared_with(request.home),
        "cards": {"cpu": [{"index": core} for core in about_host["cores"]], **found},
        "accelerators": accelerators,
        "processes": _described(
            processes.interesting(
                table,
                on_devices,
                (p["pid"] for kind in found.values() for card in kind for p in card["processes"]),
                (p["pid"] for seen in accelerators.values() for p in seen["unplaced_processes"]),
                ended,
                hung,
                (pid for seen in ours.values() for pid in seen["pids"]),
                (suspect["pid"] for seen in ours.values() for suspect in seen["suspects"]),
                (pid for segment in shm["segments"] for pid in segment["holders"] or ()),
                (port["pid"] for port in ports.values()),
                (seat["pid"] for seat in seats),
            ),
            table,
            handles,
            files,
            request.sysroot,
            set(hung),
        ),
        "zombies": ended,
        "stuck": hung,
        "shm": shm,
        "sessions": seats,
        "units": _units(names if request.deployed else request.services),
        "supervisors": supervisors.look(request.home, request.supervisors),
        "programs": {name: shutil.which(name, path=PROGRAM_PATH) or "" for name in request.programs},
        "listeners": listening,
        "environment": {key: shell[key] for key in ("proxies", "visibility")},
        "stack": about_stack,
        "limits": limits.look(),
        "disks": rooms,
        "disk_path": runtimes_disk["place"],
        "disk_free_mib": runtimes_disk["free_mib"],
        "numa": machine.numa(),
        "platform": machine.platform(zombies=dead),
        "kernel_log": log,
        "not_readable": [
            *processes.not_readable(handles, table),
            *([f"the kernel's log ({log['why']})"] if accelerators and not log["readable"] else []),
            *(f"the shell's settings in {path}" for path in shell["not_readable"]),
        ],
        "raw": raw,
        "baseline": layout.read_json(Path(request.home) / "cards.json") or {},
        "lock": layout.read_json(Path(request.home) / "lock"),
        "runtimes": _runtimes(_filled(request), ours, (about_stack.get("dtk") or {}).get("environment", {})),
        "wheelhouse": wheelhouse.look(request.wheelhouse),
        "vendor_wheels": wheelhouse.loose(request.vendor_wheels),
        "libraries": libraries.look(request.libraries, request.library_folders),
        "models": {path: models.model_listing(path) for path in request.models},
        "services": ours,
        "ports": ports,
        "digest": services.state_digest(request.home),
        **({"deployed": deployed.look(request.home)} if request.deployed else {}),
    }


def _remains(zombie: proc.Process, since: float) -> bool:
    """Is it still there after a while? Most have a parent that reads their end at once."""
    time.sleep(max(0.0, since + ENDED_S - time.monotonic()))
    now = proc.read(zombie.pid)
    return now is not None and now.start == zombie.start


def _sessions(table: Dict[int, proc.Process], handles: opened.Handles) -> List[Dict[str, Any]]:
    if not any(process.comm.lower().startswith(("screen", "tmux")) for process in table.values()):
        return []
    from ansible_collections.modelyard.core.plugins.module_utils.survey import sessions  # noqa: PLC0415  (only where needed)

    return sessions.sessions(table, handles)


def _units(names: Sequence[str]) -> List[Dict[str, str]]:
    if not names:
        return []
    from ansible_collections.modelyard.core.plugins.module_utils.survey import sessions  # noqa: PLC0415  (only where needed)

    return sessions.units(names)


def _described(
    pids: Sequence[int],
    table: Dict[int, proc.Process],
    handles: opened.Handles,
    files: Sequence[str],
    sysroot: str,
    hung: Set[int],
) -> Dict[str, Any]:
    return {str(pid): processes.describe(table[pid], handles, set(files), sysroot, hung) for pid in pids}


def _places(request: Request) -> Dict[str, List[str]]:
    """Folders whose disks matter, with what they are for."""
    wanted: Dict[str, List[str]] = {}
    runtimes_dir = str(Path(request.runtimes[0]).parent) if request.runtimes else request.runtimes_dir
    for path, purpose in ((request.home, "home"), (runtimes_dir or request.home, "runtimes"), ("/tmp", "temporary files")):
        wanted.setdefault(path, []).append(purpose)
    return wanted


def _filled(request: Request) -> List[str]:
    """Environments that are named by the host's DTK, with its release."""
    named = any(dtk.RELEASE in path for path in request.runtimes)
    place = device_files.below(request.sysroot, f"{dtk.FOLDER}/{dtk.POINTER}")
    release = dtk.version(place) if named and os.path.exists(place) else ""
    return [dtk.filled(path, release) for path in request.runtimes]


def _runtimes(paths: Sequence[str], ours: Mapping[str, Mapping[str, Any]], toolkit: Mapping[str, str]) -> Dict[str, Any]:
    """A runtime that a service runs from works: it is not imported again, which would take seconds from the engine.

    `toolkit`: what the env.sh of Hygon's DTK sets; without it the vendor's torch does not find its libraries.
    """
    in_use = {i["launch"]["argv"][0] for seen in ours.values() for i in seen["instances"] if i["alive"]}
    return {path: runtimes.runtime(path, full=f"{path}/bin/vllm" not in in_use, toolkit=toolkit) for path in paths}
