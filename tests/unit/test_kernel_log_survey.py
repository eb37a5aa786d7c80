from __future__ import annotations

import errno
import os
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import kernel_log
from unit import worlds

FIXTURES = worlds.ROOT / "tests" / "fixtures" / "nvidia"
OOM = "Out of memory: Killed process 17377 (vllm) total-vm:1763240kB, anon-rss:417200kB, UID:0 pgtables:1892kB oom_score_adj:0"
HUNG = "INFO: task VLLM::Worker:4711 blocked for more than 122 seconds."
FAULT = "amdgpu 0000:65:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:200)"
NOISE = [
    "Linux version 6.8.0 (buildd@host) (gcc) #1 SMP",
    "amdgpu 0000:44:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
    "[drm] amdgpu kernel modesetting enabled.",
    "nvidia: loading out-of-tree module taints kernel.",
    "nvidia 0000:01:00.0: enabling device (0000 -> 0003)",
    "usb 1-1: device descriptor read/64, error -71",
    "bash[12]: segfault at 0 ip 0 sp 0 error 4 in bash[1000]",
    "EXT4-fs error (device sda1): ext4_find_entry",
]


def a_log(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "kmsg"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def kinds(found: dict) -> list[tuple]:
    return [(e["kind"], e["bus_id"], e["xid"], e["pid"]) for e in found["events"]]


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("dmesg-xid-79.log", [("xid", "0000:01:00.0", 79, None), ("gpu_lost", "0000:01:00.0", None, None)]),
        (
            "dmesg-xid-31-4090.log",
            [("xid", "0000:01:00.0", 31, 14292), ("xid", "0000:01:00.0", 31, 14566)],
        ),
        (
            "dmesg-xid-154.log",
            [
                ("xid", "0009:01:00.0", 154, None),
                ("needs_reset", "0009:01:00.0", None, None),
                ("xid", "0019:01:00.0", 154, None),
                ("needs_reset", "0019:01:00.0", None, None),
                ("xid", "0018:01:00.0", 154, None),
                ("needs_reset", "0018:01:00.0", None, None),
            ],
        ),
        (
            "dmesg-xid-48-63.log",
            [("xid", "0000:8a:00.0", 48, None), ("xid", "0000:8a:00.0", 63, None), ("needs_reset", "0000:8a:00.0", None, None)],
        ),
    ],
)
def test_events_of_nvidias_driver(sample, expected):
    found = kernel_log.read(5, kmsg=str(FIXTURES / sample))
    assert (found["readable"], found["why"]) == (True, "")
    assert kinds(found) == expected
    assert all(event["line"] in found["lines"] for event in found["events"])


def test_a_sentence_over_two_lines(tmp_path):
    found = kernel_log.read(5, kmsg=a_log(tmp_path, "NVRM: GPU 0000:02:00.0: GPU has fallen off", "NVRM: the bus."))
    assert kinds(found) == [("gpu_lost", "0000:02:00.0", None, None)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([OOM], ("oom_kill", "", None, 17377)),
        (["Memory cgroup out of memory: Killed process 5 (a b) total-vm:1kB"], ("oom_kill", "", None, 5)),
        ([HUNG], ("hung_task", "", None, 4711)),
        (["python3[811]: segfault at 8 ip 00007f sp 00007f error 4 in libc.so.6[7f+1]"], ("segfault", "", None, 811)),
        (["VLLM::EngineCor[812]: segfault at 8 ip 00007f"], ("segfault", "", None, 812)),
        (["worker[813]: segfault at 8 ip 00007f sp 1 error 4 in libcuda.so.580.95.05[7f+1]"], ("segfault", "", None, 813)),
        ([FAULT], ("page_fault", "0000:65:00.0", None, None)),
        ([FAULT.replace(")", ", for process python pid 9 thread a pid 8)")], ("page_fault", "0000:65:00.0", None, 9)),
        (
            [FAULT, "amdgpu 0000:65:00.0: amdgpu:  Process VLLM::EngineCor pid 7304 thread VLLM::EngineCor pid 7304"],
            ("page_fault", "0000:65:00.0", None, 7304),
        ),
        (["[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1"], ("ring_timeout", "", None, None)),
        (["hycu 0000:05:00.0: ring comp_1.1.0 timeout, signaled seq=7"], ("ring_timeout", "0000:05:00.0", None, None)),
        (["hydcu 0000:09:00.0: GPU reset begin!"], ("gpu_reset", "0000:09:00.0", None, None)),
        (["amdgpu 0000:03:00.0: [drm] device wedged, but recovered through reset"], ("gpu_reset", "0000:03:00.0", None, None)),
    ],
)
def test_other_events(tmp_path, lines, expected):
    found = kernel_log.read(5, kmsg=a_log(tmp_path, *NOISE, *lines, *NOISE))
    assert kinds(found) == [expected]
    assert found["lines"] == lines
    assert found["events"][0]["line"] == lines[0]


def test_noise_is_no_event(tmp_path):
    assert kernel_log.read(5, kmsg=a_log(tmp_path, *NOISE)) == {"readable": True, "why": "", "events": [], "lines": []}


def test_a_flood_of_one_fault_is_one_event_and_events_are_in_order(tmp_path):
    flood = [f"[{n}] {FAULT}" for n in range(3000)]
    reset = "[3001] amdgpu 0000:65:00.0: amdgpu: GPU reset begin!"
    found = kernel_log.read(5, kmsg=a_log(tmp_path, f"[0] {HUNG}", *flood, reset))
    assert kinds(found) == [("page_fault", "0000:65:00.0", None, None), ("gpu_reset", "0000:65:00.0", None, None)]
    assert found["events"][0]["line"] == flood[-1]
    assert len(found["lines"]) == 200
    assert found["lines"][-1] == reset


def test_many_xids_are_cut_to_the_newest(tmp_path):
    lines = [f"NVRM: Xid (PCI:0000:01:00): 31, pid={n}, name=python, Ch 30" for n in range(500)]
    found = kernel_log.read(5, kmsg=a_log(tmp_path, *lines))
    assert [e["pid"] for e in found["events"]] == list(range(300, 500))


def test_records_as_the_kernel_gives_them(tmp_path):
    path = a_log(
        tmp_path, f"4,1234,5678901,-;{OOM}", " SUBSYSTEM=pci", " DEVICE=+pci:0000:00:00.0", f"6,1235,9,-,caller=T1;{HUNG}"
    )
    assert kernel_log.read(5, kmsg=path)["lines"] == [f"[    5.678901] {OOM}", f"[    0.000009] {HUNG}"]


def test_the_reader_of_nvidia_lines_is_loaded_only_for_them(tmp_path, monkeypatch):
    package = "ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi"
    # Neither the module nor the name by which its package remembers it.
    monkeypatch.delitem(sys.modules, package, raising=False)
    parent = sys.modules[package.rpartition(".")[0]]
    monkeypatch.delattr(parent, "nvidia_smi", raising=False)
    kernel_log.read(5, kmsg=a_log(tmp_path, OOM, FAULT))
    assert package not in sys.modules
    kernel_log.read(5, kmsg=a_log(tmp_path, "NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python, Ch 30"))
    assert package in sys.modules


def forbidden(monkeypatch, number=errno.EPERM):
    real = os.open

    def opened(path, *arguments, **more):
        if path == "/dev/kmsg":
            raise OSError(number, os.strerror(number))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", opened)


def journalctl(monkeypatch, tmp_path, body):
    path = tmp_path / "journalctl"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setattr(kernel_log.tool, "SYSTEM_FOLDERS", (str(tmp_path), "/usr/bin", "/bin"))


def restricted(monkeypatch, tmp_path, value):
    (tmp_path / "dmesg_restrict").write_text(f"{value}\n", encoding="ascii")
    monkeypatch.setattr(kernel_log, "RESTRICTION", str(tmp_path / "dmesg_restrict"))


def test_where_the_kernels_log_is_forbidden_the_journal_is_asked(monkeypatch, tmp_path):
    forbidden(monkeypatch)
    line = "[   34.193759] node01 kernel: NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus."
    journalctl(monkeypatch, tmp_path, f'echo "$*" >{tmp_path}/asked\necho "-- Boot 1 --"\ncat <<X\n{line}\nkernel: eth0 up\nX')
    found = kernel_log.read(5)
    assert (found["readable"], found["why"], found["lines"]) == (True, "", [line])
    assert [e["kind"] for e in found["events"]] == ["xid", "gpu_lost"]
    assert (tmp_path / "asked").read_text(encoding="ascii") == "-k -b -o short-monotonic --no-pager -n 4000\n"


@pytest.mark.parametrize(
    "body",
    [
        "echo 'Hint: You are currently not seeing messages from other users and the system.' >&2; echo '[1] x kernel: a'",
        "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1",
        "echo '-- No entries --'",
    ],
)
def test_a_journal_that_shows_nothing_is_not_readable(monkeypatch, tmp_path, body):
    forbidden(monkeypatch)
    restricted(monkeypatch, tmp_path, 1)
    journalctl(monkeypatch, tmp_path, body)
    found = kernel_log.read(5)
    assert (found["readable"], found["events"], found["lines"]) == (False, [], [])
    assert found["why"] == (
        "this user may not read /dev/kmsg (kernel.dmesg_restrict is 1): Operation not permitted; "
        "nor does the journal show it (groups adm and systemd-journal may see it)"
    )


def test_a_journal_that_hangs_is_not_waited_for(monkeypatch, tmp_path):
    forbidden(monkeypatch)
    journalctl(monkeypatch, tmp_path, "exec sleep 60")
    began = time.monotonic()
    found = kernel_log.read(0.5)
    assert time.monotonic() - began < 5
    assert found["readable"] is False
    assert found["why"].endswith("the journal did not answer within 0.5 s")


def test_without_the_journal_it_is_said_why(monkeypatch, tmp_path):
    forbidden(monkeypatch)
    restricted(monkeypatch, tmp_path, 0)
    journalctl(monkeypatch, tmp_path, f": >{tmp_path}/asked")
    why = "this user may not read /dev/kmsg: Operation not permitted"
    assert kernel_log.read(5, journal=False) == {"readable": False, "why": why, "events": [], "lines": []}
    assert not (tmp_path / "asked").exists()


def test_a_console_in_its_place_is_not_read(monkeypatch):
    monkeypatch.setattr(kernel_log, "JOURNAL_LIMIT_S", 0.0)
    leader, follower = os.openpty()
    try:
        found = kernel_log.read(5, journal=False, kmsg=os.ttyname(follower))
    finally:
        os.close(leader)
        os.close(follower)
    assert found["readable"] is False
    assert "is not the kernel's log here" in found["why"]


class KernelOs:
    """The module os, in which the one file that is read is /dev/kmsg with these answers to reads: bytes, or an error."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def __getattr__(self, name):
        return getattr(os, name)

    def fstat(self, descriptor):
        return SimpleNamespace(st_mode=stat.S_IFCHR | 0o600, st_rdev=os.makedev(*kernel_log.KMSG_NUMBER))

    def read(self, descriptor, size):
        answer = next(self.answers)
        if isinstance(answer, OSError):
            raise answer
        assert len(answer) <= size
        return answer


def a_device(monkeypatch, tmp_path, answers):
    monkeypatch.setattr(kernel_log, "os", KernelOs(answers))
    return a_log(tmp_path)


def test_nothing_is_lost_when_records_are_overwritten_meanwhile(monkeypatch, tmp_path):
    answers = [
        f"4,1,1,-;{HUNG}\n".encode(),
        BrokenPipeError(errno.EPIPE, "overwritten"),
        BrokenPipeError(errno.EPIPE, "overwritten"),
        f"4,9,2,-;{OOM}\n SUBSYSTEM=x\n".encode(),
        BlockingIOError(errno.EAGAIN, "no more"),
    ]
    found = kernel_log.read(5, kmsg=a_device(monkeypatch, tmp_path, answers))
    assert [e["kind"] for e in found["events"]] == ["hung_task", "oom_kill"]
    assert (found["readable"], found["why"]) == (True, "")


def test_a_log_that_never_ends_is_read_up_to_a_limit(monkeypatch, tmp_path):
    def forever():
        while True:
            yield b"4,1,1,-;" + b"x" * 8000 + b"\n"

    monkeypatch.setattr(kernel_log, "RING_BYTES", 100000)
    found = kernel_log.read(60, kmsg=a_device(monkeypatch, tmp_path, forever()))
    assert (found["readable"], found["why"]) == (True, "the log is long: its newest part was not read")


def test_a_log_that_breaks_off_is_said(monkeypatch, tmp_path):
    path = a_device(monkeypatch, tmp_path, [f"4,1,1,-;{HUNG}\n".encode(), OSError(errno.EIO, "Input/output error")])
    found = kernel_log.read(5, journal=False, kmsg=path)
    assert (found["readable"], found["why"]) == (True, "reading broke off: Input/output error")
    assert [e["kind"] for e in found["events"]] == ["hung_task"]


def test_the_end_of_a_long_file_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_log, "READ_BYTES", 1000)
    path = a_log(tmp_path, HUNG, *(["x" * 98] * 100), OOM)
    assert kernel_log.read(5, kmsg=path)["lines"] == [OOM]


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="this user may not read /dev/kmsg")
def test_the_kernels_own_log_is_read_and_does_not_block():
    began = time.monotonic()
    found = kernel_log.read(5, journal=False)
    assert time.monotonic() - began < 5
    assert found["readable"] or found["why"]
