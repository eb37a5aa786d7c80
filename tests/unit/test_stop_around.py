"""A stop by root or by the user, and whatever hangs or fails around it."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import evidence, layout, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import look, segments, signals


def test_a_filter_of_a_container_that_does_not_know_pidfds_is_no_missing_right(monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    child = subprocess.Popen(["sleep", "60"])
    try:
        for name, place in (("pidfd_open", os), ("pidfd_send_signal", signals.signal)):
            with monkeypatch.context() as patch:
                patch.setattr(place, name, refused)
                assert signals.send(child.pid, proc.read(child.pid).start, 0) == signals.SENT
    finally:
        child.kill()
        child.wait()


def test_the_map_of_a_process_that_hangs_with_the_lock_on_its_memory_is_never_read(monkeypatch, tmp_path):
    hung = proc.Process(20, 1, 20, 20, "D", 100, "VLLM::Worker_TP", os.geteuid(), 3)
    half = hung._replace(pid=21, state="Z", uid=os.geteuid() + 1)
    read = []
    monkeypatch.setattr(opened, "SHM", tmp_path)
    monkeypatch.setattr(opened, "shared_memory", lambda pid, root: read.append(pid) or set())
    monkeypatch.setattr(segments.processes, "stuck", sorted)
    monkeypatch.setattr(segments.processes, "memory_locked", lambda process: True)
    (tmp_path / "psm_one").write_text("x")
    for table, removed in (({20: hung, 21: half}, []), ({21: half}, ["psm_one"])):
        monkeypatch.setattr(proc, "processes", lambda table=table: table)
        names, why = segments.remove_unheld({"psm_one"})
        assert (names, bool(why)) == (removed, not removed)
    assert read == []


def test_a_half_ended_process_that_hangs_is_not_read_when_it_is_looked_at_first(monkeypatch, tmp_path):
    watch = look.Watch(str(tmp_path), "tiny")
    half = proc.Process(21, 1, 21, 21, "Z", 100, "VLLM::Worker_TP", 0, 3)
    monkeypatch.setattr(look.processes, "stuck", sorted)
    monkeypatch.setattr(look.processes, "memory_locked", lambda process: True)
    assert watch._mute({21: half, 22: half._replace(pid=22, threads=1)}) == {21}


def test_root_gives_what_it_writes_to_whoever_the_service_belongs_to(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(tmp_path, 4711, 4711)
    folder, problems = evidence.keep(str(tmp_path), "tiny", "needs_admin", {"report.txt": "bytes \udcff of a name"})
    second, _ = evidence.keep(str(tmp_path), "tiny", "needs_admin", {})
    assert (problems, folder != second) == ([], True)
    layout.write_json(tmp_path / "accepted.json", {})
    made = [folder.parent, folder, folder / "report.txt", tmp_path / "accepted.json"]
    assert [path.stat().st_uid for path in made] == [4711] * 4


def test_root_cannot_stop_units_of_a_user_and_says_who_can(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = layout.instance_dir(str(tmp_path), "tiny", 0)
    folder.mkdir(parents=True)
    os.chown(folder.parent, 65534, 65534)
    assert look.no_right(str(tmp_path), "tiny") == ""
    layout.write_json(folder / "instance.json", {"supervisor": "systemd_user"})
    assert "Run it as nobody" in look.no_right(str(tmp_path), "tiny")


# -- waiting for an end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", [(), ("pidfd_open",)], ids=["told by the kernel", "a kernel that does not tell"])
def test_waiting_ends_with_the_first_process_and_never_before_its_time(lacking, monkeypatch):
    for name in lacking:
        monkeypatch.delattr(os, name)
    short, long = subprocess.Popen(["sleep", "0.3"]), subprocess.Popen(["sleep", "60"])
    try:
        began = time.monotonic()
        signals.wait_for_an_end([short.pid, long.pid], 20.0 if not lacking else 0.5)
        assert 0.2 < time.monotonic() - began < 15
        assert long.poll() is None
        short.wait()
        began = time.monotonic()
        signals.wait_for_an_end([long.pid], 0.2)
        assert time.monotonic() - began >= 0.19
    finally:
        long.kill()
        long.wait()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this Python or kernel has no descriptors of processes")
def test_a_process_that_has_gone_is_no_reason_to_wait():
    gone = subprocess.Popen(["true"])
    gone.wait()
    began = time.monotonic()
    signals.wait_for_an_end([gone.pid], 20.0)
    assert time.monotonic() - began < 10
