"""Why a tensor test failed: what torch, NCCL, RCCL and gloo say, and what an admin does then. Data; the first match counts."""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, Mapping, NamedTuple, Pattern, Sequence

NONE, OTHER = "", "other"


class Cause(NamedTuple):
    """`id`: one of the names below. `of_runtime`: every card of the runtime has it, so it is said once."""

    id: str
    pattern: Pattern[str]
    do: str
    of_runtime: bool = False


def _cause(id: str, pattern: str, do: str, of_runtime: bool = False) -> Cause:
    return Cause(id, re.compile(pattern, re.IGNORECASE), do, of_runtime)


_P2P = (
    "the cards do not reach each other. The usual next try on consumer cards, without NVLink, is NCCL_P2P_DISABLE: '1' under "
    "environment of the service (data then goes through main memory); IOMMU and ACS of the machine also prevent direct access"
)
#: Matched against the error's type and message, then against the last lines of the output.
CAUSES: Sequence[Cause] = (
    _cause(
        "core",
        r"^NotStarted: \[Errno 22\]",
        "name cores under cards that this user may run on (taskset -p $$ shows them)",
    ),
    _cause(
        "not_started",
        r"^NotStarted",
        "look whether the runtime is there and whether this user may run it; the role runtime makes those of the project",
        True,
    ),
    _cause(
        "no_module",
        r"No module named",
        "this Python environment is not whole: remove its folder (the next deploy makes it again), or correct runtime_path",
        True,
    ),
    _cause(
        "build",
        r"not compiled with (CUDA|ROCm|HIP)|doesn't have (NCCL|gloo) built in|CUDA support is not available",
        "its torch was built for other cards: name a runtime for this backend with runtime or runtime_path",
        True,
    ),
    _cause(
        "library",
        r"cannot open shared object file|undefined symbol|version `[^']*' not found|ImportError|loading shared libraries",
        "a library is not found or has another version. What the vendor's env.sh sets (LD_LIBRARY_PATH of DTK, ROCm or CUDA) "
        "belongs under environment of the service",
        True,
    ),
    _cause(
        "driver_old",
        r"driver on your system is too old|driver version is insufficient",
        "install a newer driver, or name a runtime whose torch is built for what this driver can run",
        True,
    ),
    _cause(
        "driver_mismatch",
        r"Error 80[34]\b|unsupported display driver|forward compatibility was attempted|driver/library version mismatch",
        "driver and its library do not fit each other: compare /proc/driver/nvidia/version with the target of libcuda.so.1, and "
        "leave no cuda-compat in LD_LIBRARY_PATH; after an update of the driver it must be loaded again",
        True,
    ),
    _cause(
        "no_driver",
        r"Found no NVIDIA driver|no HIP runtime|driver was not loaded",
        "load the driver: the vendor's tool (nvidia-smi, hy-smi, rocm-smi) must list the cards first",
        True,
    ),
    _cause(
        "fabric",
        r"Error 802\b|system not yet initialized",
        "the fabric manager is not ready: its service must run, in the very version of the driver",
        True,
    ),
    _cause(
        "denied",
        r"/dev/(kfd|mkfd|dri|nvidia)\S*.{0,40}permission denied|permission denied.{0,40}/dev/(kfd|mkfd|dri|nvidia)",
        "give this user the groups that the device files belong to (render and video on AMD and Hygon)",
    ),
    _cause(
        "shared_memory",
        r"No space left on device|shared memory segment|shm_open|Bus error",
        "/dev/shm is full or too small: remove segments that nobody holds (ls -l /dev/shm), or mount it larger",
    ),
    _cause(
        "memory",
        r"out of memory|STATUS_ALLOC_FAILED|hipErrorOutOfMemory|MemoryError|can't allocate memory|Cannot allocate memory",
        "free the memory: ask its user, or end what was left behind (playbooks/preflight.yml names it), then deploy again",
    ),
    _cause(
        "architecture",
        r"no kernel image is available|NoBinaryForGpu|code object for all current|n't find binary for|invalid device function",
        "its torch was not built for the architecture of this card: name a runtime that was, with runtime or runtime_path",
    ),
    _cause(
        "busy",
        r"busy or unavailable|device is already in use",
        "somebody has the card for himself (compute mode Exclusive_Process), or it is being reset: look at "
        "nvidia-smi -q -d COMPUTE and at who holds its device file",
    ),
    _cause(
        "not_visible",
        r"No (CUDA|HIP) GPUs are available|no (CUDA|ROCm)-capable device|invalid device ordinal|hipErrorNoDevice",
        "the card is not there for programs of this user. The vendor's tool must list it; then look at the rights of its device "
        "files, at the kernel log (Xid, fallen off the bus), and for a process that still hangs in the driver "
        "(playbooks/preflight.yml)",
    ),
    _cause(
        "unknown",
        r"CUDA unknown error|Error 999\b",
        "often the module nvidia_uvm is not loaded or its device file is missing (nvidia-modprobe -u -c 0, as root); else look "
        "into the kernel log",
    ),
    _cause(
        "hardware",
        r"uncorrectable|hardware error|GPU is lost|fallen off|illegal memory access|unspecified launch failure|launch failed"
        r"|illegal instruction was|misaligned address",
        "the card or its driver failed: look into the kernel log (Xid). Until it was reset or replaced, leave it out under cards",
    ),
    _cause("peer", r"peer access is not supported|peer mapping|P2P is disabled", _P2P),
    _cause(
        "same_card",
        r"Duplicate GPU detected",
        "two ranks were given one card: compare the plan's cards with what the vendor's tool lists",
    ),
    _cause(
        "interface",
        r"Unable to find address for|no socket interface found",
        "the network interface that GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names under environment is not there (ip -br addr)",
    ),
    _cause(
        "name",
        r"Name or service not known|gai_?error|Temporary failure in name resolution|Unable to resolve hostname|resolve.*address",
        "the host cannot resolve its own name: put it into /etc/hosts, or set GLOO_SOCKET_IFNAME: lo under environment",
    ),
    _cause(
        "port",
        r"EADDRINUSE|address already in use",
        "somebody took the port between its choice and its use: run again",
    ),
)
BY_ID: Mapping[str, Cause] = {cause.id: cause for cause in CAUSES}

#: Ids that no text decides.
DO: Mapping[str, str] = {
    OTHER: "nothing more is known about this: look at what it said, and into the kernel log",
    "stopped": "look at the others first",
    "no_answer": "look at what it said, and whether the runtime's Python works at all",
    "import": "torch was not even loaded in that time: the disk is slow or the host is busy. Raise card_test_deadline_s and "
    "card_test_all_reduce_deadline_s",
    "hung": "the driver of the card does not answer: look into the kernel log. Leave the card out under cards until it does",
    "stuck": "it hangs in the kernel and cannot be killed: look into the kernel log. Usually only a restart of the machine "
    "helps; that is for its admin to decide. Leave the card out under cards until then",
    "more": "something else than the plan decides what is visible: compare the environment of the service with what the vendor "
    "says about such variables",
    "other_card": "the cards are counted in another order than in the plan: leave CUDA_DEVICE_ORDER out under environment, or "
    "set it to PCI_BUS_ID",
    "wrong": "take the card out of service: leave it out under cards, and have it replaced if it does so again",
}
#: Where a test ended by a signal that nobody here sent.
BY_SIGNAL: Mapping[int, str] = {
    signal.SIGILL: "this build needs processor instructions that the host's processor does not have: name another runtime",
    signal.SIGBUS: "memory it had mapped was not there: /dev/shm or a disk is full, or a file was cut while in use",
    signal.SIGKILL: "somebody ended it, or the kernel did because main memory ran out: look into the kernel log (dmesg)",
    signal.SIGTERM: "somebody ended it: run again",
}
CRASHED = "driver or libraries failed: compare their versions, and look into the kernel log for what came before"
#: When the ranks of an all-reduce wait for each other until the deadline.
APART: Mapping[str, str] = {
    "hygon": "the cards do not reach each other. Next tries under environment of the service: NCCL_P2P_LEVEL: SYS and no "
    "NCCL_ALGO; NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS both '16'; NCCL_P2P_DISABLE: '1'",
    "cpu": "its processes do not reach each other: look for a firewall on the loopback interface, and whether the host resolves "
    "its own name (/etc/hosts); GLOO_SOCKET_IFNAME: lo under environment is the next try",
}
#: Said by ranks whose partner has gone: a consequence and no cause.
CONSEQUENCE = re.compile(
    r"closed by peer|reset by peer|connection refused|broken pipe|likely closed|ncclRemoteError|process exit|failed to recv",
    re.IGNORECASE,
)


def of(error: Mapping[str, Any], said: Sequence[str]) -> str:
    """The id of the cause, from an error ({} for none) and output; OTHER when nothing is recognised, NONE without any text."""
    found = _match(f"{error['type']}: {error['message']}") if error else NONE
    if found in (NONE, OTHER, "not_visible") and said:  # why it is not visible stands in the output only
        further = _match("\n".join(said))
        found = found if further == OTHER and found else further
    return found


def _match(text: str) -> str:
    return next((cause.id for cause in CAUSES if cause.pattern.search(text)), OTHER)


def do(id: str) -> str:
    """What an admin does about it."""
    return BY_ID[id].do if id in BY_ID else DO[id]


def apart(backend: str) -> str:
    """What to try when the ranks of an all-reduce do not reach each other."""
    return APART.get(backend, _P2P)


def of_runtime(id: str) -> bool:
    """Does it concern the whole runtime?"""
    return id in BY_ID and BY_ID[id].of_runtime


def signal_name(number: int) -> str:
    """`SIGSEGV`, or the number when it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ids() -> Dict[str, str]:
    """Every id with what to do."""
    return {**{cause.id: cause.do for cause in CAUSES}, **DO}
