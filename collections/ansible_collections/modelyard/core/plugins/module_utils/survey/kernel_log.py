"""What the kernel has logged since the boot about cards, lack of memory, hung tasks and crashes.

Where it comes from, in this order: /dev/kmsg, the journal, neither (for lack of rights, which is said).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from typing import Any, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey import pci, tool

KMSG = "/dev/kmsg"
KMSG_NUMBER = (1, 11)
RECORD_BYTES = 16384  # the kernel refuses to give a record to a smaller buffer than it needs (8 KiB at most)
READ_BYTES = 8 * 2**20
RING_BYTES = 64 * 2**20  # only lines that matter are kept of it, and the newest come last: time is the limit that counts
LINES_KEPT = 2000
LINES_SHOWN = 200
EVENTS_SHOWN = 200
JOURNAL = ("-k", "-b", "-o", "short-monotonic", "--no-pager", "-n", "4000")
JOURNAL_LIMIT_S = 3.0
RESTRICTION = "/proc/sys/kernel/dmesg_restrict"

_TROUBLE = (
    r"(?i:error|fail|fault|timeout|timed out|timedout|reset|hang|hung|lost|wedged|ecc|poison|corrupt|err -\d|not supported)"
)
_DRIVER = r"amdgpu|amdkfd|\bkfd\b|hycu|hydcu|hyttm|hykcl"
_ENGINE = r"(?:python|pypy|vllm|VLLM|pt_main_thread|ray::|cuda-|nccl)"
#: Each line that matters has one of these; looking for them first costs a tenth of the pattern below.
_WORDS = (
    *("NVRM:", "SXid", "nvidia", "nouveau", "amdgpu", "amdkfd", "kfd", "hycu", "hydcu", "hyttm", "hykcl"),
    *("ut of memory", "oom-kill", "blocked for more than", "pciehp: Slot", "AER: ", "segfault", "traps:"),
)
#: Only these lines are looked at further. Drivers say much at boot, so of most of them only trouble counts.
_MATTERS = re.compile(
    rf"NVRM:|\bSXid\b|(?:nvidia|nouveau)[^ ]*[: ].*{_TROUBLE}|(?:{_DRIVER}).*{_TROUBLE}"
    rf"|(?:{_DRIVER}).* Process .* pid \d"
    r"|[Oo]ut of memory|oom-kill:|invoked oom-killer|blocked for more than|pciehp: Slot|AER: .*[Ff]atal"
    rf"|{_ENGINE}[^\[]*\[\d+\]: segfault|(?:segfault|traps:).*(?:python|vllm|libcuda|libtorch|libhip|libhsa|libnccl|librccl)"
)
_BUS_ID = re.compile(r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")
_SERIAL = re.compile(r"(?P<level>\d+),\d+,(?P<us>\d+),[^;]*;(?P<text>.*)", re.DOTALL)
_FOR_PROCESS = re.compile(r"\b[Pp]rocess\s.*?\bpid (\d+)")
#: kind -> what a line about it says; the first group, if any, is the process.
_KINDS = (
    ("oom_kill", re.compile(r"[Oo]ut of memory: Kill(?:ed)? process (\d+)")),
    ("hung_task", re.compile(r"task \S.*:(\d+) blocked for more than")),
    ("segfault", re.compile(rf"(?:{_ENGINE}[^\[]*\[(\d+)\]|\[(\d+)\]): segfault")),
    ("page_fault", re.compile(rf"(?:{_DRIVER}).*page fault")),
    ("ring_timeout", re.compile(rf"(?:{_DRIVER}).*\bring \S+ timeout")),
    ("gpu_reset", re.compile(rf"(?:{_DRIVER}|\[drm\]).*(?:GPU reset|GPU recovery|device wedged|VRAM is lost)", re.IGNORECASE)),
)
#: Kinds after which the process stands in a line of its own.
_WITH_PROCESS = ("page_fault", "ring_timeout")


class Lines(NamedTuple):
    """Lines that matter. `why` says what is missing; `readable` is False when nothing could be read."""

    readable: bool
    why: str
    lines: List[str]


def read(limit_s: float, journal: bool = True, kmsg: str = KMSG) -> Dict[str, Any]:
    """The survey's `kernel_log`: `readable`, `why`, `events` (oldest first), `lines` (the last ones about such things).

    :param limit_s: how long reading may take; what comes later is not seen, which `why` tells.
    :param journal: ask the journal when /dev/kmsg may not be read (it costs up to a few seconds).
    :param kmsg: another file to read in the place of /dev/kmsg: a log as /dev/kmsg, dmesg or the journal print it.

    Events are `kind, bus_id, xid, pid, line`. Kinds about cards: xid, gpu_lost, needs_reset (NVIDIA), gpu_reset, ring_timeout,
    page_fault (AMD, Hygon); about the host: oom_kill, hung_task, segfault. Only those of an Xid are one for each line; of the
    others the last with the same card and process stands for all.
    """
    found = _from_kmsg(kmsg, limit_s)
    if not found.readable and journal:
        found = _from_journal(min(limit_s, JOURNAL_LIMIT_S), found)
    return {
        "readable": found.readable,
        "why": found.why,
        "events": events(found.lines)[-EVENTS_SHOWN:],
        "lines": found.lines[-LINES_SHOWN:],
    }


def matters(line: str) -> bool:
    """Is a line about a card, lack of memory, a hung task or a crash of an engine?"""
    return any(word in line for word in _WORDS) and _MATTERS.search(line) is not None


def events(lines: Iterable[str]) -> List[Dict[str, Any]]:
    """Events in lines of the kernel log. A pure function."""
    found: List[Tuple[int, Dict[str, Any]]] = []
    theirs = []
    for number, line in enumerate(lines):
        if "NVRM:" in line:
            theirs.append((number, line))
            continue
        event = _event(line)
        if event is not None:
            found.append((number, event))
        elif found and found[-1][1]["kind"] in _WITH_PROCESS and number - found[-1][0] < 3:
            said = _FOR_PROCESS.search(line)
            if said and found[-1][1]["pid"] is None:
                found[-1][1]["pid"] = int(said.group(1))
    once = {(event["kind"], event["bus_id"], event["pid"]): (number, event) for number, event in found}
    return [event for _, event in sorted([*once.values(), *_nvidia(theirs)], key=lambda pair: pair[0])]


def _event(line: str) -> Optional[Dict[str, Any]]:
    for kind, pattern in _KINDS:
        said = pattern.search(line)
        if said:
            said = said if any(said.groups()) else _FOR_PROCESS.search(line)
            pid = next((group for group in said.groups() if group), None) if said else None
            at = _BUS_ID.search(line)
            return {
                "kind": kind,
                "bus_id": at.group(1) if at else "",
                "xid": None,
                "pid": int(pid) if pid else None,
                "line": line,
            }
    return None


def _nvidia(numbered: List[Tuple[int, str]]) -> List[Tuple[int, Dict[str, Any]]]:
    """Events of NVIDIA's lines. Errors are read from all of them together: a sentence can go over two lines."""
    if not numbered:
        return []
    from ansible_collections.modelyard.core.plugins.module_utils.survey import card_records, nvidia_smi  # noqa: PLC0415

    found = []
    last, said_in = numbered[-1], {}
    for number, line in numbered:
        alone = nvidia_smi.read_nvidia_smi(line, {"format": "kernel_log"})
        said_in.update({(error["kind"], error["bus_id"]): (number, line) for error in alone["errors"]})
        for event in alone["kernel_events"]:
            kept = {"kind": "xid", "bus_id": card_records.address(event["bus_id"]), "xid": event["xid"], "pid": event["pid"]}
            found.append((number, {**kept, "line": line}))
    whole = nvidia_smi.read_nvidia_smi("\n".join(line for _, line in numbered), {"format": "kernel_log"})
    for error in whole["errors"]:
        number, line = said_in.get((error["kind"], error["bus_id"]), last)
        kept = {"kind": error["kind"], "bus_id": card_records.address(error["bus_id"]), "xid": None, "pid": None, "line": line}
        found.append((number, kept))
    return found


def _from_kmsg(path: str, limit_s: float) -> Lines:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as exc:
        restricted = " (kernel.dmesg_restrict is 1)" if pci.read(RESTRICTION) == "1" else ""
        return Lines(False, f"this user may not read {path}{restricted}: {exc.strerror}", [])
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return _kept(_of_file(descriptor), limit_s, READ_BYTES)
        # In some containers it is another name of the console, and reading that would take somebody's input away.
        if not stat.S_ISCHR(status.st_mode) or (os.major(status.st_rdev), os.minor(status.st_rdev)) != KMSG_NUMBER:
            return Lines(False, f"{path} is not the kernel's log here (a container?)", [])
        return _kept(_records(descriptor), limit_s, RING_BYTES)
    except OSError as exc:
        return Lines(False, f"{path}: {exc.strerror}", [])
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterator[bytes]:
    """Every record that the kernel still has. One is given at each read."""
    while True:
        try:
            record = os.read(descriptor, RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            record = b"\n"  # records were overwritten while we read: the next read goes on with the oldest that is left
        if not record:
            return
        yield record


def _of_file(descriptor: int) -> Iterator[bytes]:
    left = os.fstat(descriptor).st_size
    os.lseek(descriptor, max(0, left - READ_BYTES), os.SEEK_SET)
    data = b""
    while len(data) < READ_BYTES:
        chunk = os.read(descriptor, READ_BYTES)
        if not chunk:
            break
        data += chunk
    yield from data.splitlines()


def _kept(records: Iterable[bytes], limit_s: float, limit_bytes: int) -> Lines:
    """The last lines that matter, in dmesg's form."""
    until = time.monotonic() + limit_s
    kept: Deque[str] = deque(maxlen=LINES_KEPT)
    size = 0
    try:
        for record in records:
            size += len(record)
            if size > limit_bytes or time.monotonic() > until:
                return Lines(True, "the log is long: its newest part was not read", [*kept])
            # A record's further lines are its properties.
            text = record.partition(b"\n")[0].decode("utf-8", "replace")
            if matters(text):
                kept.append(_plain(text))
    except OSError as exc:
        return Lines(True, f"reading broke off: {exc.strerror}", [*kept])
    return Lines(True, "", [*kept])


def _plain(text: str) -> str:
    """`4,1234,5678901,-;text` as dmesg prints it."""
    found = _SERIAL.fullmatch(text)
    return f"[{int(found.group('us')) / 1e6:12.6f}] {found.group('text')}" if found else text


def _from_journal(limit_s: float, before: Lines) -> Lines:
    program = tool.find("journalctl", tool.SYSTEM_FOLDERS, "")
    if not program:
        return before
    said = tool.run([program, *JOURNAL], limit_s, keep=READ_BYTES)
    lines = [line for line in said["stdout"].splitlines() if not line.startswith("-- ")]
    if said["timed_out"]:
        return Lines(False, f"{before.why}; the journal did not answer within {limit_s:g} s", [])
    if said["rc"] != 0 or not lines or "not seeing messages" in said["stderr"]:
        return Lines(False, f"{before.why}; nor does the journal show it (groups adm and systemd-journal may see it)", [])
    return Lines(True, "", [line for line in lines if matters(line)][-LINES_KEPT:])
