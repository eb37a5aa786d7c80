"""What kind of machine this is: container, virtual machine, PID 1, memory, memory nodes. Reads only; standard library only."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

#: Programs that are made to be PID 1 and take the exit status of every orphan; by the name that /proc/1/comm shows.
REAPERS = frozenset(
    (
        *("systemd", "init", "tini", "tini-static", "dumb-init", "catatonit", "podman-init", "docker-init", "pause", "pid1"),
        *("s6-svscan", "runit", "runit-init", "busybox-init", "openrc-init", "finit", "dinit", "minit", "sinit", "my_init"),
        *("init.lxc", "init.lxc.static", "supervisord"),
    )
)
OLD_S = 10.0
AGAIN_S = 0.05
#: Numbers of the namespaces that the kernel booted with: the same on every Linux since 3.8.
FIRST_NAMESPACES = {"ipc": 0xEFFFFFFF, "uts": 0xEFFFFFFE, "pid": 0xEFFFFFFC}
#: Words in the control group of PID 1, the outermost first: Kubernetes starts its containers through the others.
GROUPS = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("lxc", "lxc"), ("containerd", "containerd"))
#: (vendor begins with, product begins with, name): names are those of `systemd-detect-virt`.
BOARDS = (
    ("", "KVM", "kvm"),
    ("", "OpenStack", "kvm"),
    ("", "KubeVirt", "kvm"),
    ("Alibaba Cloud", "", "kvm"),
    ("Tencent Cloud", "", "kvm"),
    ("Nutanix", "AHV", "kvm"),
    ("Amazon EC2", "", "amazon"),
    ("Google", "Google Compute Engine", "google"),
    ("VMware", "", "vmware"),
    ("Microsoft Corporation", "Virtual Machine", "microsoft"),
    ("innotek GmbH", "", "oracle"),
    ("", "VirtualBox", "oracle"),
    ("Xen", "", "xen"),
    ("Parallels", "Parallels Virtual", "parallels"),
    ("", "BHYVE", "bhyve"),
    ("Apple", "Apple Virtualization", "apple"),
    ("QEMU", "", "qemu"),
)
#: A clock that only this hypervisor offers, for machines without a description of their board.
CLOCKS = (("kvm-clock", "kvm"), ("hyperv_clocksource", "microsoft"), ("xen", "xen"), ("vmware", "vmware"))

Table = Mapping[int, proc.Process]


class Unreaped(NamedTuple):
    """A zombie whose parent is PID 1. `age_s`: since it was started; `seen_s`: it was a zombie for at least so long."""

    pid: int
    threads: int
    age_s: float
    seen_s: float


def platform(root: str = "/", zombies: Iterable[Unreaped] = ()) -> Dict[str, Any]:
    """survey["platform"]: {"container", "virtual", "wsl", "pid1", "pid1_reaps"}.

    `container` and `virtual` are "" when there is no sign of one, `virtual` is "unknown" for a hypervisor without a name.
    `pid1` is "" when it may not be read. `pid1_reaps`: see `reaps`.
    """
    top = Path(root)
    wsl = "microsoft" in _text(top / "proc/sys/kernel/osrelease").lower()
    comm = _text(top / "proc/1/comm").rstrip("\n")
    arguments = _text(top / "proc/1/cmdline").split("\0")
    return {
        "container": container(top),
        "virtual": virtual(top) or ("microsoft" if wsl and _flags(top) is None else ""),
        "wsl": wsl,
        "pid1": comm,
        "pid1_reaps": reaps("busybox-init" if comm == "busybox" and arguments[1:2] == ["init"] else comm, zombies),
    }


def reaps(comm: str, zombies: Iterable[Unreaped]) -> Optional[bool]:
    """Does PID 1 take the exit status of orphans? None when neither its name nor a zombie tells.

    Only a zombie without a living thread counts: the kernel hands over no other, so state Zl says nothing about PID 1. And
    only one that was seen twice: a process that ran for days may have ended a moment ago. A program known to reap is believed
    for longer.
    """
    known = comm in REAPERS
    if any(z.threads <= 1 and z.age_s > OLD_S and z.seen_s >= (OLD_S if known else AGAIN_S) for z in zombies):
        return False
    return True if known else None


def unreaped(first: Table, second: Table, uptime_s: float, between_s: float) -> List[Unreaped]:
    """The zombies of PID 1 that were there in two looks at the process table, `between_s` apart; `uptime_s` at the second."""
    found = []
    for pid, now in sorted(second.items()):
        before = first.get(pid)
        if before is None or before.start != now.start or now.ppid != 1 or (before.state, now.state) != ("Z", "Z"):
            continue
        found.append(Unreaped(pid, now.threads, uptime_s - now.start / os.sysconf("SC_CLK_TCK"), between_s))
    return found


def container(top: Path) -> str:
    """Kind of the container that this is; "" for none."""
    if os.path.exists(str(top / ".singularity.d")):  # shares the namespaces of the host
        return "apptainer"
    named = _text(top / "run/systemd/container").strip()
    if named and named != "wsl":
        return named
    # Both files also stay behind in a root file system that was copied out of a container and booted.
    if not _first_namespaces(top):
        if os.path.exists(str(top / "run/.containerenv")):
            engine = re.search(r'(?m)^engine="([a-z-]+?)(?:-\d.*)?"', _text(top / "run/.containerenv"))
            return engine.group(1) if engine else "podman"
        if os.path.exists(str(top / ".dockerenv")):
            return "docker"
    for item in _text(top / "proc/1/environ").split("\0"):
        if item.startswith("container=") and item not in ("container=", "container=wsl"):
            return item.partition("=")[2]
    group = _text(top / "proc/1/cgroup")
    return next((name for word, name in GROUPS if word in group), "")


def virtual(top: Path) -> str:
    """Kind of the virtual machine that this is; "" for bare metal and for the management domain of Xen."""
    if _text(top / "sys/hypervisor/type").strip() == "xen":
        return "" if "control_d" in _text(top / "proc/xen/capabilities") else "xen"
    flags = _flags(top)
    if flags is not None and "hypervisor" not in flags:
        return ""  # also rented bare metal, whose board has the name of a cloud
    product, vendor = (_text(top / "sys/class/dmi/id" / name).strip() for name in ("product_name", "sys_vendor"))
    clocks = _text(top / "sys/devices/system/clocksource/clocksource0/available_clocksource")
    by_board = next((name for v, p, name in BOARDS if vendor.startswith(v) and product.startswith(p)), "")
    by_clock = next((name for word, name in CLOCKS if word in clocks), "")
    if by_board == "qemu":
        return by_clock or by_board  # QEMU makes the board, and KVM, where it is, runs the CPU
    if flags is None and product.endswith(".metal"):
        return ""
    return by_board or by_clock or ("unknown" if flags is not None else "")


def numa(sys_root: str = "/sys") -> List[Dict[str, Any]]:
    """survey["numa"]: the nodes in order, each with its cores (none: memory alone) and memory; [] when the kernel shows none."""
    found = []
    for place in _entries(Path(sys_root) / "devices/system/node"):
        number = re.fullmatch(r"node(\d+)", place.name)
        if number:
            total = re.search(r"MemTotal:\s*(\d+) kB", _text(place / "meminfo"))
            memory = int(total.group(1)) // 1024 if total else 0
            found.append({"node": int(number.group(1)), "cores": cores(_text(place / "cpulist")), "memory_mib": memory})
    return sorted(found, key=lambda node: node["node"])


def cores(listed: str) -> List[int]:
    """The numbers in a list such as "0-3,8": the way in which the kernel writes sets of cores."""
    found: List[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", listed):
        found.extend(range(int(first), int(last or first) + 1))
    return found


def memory(proc_root: str = "/proc") -> Dict[str, Optional[int]]:
    """Memory and swap in MiB: total and what is left of it; None for what the kernel does not say."""
    names = {"total": "MemTotal", "available": "MemAvailable", "swap_total": "SwapTotal", "swap_free": "SwapFree"}
    said = dict(re.findall(r"(?m)^(\w+):\s*(\d+) kB", _text(Path(proc_root) / "meminfo")))
    return {f"{key}_mib": int(said[name]) // 1024 if name in said else None for key, name in names.items()}


def _first_namespaces(top: Path) -> bool:
    """Is this process in the namespaces that the kernel booted with, and so in no container? No, when it cannot be read."""
    for name, number in FIRST_NAMESPACES.items():
        try:
            seen = os.readlink(str(top / "proc/self/ns" / name))
        except OSError:
            return False
        if seen != f"{name}:[{number}]":
            return False
    return True


def _flags(top: Path) -> Optional[Sequence[str]]:
    """Features of the first core; None where /proc/cpuinfo has no such line (other processors than x86)."""
    line = re.search(r"(?m)^flags\s*:(.*)", _text(top / "proc/cpuinfo", 16384))
    return line.group(1).split() if line else None


def _entries(folder: Path) -> Tuple[Path, ...]:
    try:
        return tuple(folder.iterdir())
    except OSError:
        return ()


def _text(path: Path, limit: int = 65536) -> str:
    """The beginning of a file in one read; empty when it is not there or may not be read.

    Of /proc/cpuinfo the kernel makes up only what is asked for: all of it would cost milliseconds on a large machine.
    """
    try:
        with path.open("rb", buffering=0) as stream:
            return (stream.read(limit) or b"").decode("utf-8", "replace")
    except OSError:
        return ""
