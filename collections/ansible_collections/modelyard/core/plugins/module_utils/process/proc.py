"""What the kernel says about processes: a reader of /proc, nothing else. What they have open: opened.py; ports: sockets.py.

Standard library only; runs on managed hosts. Everything that may vanish or be forbidden while it is read comes back as
`None`: "not readable" and "not there" are answers, never exceptions.
"""

from __future__ import annotations

import functools
import io
import os
import pwd
import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

PROC = Path("/proc")
#: Links to the namespaces that the kernel makes at boot; a container has others (include/linux/proc_ns.h).
FIRST_NAMESPACE = {"ipc": "ipc:[4026531839]", "pid": "pid:[4026531836]"}
#: `__schedule+0x2/0x9` or, from a module, `uvm_spin_loop+0x70/0x110 [nvidia_uvm]`, behind `[<0>]` or an address.
FRAME = re.compile(r"(?m)^\[<[^>]*>\] ([^\s+]+)\S*(?: \[([^\]]+)\])?")
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
    tty: int = 0  # device number of the terminal that controls it; 0 for none


class Thread(NamedTuple):
    """One thread of a process."""

    tid: int
    state: str
    comm: str


def read_text(path: Union[Path, str]) -> Optional[str]:
    """A file of the kernel; None when it cannot be read. Plain system calls: a look at a host reads hundreds of them."""
    try:
        with io.FileIO(str(path)) as file:
            return file.readall().decode("utf-8", "replace")
    except OSError:
        return None


def read(pid: int, proc: Union[Path, str] = PROC) -> Optional[Process]:
    """The process `pid`, or None if it is gone."""
    folder = f"{proc}/{pid}"
    try:
        with io.FileIO(f"{folder}/stat") as file:
            stat = file.read(4096).decode("utf-8", "replace")
        uid = os.stat(folder).st_uid  # noqa: PTH116  a Path costs more than the call
    except OSError:
        return None
    # comm may hold spaces and parentheses: the last one closes it.
    head, _, tail = stat.rpartition(")")
    fields = tail.split(None, 20)
    if len(fields) < 20:
        return None
    try:
        ppid, pgid, sid, tty, threads, start = (int(fields[place]) for place in (1, 2, 3, 4, 17, 19))
    except ValueError:
        return None
    return Process(pid, ppid, pgid, sid, fields[0], start, head.partition("(")[2], uid, threads, tty)


def processes(proc: Path = PROC) -> Dict[int, Process]:
    """Every process that can be seen, by pid."""
    root = str(proc)
    with os.scandir(root) as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    found = (read(pid, root) for pid in pids)
    return {p.pid: p for p in found if p is not None}


def alive(pid: int, start: int, proc: Path = PROC) -> bool:
    """Is the very process that had this start time still there, and not merely waiting to be reaped?

    One whose first thread has ended while others live (`Zl`) is there: it still holds files and memory.
    """
    process = read(pid, proc)
    return process is not None and process.start == start and living(process, proc)


def living(process: Process, proc: Path = PROC) -> bool:
    """Has it not ended, or not whole?"""
    return process.state not in "ZX" or window(process, proc)[0] != process.pid


def command(pid: int, proc: Path = PROC, limit: int = 300) -> Optional[str]:
    """The command line, cut to `limit` characters; None when it cannot be read, empty for zombies and kernel threads.

    It is shown to others than its owner, so what looks like a secret in it is masked.
    """
    raw = read_text(proc / str(pid) / "cmdline")
    return None if raw is None else masked(raw.replace("\0", " ").strip())[:limit]


def masked(text: str) -> str:
    """The text with values of secret options and passwords in addresses replaced by ***."""
    return SECRET_WORD.sub(lambda m: f"{m.group(1) or m.group(2)}***{'@' if m.group(2) else ''}", text)


def environment(pid: int, name: str, proc: Path = PROC) -> Optional[str]:
    """The value of one variable in the process' environment; None when it has none or it cannot be read."""
    return environment_of(pid, (name,), proc)[0]


def environment_of(pid: int, names: Sequence[str], proc: Path = PROC) -> List[Optional[str]]:
    """The values of several variables from one look, in the order of `names`; None for each that is not to be seen."""
    raw = read_text(proc / str(pid) / "environ") or ""
    found: Dict[str, str] = {}
    for item in raw.split("\0"):
        name, equals, value = item.partition("=")
        if equals and name in names and name not in found:
            found[name] = value
    return [found.get(name) for name in names]


def cwd(pid: int, proc: Path = PROC) -> Optional[str]:
    """The working directory, also one that was removed, by the name it had; None when it cannot be read."""
    found = read_link(proc / str(pid) / "cwd")
    return None if found is None else found.replace(" (deleted)", "")


def namespace(pid: Union[int, str], kind: str, proc: Path = PROC) -> Optional[str]:
    """Id of the process' namespace of a kind (`pid`, `mnt`, `ipc`, ...); None when it cannot be read."""
    return read_link(proc / str(pid) / "ns" / kind)


def mounts(pid: Union[int, str], proc: Path = PROC) -> Optional[str]:
    """Id of the process' mount namespace: in another one the same path is another file. None when it cannot be read."""
    return read_link(proc / str(pid) / "ns" / "mnt")


def read_link(path: Path) -> Optional[str]:
    """Where a link of the kernel points to; None when it cannot be read."""
    try:
        return os.readlink(str(path))
    except OSError:
        return None


def kernel_thread(process: Process, table: Dict[int, Process]) -> bool:
    """Is it a thread of the kernel itself? It has no program and no open files."""
    parent = table.get(2)
    return parent is not None and parent.comm == "kthreadd" and 2 in (process.pid, process.ppid)


def half_ended(process: Process) -> bool:
    """Has the leader ended while other threads were left (`Zl` in ps)?

    The kernel then shows nothing under the process' own number any more, although the threads hold files and memory.
    """
    return process.state == "Z" and process.threads > 1


def window(process: Process, proc: Path = PROC) -> Tuple[int, Path]:
    """Pid and root with which the functions of this module see the process, also when it is half ended.

    It is then a living thread below task/, which shows command line, descriptors and the rest as the leader did.
    """
    if half_ended(process):
        folder = proc / str(process.pid) / "task"
        for thread in threads(process.pid, proc):
            if thread.state not in "ZX":
                return (thread.tid, folder)
    return (process.pid, proc)


def threads(pid: int, proc: Path = PROC, limit: int = 0) -> List[Thread]:
    """The threads of a process by number, at most `limit` of them (0: all); none when it is gone."""
    folder = f"{proc}/{pid}/task"
    try:
        with os.scandir(folder) as entries:
            tids = sorted(int(entry.name) for entry in entries if entry.name.isdigit())
    except OSError:
        return []
    found = []
    for tid in tids[: limit or None]:
        try:
            with io.FileIO(f"{folder}/{tid}/stat") as file:  # plain, because an engine may have hundreds of threads
                head, _, tail = file.read(4096).decode("utf-8", "replace").rpartition(")")
        except OSError:
            continue
        if tail.strip():
            found.append(Thread(tid, tail.split()[0], head.partition("(")[2]))
    return found


def frames(pid: int, proc: Path = PROC) -> Optional[List[Tuple[str, str]]]:
    """Where the process is inside the kernel: (function, module or ""), innermost first.

    None when it cannot be read (only root may), empty when it runs outside of the kernel or has ended.
    """
    raw = read_text(proc / str(pid) / "stack")
    return None if raw is None else [(match.group(1), match.group(2) or "") for match in FRAME.finditer(raw)]


def stack(pid: int, proc: Path = PROC) -> Optional[List[str]]:
    """The names of the functions of `frames`."""
    found = frames(pid, proc)
    return None if found is None else [function for function, _ in found]


@functools.lru_cache(maxsize=1024)  # the account database may be far away
def user_name(uid: int) -> str:
    """The account's name, or the number when the account database does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def boot_id(proc: Path = PROC) -> str:
    """Changes with every boot; empty where the kernel does not say."""
    return (read_text(proc / "sys" / "kernel" / "random" / "boot_id") or "").strip()


def uptime_s(proc: Path = PROC) -> float:
    """Seconds since the boot."""
    return float((read_text(proc / "uptime") or "0").split()[0])


def age_s(start: int, proc: Path = PROC) -> float:
    """Seconds since a start time in ticks since boot; no clock that somebody can set takes part."""
    return uptime_s(proc) - start / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int, proc: Path = PROC) -> Optional[float]:
    """Processor seconds that a process used, with those of children that it has waited for; None when it is gone."""
    raw = read_text(proc / str(pid) / "stat")
    fields = (raw or "").rpartition(")")[2].split()
    if len(fields) < 15:
        return None
    try:
        return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    except ValueError:
        return None


def resident_mib(pid: int, proc: Path = PROC) -> int:
    """Main memory that a process has in use, with what it shares with others; 0 when it is gone."""
    fields = (read_text(proc / str(pid) / "statm") or "").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20 if len(fields) > 1 and fields[1].isdigit() else 0


def identity(pid: int, proc: Path = PROC) -> Tuple[int, int]:
    """`(pid, start)`; start is 0 for a process that is gone."""
    process = read(pid, proc)
    return (pid, process.start if process else 0)
