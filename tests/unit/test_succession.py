"""One program of a keeper after another: orders and obstacles. With real processes: tests/gateway/test_follow.py."""

from __future__ import annotations

import json
import os
import socket

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors, place
from ansible_collections.modelyard.core.plugins.module_utils.process import entry, layout, proc, succession

REQUEST = {"digest": "a", "host": "127.0.0.1", "port": 8000, "supervisor": "plain", "session": "q-gateway", "launch": {}}


def running(folder, **changes):
    """A keeper and a program that live: this very process."""
    me = proc.identity(os.getpid())
    who = {"pid": me[0], "start": me[1]}
    state = {
        "keeper": who,
        "leader": who,
        "log": "/x.log",
        "started_at": 1.0,
        "ended": None,
        "request": REQUEST,
        "boot": proc.boot_id(),
    }
    (folder / "run").mkdir(parents=True, exist_ok=True)
    layout.write_json(folder / "run/state.json", {**state, "request": REQUEST, "entry": True, "retired": [], **changes})


@pytest.mark.parametrize(
    ("state", "wanted", "words"),
    [
        ({}, {}, ""),
        ({}, {"digest": "b", "launch": {"argv": ["x"]}}, ""),
        ({}, {"port": 8001}, "port changed"),
        ({}, {"host": "0.0.0.0", "supervisor": "screen"}, "host and supervisor changed"),
        ({"entry": False}, {}, "it was started by an earlier version, whose keeper does not hold the port"),
        ({"leader": {"pid": 1, "start": -1}}, {}, "it does not run"),
        ({"boot": "another"}, {}, "it does not run"),
    ],
)
def test_what_stands_in_the_way(tmp_path, state, wanted, words):
    running(tmp_path, **state)
    assert succession.obstacle(tmp_path, {**REQUEST, **wanted}) == words


def test_a_keeper_that_does_not_obey_leaves_no_order_behind(tmp_path, monkeypatch):
    running(tmp_path)
    monkeypatch.setattr(succession, "READY_S", 0.1)
    monkeypatch.setattr(succession, "KEEPER_S", 0.1)
    with pytest.raises(succession.NotReplaced, match="its keeper did not obey"):
        succession.replace(tmp_path, {**REQUEST, "digest": "b"})
    assert not (tmp_path / "run" / succession.ORDER).exists()


def test_why_an_order_failed_is_told_and_an_old_failure_is_not(tmp_path, monkeypatch):
    old = {"digest": "0", "why": "long ago", "log": ""}
    running(tmp_path, not_replaced=old)
    monkeypatch.setattr(
        succession.time, "sleep", lambda s: running(tmp_path, not_replaced={**old, "why": "no room", "log": "/l"})
    )
    with pytest.raises(succession.NotReplaced, match="no room; its log is /l"):
        succession.replace(tmp_path, {**REQUEST, "digest": "b"})


def test_the_socket_is_handed_down_as_descriptor_three_and_a_taken_port_is_said():
    with entry.listen("127.0.0.1", 0) as made:
        port = made.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1:{port}: the port is taken by another program"):
            entry.listen("127.0.0.1", port)
        pid = os.fork()
        if pid == 0:
            entry.hand_down(made)
            got = socket.socket(fileno=entry.FD)
            os._exit(0 if os.get_inheritable(entry.FD) and got.getsockname()[1] == port else 1)
        assert os.waitpid(pid, 0)[1] == 0


def test_a_running_gateway_is_asked_as_what_it_is_and_not_as_what_follows(tmp_path, monkeypatch):
    folder = place.folder(str(tmp_path), "q")
    running(folder, request={**REQUEST, "launch": {"settings": {"kind": "nginx", "admin_port": "9001"}}})
    spec = {"kind": "haproxy", "admin_port": 8001, "backends": []}
    (folder / place.SPEC_FILE).write_text(json.dumps(spec), encoding="utf-8")
    asked = []
    monkeypatch.setattr(doors.control, "status", lambda folder, spec: asked.append(spec) or {"backends": []})
    assert doors.look(str(tmp_path), "q") == []
    assert [(one["kind"], one["admin_port"]) for one in asked] == [("nginx", 9001)]
    monkeypatch.setattr(doors.control, "prepare", lambda folder, spec: asked.append(spec) or "")
    doors.prepare(str(tmp_path), "q")
    assert asked[-1]["kind"] == "haproxy"
