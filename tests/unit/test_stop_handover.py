"""A stop that was ordered by another one: when it is one, and what it tells that one."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import threading

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import account, before, handover, signals
from unit import worlds


def made(tmp_path, count=2):
    for index in range(count):
        (layout.instance_dir(str(tmp_path), "tiny", index) / "run").mkdir(parents=True)
    return account.Account(str(tmp_path), "tiny")


def test_a_stop_is_ordered_while_another_one_holds_all_its_folders(tmp_path):
    made(tmp_path)
    home = str(tmp_path)
    assert not handover.is_ordered(home, "tiny", [0])
    with before.alone(home, "tiny", [0], 0.0, print):
        assert handover.is_ordered(home, "tiny", [0])
        assert not handover.is_ordered(home, "tiny", [0, 1])
        assert not handover.is_ordered(home, "tiny", [])
        assert not handover.is_ordered(home, "tiny", [7])
    assert not handover.is_ordered(home, "tiny", [0])


def test_asking_takes_the_folder_from_nobody(tmp_path):
    made(tmp_path)
    handover.is_ordered(str(tmp_path), "tiny", [0])
    said = []
    with before.alone(str(tmp_path), "tiny", [0], 0.0, said.append):
        assert said == []


def test_a_file_system_without_locks_has_no_ordered_stops(tmp_path, monkeypatch):
    made(tmp_path)

    def refused(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    assert not handover.is_ordered(str(tmp_path), "tiny", [0])


def test_what_the_inner_stop_did_is_told_at_its_time(tmp_path):
    outer = made(tmp_path)
    outer.say("drained")
    inner = account.Account(str(tmp_path), "tiny", [0])
    inner.began = outer.began + 10
    inner.actions = [(0.5, "SIGINT to 7 (vllm): asked to stop")]
    inner.signalled = [{"pid": 7, "start": 8, "signal": "SIGINT"}]
    handover.leave(inner)
    told = []
    outer.tell = told.append
    handover.take_over(outer)
    assert outer.actions == [(0.0, "drained"), (10.5, "SIGINT to 7 (vllm): asked to stop")]
    assert (outer.signalled, told) == (inner.signalled, ["SIGINT to 7 (vllm): asked to stop"])
    assert list(tmp_path.rglob(handover.NOTE)) == []


@pytest.mark.parametrize(
    "note",
    ["", "[]", "{}", '{"actions": 7, "signalled": 7}', '{"actions": [1, [2], ["a", "b"], [1, 2]], "signalled": [1, {"pid": 3}]}'],
)
def test_a_note_that_people_have_edited_tells_nothing(tmp_path, note):
    outer = made(tmp_path)
    for index in (0, 1):
        (layout.instance_dir(str(tmp_path), "tiny", index) / "run" / handover.NOTE).write_text(note)
    handover.take_over(outer)
    assert (outer.actions, outer.signalled) == ([], [])


def test_an_old_note_is_forgotten_and_a_disk_that_takes_none_is_no_failure(tmp_path, monkeypatch):
    inner = made(tmp_path)
    handover.leave(inner)
    handover.forget(inner)
    assert list(tmp_path.rglob(handover.NOTE)) == []

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layout, "write_json", full)
    handover.leave(inner)


HELD = """
import os, signal, sys, threading, time
sys.path.insert(0, {collections!r})
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import signals
threading.Thread(target=time.sleep, args=(5,), daemon=True).start()  # the kernel may give it the signal
with signals.held_back():
    os.kill(os.getpid(), {number})
    time.sleep(0.2)
    print("written", flush=True)
print("said", flush=True)
time.sleep(0.2)
os.kill(os.getpid(), {number})
time.sleep(5)
"""


@pytest.mark.parametrize(
    ("number", "said", "code"),
    [(signal.SIGINT, ["written", "said"], 130), (signal.SIGTERM, ["written"], -15), (signal.SIGHUP, ["written"], -1)],
)
def test_signals_wait_for_the_last_step_and_a_ctrl_c_is_forgotten(number, said, code):
    text = HELD.format(collections=str(worlds.ROOT / "collections"), number=int(number))
    words = [sys.executable, "-c", f"try:\n  exec({text!r})\nexcept KeyboardInterrupt:\n  import sys; sys.exit(130)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=usual)
    assert (done.stdout.split(), done.returncode) == (said, code), done.stderr


def usual():
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def test_outside_of_the_main_thread_nothing_is_held_back_and_nothing_fails():
    ran = []

    def step():
        with signals.held_back():
            ran.append(True)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert ran == [True]
