"""Ending a run: first ansible-playbook is asked, then it is ended; and what it is called with."""

from __future__ import annotations

import signal
import subprocess
import sys

from modelyard.accept import play

#: With a handler of its own: what is started in the background inherits that SIGINT is ignored.
WAITING = """
import signal, time
signal.signal(signal.SIGINT, lambda *_: print("asked", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def waiting():
    """A process that says when it was asked to end and does not."""
    process = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def end(process):
    process.kill()
    process.wait()
    process.stdout.close()


def test_nothing_is_ended_without_a_reason():
    assert play.Stop(60, lambda: 1)() is False


def test_at_the_limit_it_is_asked_first_and_ended_after_a_grace(monkeypatch):
    process = waiting()
    stop = play.Stop(0, lambda: process.pid)
    assert stop() is False
    assert process.stdout.readline() == "asked\n"
    assert stop() is False
    assert "was not done after 0 s (limit_s)" in stop.why
    assert stop.signals == []
    monkeypatch.setattr(play, "GRACE_S", 0.0)
    assert stop() is True
    end(process)


def test_a_second_signal_ends_it_at_once():
    process = waiting()
    stop = play.Stop(60, lambda: process.pid)
    stop.handle(signal.SIGTERM, None)
    assert stop() is False
    assert stop.why == "the run was ended by SIGTERM"
    stop.handle(signal.SIGINT, None)
    assert stop() is True
    end(process)


def test_what_has_not_begun_is_ended_at_once():
    stop = play.Stop(60, lambda: 0)
    stop.handle(signal.SIGINT, None)
    assert stop() is True


def test_inventories_have_their_whole_path_and_lists_of_hosts_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod").mkdir()
    words = play.arguments(["prod", "server1,server2,"], "server1", ["-e", "a b"])
    assert words == ["-i", str(tmp_path / "prod"), "-i", "server1,server2,", "--limit", "server1", "-e", "a b"]


def test_host_keys_are_checked_unless_somebody_says_otherwise(tmp_path):
    found = play.environment(tmp_path, {"PATH": "/usr/bin"}, None)
    assert found["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert found["PATH"].endswith(":/usr/bin")
    assert found["ANSIBLE_CONFIG"].endswith("/ansible.cfg")
    assert play.environment(tmp_path, {"ANSIBLE_HOST_KEY_CHECKING": "False"}, None)["ANSIBLE_HOST_KEY_CHECKING"] == "False"
