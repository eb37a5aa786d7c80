"""Processes that an admin has to know about: who holds a card, who has half ended, who hangs in the kernel.

Standard library only; runs on managed hosts and reads only. Every function starts from one table of processes
(`proc.processes`) and one pass over their descriptors (`opened.handles`).
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterable, List, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import cgroup, identity, opened, proc

#: Device files of cards by name alone, for when no card could be listed.
DEVICE = re.compile(r"/dev/(?:nvidia[^/]*|nvidia-caps/[^/]+|kfd|mkfd|dri/renderD\d+|davinci[^/]*)")
#: Functions and modules of the kernel that belong to a card's driver.
DRIVER = re.compile(r"^_?nv_|^_nv\d+rm$|^uvm_|^os_acquire|nvidia|amdgpu|kfd|hydcu|hycu")
#: Functions whose caller may hold the lock of the process' address space. Reading command line, environment or map waits for it,
#: on older kernels for ever and beyond any signal.
LOCKS_MEMORY = re.compile(r"mmap|munmap|mprotect|mremap|madvise|brk|fault|user_pages|rwsem|exit_mm|copy_process|execve|uvm_")
LOOK_S = 0.05
THREADS_SHOWN = 16
THREADS_READ = 1024
ENDED = "ZX"


class _Hung(NamedTuple):
    """A thread that looked stuck once; together with the start time it is the same one at the second look."""

    pid: int
    start: int
    tid: int


def _root(sysroot: str) -> str:
    return os.path.realpath(sysroot).rstrip("/")


def _devices(targets: Iterable[str], card_paths: Collection[str], root: str) -> List[str]:
    """Those targets of descriptors that are device files of cards, without the sysroot."""
    found = set()
    for target in targets:
        path = target[len(root) :]
        if target.startswith(f"{root}/dev/") and (path in card_paths or (not root and DEVICE.fullmatch(path))):
            found.add(path)
    return sorted(found)


def holders(paths: Iterable[str], handles: opened.Handles, sysroot: str = "/") -> Dict[str, List[int]]:
    """Device file (without the sysroot) -> pids that have it open, for each of `paths`, as far as may be seen.

    Paths are compared. In another mount namespace the same path may be another file: such a process is listed too, and its
    description says `other_namespace`.
    """
    places = {_root(sysroot) + path: path for path in paths}
    found: Dict[str, List[int]] = {path: [] for path in places.values()}
    for pid in sorted(handles.targets):
        for place in handles.targets[pid].intersection(places):
            found[places[place]].append(pid)
    return found


def device_holders(handles: opened.Handles, card_paths: Collection[str], sysroot: str = "/") -> List[int]:
    """Every pid that has a device file of a card open: a known one and, with the sysroot "/", one that is named like it."""
    root = _root(sysroot)
    return sorted(pid for pid, targets in handles.targets.items() if _devices(targets, card_paths, root))


def zombies(table: Dict[int, proc.Process]) -> List[int]:
    """Processes that have ended and wait for their parent, and those whose leader has ended while threads live on (`Zl`)."""
    return sorted(process.pid for process in table.values() if process.state == "Z")


def _in_driver(tid: int, root: Path) -> bool:
    return any(DRIVER.search(function) or DRIVER.search(module) for function, module in proc.frames(tid, root) or ())


def _hangs(process: proc.Process, thread: proc.Thread, table: Dict[int, proc.Process], root: Path) -> bool:
    """Is this what a stuck thread looks like at one moment?

    R counts with a driver's function in the stack only, and whoever may not read stacks does not guess. Threads of the kernel
    wait in D by nature, so for them the same.
    """
    if thread.state not in "DR":
        return False
    if thread.state == "D" and not proc.kernel_thread(process, table):
        return True
    return _in_driver(thread.tid, root / str(process.pid) / "task")


def pause() -> None:
    """Let the time between two looks pass."""
    time.sleep(LOOK_S)


def stuck(
    table: Dict[int, proc.Process],
    look_again: Callable[[], object] = pause,
    watched: Collection[int] = (),
    proc_root: Path = proc.PROC,
) -> List[int]:
    """Processes that hang in the kernel: in both of two looks in D, or in R or D with a driver's function in the stack.

    `look_again` lets the time between the looks pass; it is called only if the first look shows one. The leader stands for the
    process. All threads are looked at where the leader has ended, and for the pids in `watched` (such as holders of cards): an
    engine's leader sleeps while one of its threads hangs in the driver.

    A long but honest call into the driver, such as the pinning of much memory, looks the same.
    """
    first: List[_Hung] = []
    for process in table.values():
        if process.state not in "DRZ" and process.pid not in watched:
            continue
        if process.pid in watched or proc.half_ended(process):
            seen = proc.threads(process.pid, proc_root, THREADS_READ)
        else:
            seen = [proc.Thread(process.pid, process.state, process.comm)]
        first += [_Hung(process.pid, process.start, t.tid) for t in seen if _hangs(process, t, table, proc_root)]
    if not first:
        return []
    look_again()
    return sorted({hung.pid for hung in first if _still(hung, table, proc_root)})


def _still(hung: _Hung, table: Dict[int, proc.Process], root: Path) -> bool:
    process = proc.read(hung.pid, root)
    thread = proc.read(hung.tid, root / str(hung.pid) / "task")
    if process is None or process.start != hung.start or thread is None:
        return False
    return _hangs(process, proc.Thread(thread.pid, thread.state, thread.comm), table, root)


def interesting(table: Dict[int, proc.Process], *groups: Iterable[Optional[int]]) -> List[int]:
    """The pids of all groups that exist, each once: what is to be described.

    Groups are the holders of cards, the pids that a vendor's tool names, zombies, stuck processes, ours and suspects, holders of
    segments, owners of wanted ports, servers of screen and tmux.
    """
    return sorted({pid for group in groups for pid in group if pid is not None and pid in table})


def _other_namespace(pid: int, path: str, window: Tuple[int, Path], root: Path) -> bool:
    """Does it live in another pid or mount namespace than we do?

    Where the links may not be read, two things that anybody may read still show a container: a second number in the line NSpid
    of the status, and the control group.
    """
    links = []
    for kind in ("pid", "mnt"):
        here, there = proc.namespace("self", kind, root), proc.namespace(window[0], kind, window[1])
        links.append(here is not None and there is not None and here != there)
    if any(links):
        return True
    numbers = next((line.split()[1:] for line in _status(pid, root) if line.startswith("NSpid:")), [])
    if len(numbers) > 1:
        return True
    container = cgroup.container_of(path)
    return bool(container) and container != cgroup.container_of(cgroup.path_of(os.getpid(), root))


def _status(pid: int, root: Path) -> List[str]:
    try:
        return (root / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _threads(process: proc.Process, whole: bool, root: Path) -> List[proc.Thread]:
    """The threads worth showing first: D, then R, then the other living ones, then what has ended."""
    order = {"D": 0, "R": 1, "Z": 3, "X": 3}
    found = proc.threads(process.pid, root, THREADS_READ if whole else THREADS_SHOWN)
    return sorted(found, key=lambda thread: (order.get(thread.state, 2), thread.tid))


def _stack(process: proc.Process, threads: List[proc.Thread], root: Path) -> Optional[List[str]]:
    """Where a thread in D or R is in the kernel, best one inside a driver; a living one when the leader has ended."""
    tasks = root / str(process.pid) / "task"
    half = proc.half_ended(process)
    worth = [t.tid for t in threads if t.state in "DR" or (half and t.state not in ENDED)]
    worth.sort(key=lambda tid: not _in_driver(tid, tasks))
    return proc.stack(worth[0], tasks) if worth else None


def memory_locked(process: proc.Process, proc_root: Path = proc.PROC) -> bool:
    """May reading the command line, environment or map of a stuck process block the reader? True when that cannot be excluded."""
    for thread in proc.threads(process.pid, proc_root, THREADS_READ):
        functions = proc.stack(thread.tid, proc_root / str(process.pid) / "task") if thread.state in "DR" else []
        if functions is None or any(LOCKS_MEMORY.search(function) for function in functions):
            return True
    return False


def describe(
    process: proc.Process,
    handles: opened.Handles,
    card_paths: Collection[str],
    sysroot: str = "/",
    hung: Collection[int] = (),
    proc_root: Path = proc.PROC,
) -> Dict[str, Any]:
    """Plain data about one process.

    `hung`: what `stuck` found. Of these all threads are looked at to show the one that hangs, else the first 16; and command line
    and environment are left unread when that could block (`memory_locked`): `command` is then the name in brackets.
    `devices` is None when the descriptors may not be read, `stack` when it may not be read or the state gives no reason to.
    """
    pid, root = proc.window(process, proc_root)
    whole = process.pid in hung or process.state in "DZ"
    threads = _threads(process, whole, proc_root)
    group = cgroup.path_of(pid, root)
    targets = None if process.pid in handles.denied else handles.targets.get(process.pid, frozenset())
    ended = process.state in ENDED and not proc.half_ended(process)
    mute = ended or (process.pid in hung and memory_locked(process, proc_root))
    return {
        "pid": process.pid,
        "start": process.start,
        "ppid": process.ppid,
        "user": proc.user_name(process.uid),
        "uid": process.uid,
        "state": process.state,
        "comm": process.comm,
        "command": (None if mute else proc.command(pid, root)) or f"[{process.comm}]",
        "threads": [thread._asdict() for thread in threads[:THREADS_SHOWN]],
        "thread_count": process.threads,
        "cgroup": group,
        "unit": cgroup.unit_of(group),
        "container": cgroup.container_of(group),
        "marker": "" if mute else proc.environment(pid, identity.MARKER, root) or "",
        "cwd": "" if ended else proc.cwd(pid, root) or "",
        "devices": None if targets is None else _devices(targets, card_paths, _root(sysroot)),
        "stack": _stack(process, threads, proc_root),
        "other_namespace": _other_namespace(process.pid, group, (pid, root), proc_root),
    }


def not_readable(
    handles: opened.Handles, table: Dict[int, proc.Process], uid: Optional[int] = None, proc_root: Path = proc.PROC
) -> List[str]:
    """What could not be seen and may hide a holder, as sentences. `uid`: who looked; this user when None."""
    uid = os.geteuid() if uid is None else uid
    owners = [table[pid].uid for pid in handles.denied if pid in table]
    others = [owner for owner in owners if owner != uid]
    said = []
    if others:
        users = len(set(others))
        said.append(f"open files of {_count(len(others), 'process')} of {_count(users, 'other user')}")
    if len(owners) > len(others):
        own = _count(len(owners) - len(others), "process")
        said.append(f"open files of {own} of this user ({proc.user_name(uid)}), which the kernel does not show")
    if hidden(table):
        said.append("processes of other users: /proc hides them (mount option hidepid)")
    if proc.namespace("self", "pid", proc_root) not in (None, proc.FIRST_NAMESPACE["pid"]):
        said.append("processes outside of this container: it has process numbers of its own")
    return said


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{'es' if what.endswith('s') else 's'}"


def hidden(table: Dict[int, proc.Process]) -> bool:
    """Does /proc hide processes of other users? Process 1 always exists, so then it is missing."""
    return 1 not in table
