"""What processes cost, on which core they run, and what others do on this machine meanwhile. Reads /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
#: More than this share of a core used by others disturbs a measurement.
QUIET = 0.15


def cores() -> tuple[int, int]:
    """(the core of the proxies, the core of stub and load generator)."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise SystemExit("Two CPU cores are needed: one for the proxy, one for stub and load generator.")
    return found[0], found[1]


def tree(pid: int) -> list[int]:
    """The process and all that it started."""
    found = [pid]
    for one in found:
        try:
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text(encoding="ascii").split())
        except OSError:
            continue
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and what it started, until now; none of pid 0."""
    total = 0
    for one in tree(pid) if pid else ():
        try:
            fields = Path(f"/proc/{one}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICK


def waited_s(pid: int) -> float:
    """Seconds that threads of a process and what it started were ready and had no core, until now; none of pid 0."""
    total = 0
    for one in tree(pid) if pid else ():
        for thread in Path(f"/proc/{one}/task").glob("*/schedstat"):
            try:
                total += int(thread.read_text(encoding="ascii").split()[1])
            except (OSError, IndexError):
                continue
    return total / 1e9


def memory_mib(pid: int) -> float:
    """Largest resident memory of a process and what it started, until now; shared pages count for each."""
    total = 0
    for one in tree(pid):
        try:
            lines = Path(f"/proc/{one}/status").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return total / 1024


@dataclass
class Window:
    """A stretch of time: CPU seconds of the machine, of some processes, and of all others."""

    pids: list[int]

    def __post_init__(self) -> None:
        self.began, self.machine, self.own = time.monotonic(), busy_s(), sum(map(cpu_s, self.pids))

    def others(self) -> float:
        """Cores used by processes other than `pids` since the beginning: 0.5 is half of one."""
        used = busy_s() - self.machine - (sum(map(cpu_s, self.pids)) - self.own)
        return max(0.0, used / max(0.01, time.monotonic() - self.began))


def busy_s() -> float:
    """CPU seconds that were used or taken away by the hypervisor, on all cores, until now."""
    fields = [int(value) for value in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / TICK


def wait_until_quiet(pids: list[int], limit_s: float) -> float:
    """Wait until others use less than QUIET of a core, at most `limit_s`; what they used in the last second."""
    end = time.monotonic() + limit_s
    while True:
        window = Window(pids)
        time.sleep(1)
        others = window.others()
        if others < QUIET or time.monotonic() > end:
            return others
