"""The SSH connections of a run: of its own, short, and closed at its end."""

from __future__ import annotations

import socket
import time

import pytest

from modelyard.accept import connections, play


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A program in ssh's place, which writes down what it is asked."""
    program = tmp_path / "ssh"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ ! -e {tmp_path}/hangs ] || exec sleep 60\n', encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_each_run_has_its_own_and_closes_them(ssh):
    with connections.own() as first, connections.own() as second:
        assert first != second
        # A name of Ansible's has 10 characters, ssh adds 17 while it connects; 107 is the longest.
        assert len(str(first)) + 1 + 10 + 17 < 107
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(first / "0123456789"))
        given = play.environment(ssh, {}, first)
    server.close()
    assert given["ANSIBLE_SSH_CONTROL_PATH_DIR"] == str(first)
    assert (ssh / "asked").read_text(encoding="utf-8") == f"-F /dev/null -o ControlPath={first}/0123456789 -O exit closed\n"
    assert not first.exists()
    assert not second.exists()


def test_one_that_does_not_answer_is_left_behind(ssh, monkeypatch):
    (ssh / "hangs").touch()
    monkeypatch.setattr(connections, "LIMIT_S", 0.2)
    began = time.monotonic()
    with connections.own() as folder:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(folder / "s"))
    server.close()
    assert time.monotonic() - began < 30
    assert not folder.exists()


def test_without_room_and_without_ssh_a_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    connections.close(tmp_path / "s")
    monkeypatch.setattr(connections.tempfile, "mkdtemp", lambda **_: (_ for _ in ()).throw(OSError(28, "full")))
    with connections.own() as folder:
        assert folder is None
        assert "ANSIBLE_SSH_CONTROL_PATH_DIR" not in play.environment(tmp_path, {}, folder)
