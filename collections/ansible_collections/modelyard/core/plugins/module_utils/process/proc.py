"""What the kernel says about processes, sockets and shared memory: a reader of /proc, nothing else.

Standard library only; runs on managed hosts. Everything that may vanish or be forbidden while it is read comes back as
`None`: "not readable" and "not there" are answers, never exceptions.
"""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

PROC = Path("/proc")
SHM = Path("/dev/shm")
TCP_LISTEN = "0A"
#: Seen of vLLM 0.32 on CPU: psm_*, sem.mp-*, vllm_dist_*; torch_* and nccl-* are PyTorch's and NCCL's own.
SEGMENT = re.compile(r"(psm_|sem\.mp-|vllm_|torch_|nccl-)[^/]+")
SECRET_WORD = re.compile(r"(?i)(--[a-z-]*(?:key|token|password|secret)[a-z-]*[= ])\S+|(://[^/\s:@]*:)[^/\s@]+@")


class Process(NamedTuple):
    """One line of /proc/PID/stat; `start` is in clock ticks since boot and, with the pid, names a process for good."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    start: int
    comm: str
    uid: int
    threads: int


class Listener(NamedTuple):
    """A listening TCP socket."""

    address: str
    port: int
    inode: int
    uid: int


def _text(path: Path) -> Optional[str]:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None


def read(pid: int, proc: Path = PROC) -> Optional[Process]:
    """The process `pid`, or None if it is gone."""
    stat = _text(proc / str(pid) / "stat")
    if stat is None:
        return None
    # comm may hold spaces and parentheses: the last one closes it.
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    try:
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return None
    try:
        ppid, pgid, sid, threads, start = (int(fields[place]) for place in (1, 2, 3, 17, 19))
    except ValueError:
        return None
    return Process(pid, ppid, pgid, sid, fields[0], start, head.partition("(")[2], uid, threads)


def processes(proc: Path = PROC) -> Dict[int, Process]:
    """Every process that can be seen, by pid."""
    found = (read(int(entry.name), proc) for entry in proc.iterdir() if entry.name.isdigit())
    return {p.pid: p for p in found if p is not None}


def alive(pid: int, start: int, proc: Path = PROC) -> bool:
    """Is the very process that had this start time still there, and not merely waiting to be reaped?"""
    process = read(pid, proc)
    return process is not None and process.start == start and process.state not in "ZX"


def descendants(roots: Set[int], table: Dict[int, Process]) -> Set[int]:
    """The pids below `roots`, without the roots."""
    children: Dict[int, List[int]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process.pid)
    found: Set[int] = set()
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), []):
            if child not in found and child not in roots:
                found.add(child)
                queue.append(child)
    return found


def command(pid: int, proc: Path = PROC, limit: int = 300) -> Optional[str]:
    """The command line, cut to `limit` characters; None when it cannot be read, empty for zombies and kernel threads.

    It is shown to others than its owner, so what looks like a secret in it is masked.
    """
    raw = _text(proc / str(pid) / "cmdline")
    return None if raw is None else masked(raw.replace("\0", " ").strip())[:limit]


def masked(text: str) -> str:
    """The text with values of secret options and passwords in addresses replaced by ***."""
    return SECRET_WORD.sub(lambda m: f"{m.group(1) or m.group(2)}***{'@' if m.group(2) else ''}", text)


def environment(pid: int, name: str, proc: Path = PROC) -> Optional[str]:
    """The value of one variable in the process' environment; None when it has none or it cannot be read."""
    raw = _text(proc / str(pid) / "environ")
    prefix = name + "="
    for item in (raw or "").split("\0"):
        if item.startswith(prefix):
            return item[len(prefix) :]
    return None


def cwd(pid: int, proc: Path = PROC) -> Optional[str]:
    """The working directory, also one that was removed, by the name it had; None when it cannot be read."""
    found = _link(proc / str(pid) / "cwd")
    return None if found is None else found.replace(" (deleted)", "")


def mounts(pid: Union[int, str], proc: Path = PROC) -> Optional[str]:
    """Id of the process' mount namespace: in another one the same path is another file. None when it cannot be read."""
    return _link(proc / str(pid) / "ns" / "mnt")


def _link(path: Path) -> Optional[str]:
    try:
        return os.readlink(str(path))
    except OSError:
        return None


def mapped_files(pid: int, proc: Path = PROC) -> Set[str]:
    """Files that the process has in its memory map, deleted ones by the name they had."""
    found: Set[str] = set()
    for line in (_text(proc / str(pid) / "maps") or "").splitlines():
        _, slash, path = line.partition("/")
        if slash:
            found.add("/" + path.replace(" (deleted)", ""))
    return found


def open_files(pid: int, proc: Path = PROC) -> Iterator[str]:
    """The targets of the process' file descriptors; nothing when they may not be read."""
    folder = proc / str(pid) / "fd"
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            yield os.readlink(str(entry))
        except OSError:
            continue


def shared_memory(pid: int, proc: Path = PROC) -> Set[str]:
    """Names of the engine's segments in /dev/shm that the process has mapped or open.

    Only names that engines make themselves: models, homes and other people's data can lie in /dev/shm as well.
    """
    prefix = str(SHM) + "/"
    paths = mapped_files(pid, proc) | {p.replace(" (deleted)", "") for p in open_files(pid, proc)}
    names = {p[len(prefix) :] for p in paths if p.startswith(prefix)}
    return {name for name in names if SEGMENT.fullmatch(name)}


def listeners(proc: Path = PROC) -> List[Listener]:
    """Every listening TCP socket of this network namespace, IPv4 and IPv6."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in (_text(proc / "net" / name) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == TCP_LISTEN:
                address, _, port = fields[1].rpartition(":")
                found.append(Listener(address, int(port, 16), int(fields[9]), int(fields[7])))
    return found


def socket_owner(inode: int, table: Dict[int, Process], proc: Path = PROC) -> Optional[int]:
    """The pid that holds a socket; None when it belongs to a process whose descriptors may not be read."""
    wanted = f"socket:[{inode}]"
    for pid in table:
        if any(target == wanted for target in open_files(pid, proc)):
            return pid
    return None


def user_name(uid: int) -> str:
    """The account's name, or the number when the account database does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def boot_id(proc: Path = PROC) -> str:
    """Changes with every boot; empty where the kernel does not say."""
    return (_text(proc / "sys" / "kernel" / "random" / "boot_id") or "").strip()


def age_s(start: int, proc: Path = PROC) -> float:
    """Seconds since a start time in ticks since boot; no clock that somebody can set takes part."""
    return float((_text(proc / "uptime") or "0").split()[0]) - start / os.sysconf("SC_CLK_TCK")


def identity(pid: int, proc: Path = PROC) -> Tuple[int, int]:
    """`(pid, start)`; start is 0 for a process that is gone."""
    process = read(pid, proc)
    return (pid, process.start if process else 0)
