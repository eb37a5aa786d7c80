"""Segments in /dev/shm: on folders that look like it, and with a few KiB in the real one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import harness
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import shared_memory
from unit import fake_proc, worlds

ME = os.geteuid()
OTHER = 3999999


@pytest.fixture
def shm(tmp_path):
    """A folder in place of /dev/shm, with one segment of this user."""
    folder = tmp_path / "shm"
    folder.mkdir()
    segment(folder, "psm_1")
    return folder


def segment(folder, name, size=5000, mode=0o600):
    file = folder / name
    file.write_bytes(b"x" * size)
    file.chmod(mode)
    return file


def table_of(**owners):
    """Processes by the name p<pid>, with their users; process 1 is always there."""
    owners = {"p1": 0, **owners}
    return {int(name[1:]): proc.Process(int(name[1:]), 1, 0, 0, "S", 0, "x", uid, 1) for name, uid in owners.items()}


def held(shm, table, targets=None, denied=(), **more):
    """{name: holders}"""
    handles = opened.Handles({pid: frozenset(files) for pid, files in (targets or {}).items()}, set(denied))
    seen = shared_memory.segments(handles, table, folder=shm, proc_root=shm.parent, **more)
    return {s["name"]: s["holders"] for s in seen["segments"]}


def test_size_user_age_and_space_are_told(shm):
    sparse = shm / "nccl-abc"
    with sparse.open("wb") as file:
        file.truncate(2**30)
        file.write(b"x" * 4096)
    sparse.chmod(0o600)
    os.utime(sparse, (time.time() - 3600, time.time() - 3600))
    os.utime(shm / "psm_1", (time.time() + 3600, time.time() + 3600))  # a clock that was set back
    seen = shared_memory.segments(opened.Handles({}, set()), {}, folder=shm, proc_root=shm.parent)
    assert 0 < seen["free_mib"] <= seen["total_mib"]
    first, second = seen["segments"]
    assert first.pop("age_s") in range(3600, 3700)
    assert 0 < first.pop("mib") < 1  # what it takes, not its length
    assert first == {"name": "nccl-abc", "user": proc.user_name(ME), "holders": []}
    assert (second["name"], second["age_s"]) == ("psm_1", 0)
    assert json.loads(json.dumps(seen)) == seen


def test_only_regular_files_with_an_engines_name_are_segments(shm):
    for name in ("model.bin", "psm_", "xpsm_1", "sem.other"):
        segment(shm, name)
    (shm / "psm_folder").mkdir()
    (shm / "psm_link").symlink_to("psm_1")
    for name in ("sem.mp-a", "vllm_b", "torch_c"):
        segment(shm, name)
    assert sorted(held(shm, {})) == ["psm_1", "sem.mp-a", "torch_c", "vllm_b"]


def test_without_the_folder_there_is_nothing(tmp_path):
    seen = shared_memory.segments(opened.Handles({}, set()), {}, folder=tmp_path / "absent")
    assert seen == {"total_mib": 0, "free_mib": 0, "segments": []}


def test_holders_are_those_that_have_it_open_or_mapped(shm):
    root = shm.parent
    fake_proc.add(root, 8, maps=(f"{shm}/psm_1", f"{shm}/psm_1", "/lib/a.so"))
    fake_proc.add(root, 9, maps=(f"{shm}/psm_1 (deleted)", f"{shm}/psm_12", f"/x{shm}/psm_1"))
    table = table_of(p7=ME, p8=ME, p9=ME)
    assert held(shm, table, {7: (f"{shm}/psm_1", f"{shm}/psm_2"), 8: (), 9: (f"{shm}2/psm_1",)}) == {"psm_1": [7, 8]}


def test_maps_of_others_than_root_and_those_who_may_open_are_not_read(shm):
    root = shm.parent
    owner = ME or 4711  # as root also for a segment of somebody else
    os.chown(shm / "psm_1", owner, -1)
    for pid in (7, 8, 9):
        fake_proc.add(root, pid, maps=(f"{shm}/psm_1", f"{shm}/psm_open"))
    table = table_of(p7=owner, p8=0, p9=OTHER)
    assert held(shm, table) == {"psm_1": [7, 8]}
    segment(shm, "psm_open", mode=0o666)
    assert held(shm, table) == {"psm_1": [7, 8, 9], "psm_open": [7, 8, 9]}


def test_nothing_is_read_without_a_segment(shm, monkeypatch):
    (shm / "psm_1").unlink()
    fake_proc.add(shm.parent, 7)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("a file was read"))
    assert held(shm, table_of(p7=ME)) == {}


@pytest.mark.parametrize(
    ("owner", "mode", "holders"),
    [(ME, 0o600, None), (OTHER, 0o600, []), (OTHER, 0o660, None), (OTHER, 0o602, None)],
    ids=["of its owner", "of another user", "open to the group", "open to all"],
)
def test_who_may_not_be_read_leaves_the_holders_unknown_if_he_could_be_one(shm, owner, mode, holders):
    (shm / "psm_1").chmod(mode)
    assert held(shm, table_of(p7=owner), denied=[7]) == {"psm_1": holders}


def test_a_holder_that_was_seen_is_told_even_if_there_may_be_more(shm):
    assert held(shm, table_of(p7=ME, p8=ME), {8: (f"{shm}/psm_1",)}, denied=[7]) == {"psm_1": [8]}


def test_a_map_that_may_not_be_read_or_could_block_leaves_the_holders_unknown(shm, monkeypatch):
    fake_proc.add(shm.parent, 7)
    table = table_of(p7=ME)
    assert held(shm, table, hung=[7]) == {"psm_1": None}
    assert held(shm, table, {7: (f"{shm}/psm_1",)}, hung=[7]) == {"psm_1": [7]}
    assert held(shm, table) == {"psm_1": []}

    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert held(shm, table) == {"psm_1": None}


def test_hidden_processes_leave_the_holders_unknown_only_of_what_they_could_open(shm):
    table = {7: table_of(p7=ME)[7]}
    assert held(shm, table) == {"psm_1": []}
    (shm / "psm_1").chmod(0o666)
    assert held(shm, table) == {"psm_1": None}


@pytest.mark.parametrize(("ipc", "holders"), [("ipc:[4026531839]", None), ("ipc:[4026532001]", [])], ids=["of the host", "own"])
def test_in_a_container_with_the_hosts_segments_holders_are_unknown(shm, ipc, holders):
    (shm.parent / "self/ns").mkdir(parents=True)
    (shm.parent / "self/ns/pid").symlink_to("pid:[4026532000]")
    (shm.parent / "self/ns/ipc").symlink_to(ipc)
    assert held(shm, table_of(p7=ME)) == {"psm_1": holders}


def test_zombies_and_threads_of_the_kernel_hold_nothing(shm):
    for pid in (7, 8):
        fake_proc.add(shm.parent, pid, maps=(f"{shm}/psm_1",))
    table = table_of(p2=0, p7=ME, p8=0)
    table[2] = table[2]._replace(comm="kthreadd")
    table[7] = table[7]._replace(state="Z")
    table[8] = table[8]._replace(ppid=2)
    assert held(shm, table, hung=[8]) == {"psm_1": []}


# -- the real one ---------------------------------------------------------------------------------------------------

# Python's own mmap would keep a second descriptor.
MAP = """
import ctypes, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
if "mapped" in sys.argv[2]: assert libc.mmap(None, ctypes.c_size_t(8192), 3, 1, file, ctypes.c_long(0)) != 2**64 - 1
if "open" not in sys.argv[2]: os.close(file)
"""
HOLDER = f"""{MAP}
print("held", flush=True)
sys.stdin.readline()
"""
HALF_ENDED = f"""{MAP}
import threading, time
def stay():
    while True: time.sleep(60)
threading.Thread(target=stay).start()
print("held", flush=True)
libc.pthread_exit(None)
"""


@pytest.fixture
def real():
    """A segment of 8 KiB in /dev/shm."""
    if not os.access(opened.SHM, os.W_OK):
        pytest.skip("this user may not write into /dev/shm")
    file = opened.SHM / f"psm_test_{os.getpid()}_{time.monotonic_ns()}"
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.write(descriptor, bytes(8192))
    os.close(descriptor)
    yield file
    with contextlib.suppress(FileNotFoundError):
        file.unlink()


def look(name):
    """The real segment with this name; None when it is not there."""
    table = proc.processes()
    handles = opened.handles(table)
    if 1 in handles.denied:  # in some sandboxes root may not look into process 1: no candidate for these tests then
        table[1] = table[1]._replace(uid=OTHER)
    seen = shared_memory.segments(handles, table)
    return next((s for s in seen["segments"] if s["name"] == name), None)


@pytest.mark.parametrize("how", ["open", "mapped", "open and mapped"])
def test_a_real_segment_is_shown_with_its_holder(real, how):
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(real), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        seen = look(real.name)
    finally:
        child.communicate(b"\n", timeout=20)
    assert (seen["user"], seen["mib"], seen["holders"]) == (proc.user_name(ME), 0.008, [child.pid])
    assert 0 <= seen["age_s"] < 60


def test_a_real_segment_that_nobody_holds_has_no_holders(real):
    assert look(real.name)["holders"] == []
    real.unlink()
    assert look(real.name) is None


def test_a_real_process_whose_leader_has_ended_holds_its_segments(real):
    child = subprocess.Popen([sys.executable, "-c", HALF_ENDED, str(real), "mapped"], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        harness.until(lambda: proc.read(child.pid).state == "Z", 10, "the leader has ended")
        assert look(real.name)["holders"] == [child.pid]
    finally:
        child.kill()
        child.communicate()


@pytest.mark.skipif(ME != 0, reason="only root can look as another user")
def test_another_user_cannot_know_the_holders(real):
    code = (
        "import json, os\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.survey import shared_memory\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "table = proc.processes(); print(json.dumps(shared_memory.segments(opened.handles(table), table)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(worlds.ROOT / "collections")},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    seen = next(s for s in json.loads(done.stdout)["segments"] if s["name"] == real.name)
    assert (seen["user"], seen["holders"]) == ("root", None)
