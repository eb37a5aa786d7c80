from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc, sockets
from hypothesis import example, given
from hypothesis import strategies as st
from unit import fake_proc


def test_a_line_of_stat_is_read_field_by_field(tmp_path):
    fake_proc.add(tmp_path, 4711, comm="VLLM::Worker_TP", state="Z", ppid=42, sid=40, start=123456)
    assert proc.read(4711, tmp_path) == proc.Process(
        pid=4711,
        ppid=42,
        pgid=40,
        sid=40,
        state="Z",
        start=123456,
        comm="VLLM::Worker_TP",
        uid=os.geteuid(),
        threads=3,
    )


@given(comm=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=15))
@example(comm="a) R 1 (b")
@example(comm="((()))")
@example(comm="new\nline")
@example(comm="")
def test_a_process_may_call_itself_anything(comm):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fake_proc.add(root, 7, comm=comm, ppid=3, start=99)
        found = proc.read(7, root)
        assert found is not None
        assert (found.comm, found.ppid, found.state, found.start) == (comm, 3, "S", 99)


GOOD = fake_proc.stat_line(7, "python").encode()


@given(content=st.binary(max_size=80) | st.integers(0, len(GOOD)).map(lambda end: GOOD[:end]))
@example(content=b"7 (a) S one two three" + b" x" * 40)
@example(content=b"")
@example(content=b")" * 60)
def test_any_content_of_stat_gives_a_process_or_none(content):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "7").mkdir()
        (root / "7/stat").write_bytes(content)
        found = proc.read(7, root)
        assert found is None or found.pid == 7
        assert set(proc.processes(root)) <= {7}


def test_a_process_that_is_gone_is_an_answer_everywhere(tmp_path):
    assert proc.read(1, tmp_path) is None
    assert proc.processes(tmp_path) == {}
    assert proc.alive(1, 1, tmp_path) is False
    assert proc.command(1, tmp_path) is None
    assert proc.environment(1, "A", tmp_path) is None
    assert proc.cwd(1, tmp_path) is None
    assert opened.mapped_files(1, tmp_path) == set()
    assert list(opened.open_files(1, tmp_path)) == []
    assert opened.shared_memory(1, tmp_path) == set()
    assert sockets.listeners(tmp_path) == []
    assert proc.identity(1, tmp_path) == (1, 0)


@pytest.mark.parametrize(
    ("state", "start", "alive"),
    [("S", 100, True), ("R", 100, True), ("Z", 100, False), ("X", 100, False), ("S", 101, False)],
)
def test_alive_means_this_very_process_and_not_a_zombie(tmp_path, state, start, alive):
    fake_proc.add(tmp_path, 7, state=state, start=100)
    assert proc.alive(7, start, tmp_path) is alive


def test_a_variable_is_read_by_its_whole_name(tmp_path):
    fake_proc.add(tmp_path, 7, environ={"XMODELYARD": "no", "MODELYARD_SERVICE": "a=b", "MODELYARD": "short"})
    assert proc.environment(7, "MODELYARD_SERVICE", tmp_path) == "a=b"
    assert proc.environment(7, "MODELYARD", tmp_path) == "short"
    assert proc.environment(7, "MODELYARD_SERVIC", tmp_path) is None


def test_an_environment_that_was_overwritten_holds_nothing(tmp_path):
    fake_proc.add(tmp_path, 7)
    (tmp_path / "7/environ").write_bytes(b"\0" * 500)
    assert proc.environment(7, "MODELYARD_SERVICE", tmp_path) is None


def test_a_semaphore_is_known_by_its_name_also_to_the_process_that_made_it():
    made = multiprocessing.get_context("spawn").Semaphore()
    assert f"sem.{made._semlock.name[1:]}" in opened.shared_memory(os.getpid())


def test_maps_and_descriptors_give_files_and_shared_memory(tmp_path):
    fake_proc.add(
        tmp_path,
        7,
        maps=("/opt/rt/lib/a b.so", "/dev/shm/psm_1", "/dev/shm/psm_gone (deleted)", "/dev/shm/models/psm_a", "[heap]", ""),
        files=("/dev/shm/sem.mp-x", "socket:[99]", "/dev/shmoo/no"),
    )
    assert opened.mapped_files(7, tmp_path) == {
        "/opt/rt/lib/a b.so",
        "/dev/shm/psm_1",
        "/dev/shm/psm_gone",
        "/dev/shm/models/psm_a",
    }
    assert opened.shared_memory(7, tmp_path) == {"psm_1", "psm_gone", "sem.mp-x"}
    assert sockets.socket_owners(opened.handles(proc.processes(tmp_path), tmp_path)) == {99: 7}


def test_only_listening_sockets_of_both_families_are_listeners(tmp_path):
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000  0 {inode} 1 0 100 0\n"
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(
        head
        + row.format(address="0100007F:1F40", state="0A", inode=11)
        + row.format(address="0100007F:1F41", state="01", inode=12)
        + "   cut"
    )
    (tmp_path / "net/tcp6").write_text(head + row.format(address="0" * 32 + ":1F42", state="0A", inode=13))
    assert sockets.listeners(tmp_path) == [
        sockets.Listener("0100007F", 8000, 11, 1000),
        sockets.Listener("0" * 32, 8002, 13, 1000),
    ]


def test_this_process_and_its_socket_are_found_on_the_real_system():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        inode = next(x.inode for x in sockets.listeners() if x.port == port)
        assert sockets.socket_owners(opened.handles({os.getpid(): proc.read(os.getpid())}))[inode] == os.getpid()


def test_a_real_process_is_alive_until_it_is_a_zombie_and_then_gone():
    child = subprocess.Popen(["sleep", "60"])
    pid, start = proc.identity(child.pid)
    try:
        assert start > 0
        assert proc.alive(pid, start)
        assert proc.cwd(pid) == str(Path.cwd())
        child.kill()
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert proc.read(pid).state == "Z"
        assert not proc.alive(pid, start)
    finally:
        child.kill()
        child.wait()
    assert proc.read(pid) is None


def test_an_account_that_nobody_knows_is_shown_by_its_number():
    assert proc.user_name(0) == "root"
    assert proc.user_name(3999999999) == "3999999999"
