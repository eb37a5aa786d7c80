"""Control of a running gateway: what HAProxy and nginx say, and how they are told. Real outputs lie in tests/fixtures/gateway."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import connections, control, haproxy, nginx, own
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from harness import ROOT
from unit import fake_proc

STAT = (ROOT / "tests/fixtures/gateway/haproxy-2.6.12-show-stat.csv").read_text(encoding="utf-8")
BACKENDS = """# Written by Modelyard.
server 127.0.0.1:8002 max_fails=3 fail_timeout=10s; # qwen/0
server 127.0.0.1:8003 max_fails=3 fail_timeout=10s max_conns=4 down; # qwen/1
"""
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def test_what_haproxy_says_of_its_servers():
    found = [haproxy.described(row, row["svname"]) for row in haproxy.servers(STAT)]
    assert [one["name"] for one in found] == ["b0", "b1", "b2", "b3"]
    assert [one["state"] for one in found] == ["up", "up", "down", "up"]
    assert [one["draining"] for one in found] == [False, False, False, True]
    assert found[2]["why"] == "DOWN, last look: Layer7 wrong status, 503, Unavailable"
    assert found[0]["why"] == ""
    assert (found[0]["picked"], found[0]["status"]["2xx"], found[0]["in_flight"]) == (3, 2, 0)
    assert found[1]["status"]["4xx"] == 1
    assert [one["errors"]["broken"] for one in found] == [1, 0, 2, 1]
    assert [one["errors"]["client_gone"] for one in found] == [0, 1, 0, 0]


def test_states_that_haproxy_counts_up_and_down():
    row = haproxy.servers(STAT)[0]
    for said, state in (
        ("UP 1/2", "up"),
        ("DOWN 1/2", "down"),
        ("MAINT", "down"),
        ("no check", "unknown"),
        ("new word", "unknown"),
    ):
        assert haproxy.described({**row, "status": said}, "x")["state"] == state


def test_a_socket_that_nobody_answers_is_named(tmp_path):
    with pytest.raises(GatewayError, match="HAProxy does not answer"):
        haproxy.ask(tmp_path, "show info")
    assert haproxy.worker(tmp_path) == 0


def test_the_socket_may_lie_deep(tmp_path):
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    folder = os.open(deep, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/{haproxy.SOCKET}")
        with pytest.raises(GatewayError, match="refused"):
            haproxy.ask(deep, "show info")
    os.close(folder)


def test_engines_of_nginx_are_taken_out_and_in():
    assert nginx.drained(BACKENDS) == {"qwen/0": False, "qwen/1": True}
    out = nginx.changed(BACKENDS, "qwen/0", True)
    assert out == BACKENDS.replace("10s; # qwen/0", "10s down; # qwen/0")
    assert nginx.changed(out, "qwen/0", True) == out
    assert nginx.changed(out, "qwen/0", False) == BACKENDS
    assert nginx.drained(nginx.changed(BACKENDS, "qwen/1", False)) == {"qwen/0": False, "qwen/1": False}
    with pytest.raises(GatewayError, match=r"no engine qwen/2; it has qwen/0, qwen/1"):
        nginx.changed(BACKENDS, "qwen/2", True)


def test_connections_to_an_engine_are_counted(tmp_path):
    # 0100007F:1F42 is 127.0.0.1:8002. Of three that are open two are this gateway's; one has been closed by the engine (08).
    fake_proc.add(tmp_path, 100, ppid=1, files=("/dev/null",))
    fake_proc.add(tmp_path, 101, ppid=100, files=("socket:[1]", "socket:[4]", "socket:[5]", "socket:[7]"))
    fake_proc.add(tmp_path, 102, ppid=101, files=("socket:[2]",))
    fake_proc.add(tmp_path, 200, ppid=1, files=("socket:[3]",))
    rows = [
        *((1, "0100007F:1F42", "01"), (2, "0100007F:1F42", "05"), (3, "0100007F:1F42", "01")),
        *((4, "0100007F:1F43", "01"), (5, "0100007F:1F42", "08"), (6, "00000000:0000", "0A"), (7, "0200007F:1F42", "01")),
    ]
    (tmp_path / "net").mkdir()
    lines = [
        f" 0: 0100007F:9C40 {to} {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1\n" for inode, to, state in rows
    ]
    (tmp_path / "net/tcp").write_text(HEAD + "".join(lines), encoding="ascii")
    assert connections.to("127.0.0.1", 8002, 100, tmp_path) == 2
    assert connections.to("127.0.0.1", 8003, 100, tmp_path) == 1
    assert connections.to("127.0.0.1", 8002, 200, tmp_path) == 1
    assert connections.to("127.0.0.1", 8002, 999, tmp_path) == 0


def test_addresses_are_those_of_the_kernel():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        host, port = listener.getsockname()
        assert connections.to(host, port, os.getpid()) == 0
        with socket.create_connection((host, port)):
            assert connections.to(host, port, os.getpid()) == 1


def test_without_a_gateway_it_is_said(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(GatewayError, match="no gateway runs in"):
        control.leader(tmp_path)
    (tmp_path / "run" / control.PID_FILE).write_text("4194305\n", encoding="ascii")  # above what Linux gives
    with pytest.raises(GatewayError, match="no gateway runs in"):
        control.leader(tmp_path)


def test_a_program_that_is_not_there_is_named(tmp_path):
    (tmp_path / "run").mkdir()
    spec = {"kind": "haproxy", "program": "/nowhere/haproxy", "keys_file": "", "backend_key_file": "", "backends": []}
    assert "/nowhere/haproxy" in control.check_config(tmp_path, spec)


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_keys_that_nobody_would_check_are_refused(tmp_path, kind):
    spec = {"kind": kind, "program": "/bin/true", "keys_file": "keys", "backend_key_file": "", "backends": []}
    (tmp_path / "run").mkdir()
    assert control.check_config(tmp_path, spec).startswith(f"keys_file: {kind} passes API keys through")
    assert control.check_config(tmp_path, {**spec, "keys_file": ""}) == ""


def test_an_admin_port_without_a_gateway_is_named(tmp_path: Path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        spec = {"admin_host": "127.0.0.1", "admin_port": one.getsockname()[1], "admin_token_file": ""}
        with pytest.raises(GatewayError, match="refused"):
            own.ask(spec, "GET", "/gateway/status")
    with pytest.raises(GatewayError, match="token cannot be read"):
        own.ask({**spec, "admin_token_file": str(tmp_path / "none")}, "GET", "/gateway/status")


@pytest.mark.parametrize("text", ['a"b', "a'b", "a;b", "a\nb", "a$b", "a{b", "a#b", "a%b", "a\\b"])
def test_what_would_not_stay_one_word_is_refused(tmp_path, text):
    backend = {"index": 0, "name": "qwen/0", "host": "127.0.0.1", "port": 8002, "drained": False}
    spec = {"kind": "nginx", "program": "/bin/true", "keys_file": "", "backend_key_file": "", "run_dir": "/srv/a b/run"}
    (tmp_path / "run").mkdir()
    assert control.check_config(tmp_path, {**spec, "backends": [backend]}) == ""
    said = control.check_config(tmp_path, {**spec, "run_dir": text, "backends": [{**backend, "name": text}]})
    assert "run_dir" in said and "backends.0.name" in said


def prepared(tmp_path, monkeypatch):
    """The token file of a gateway below the home `tmp_path`, made by `prepare`."""
    monkeypatch.setattr(control, "check_config", lambda folder, spec: "")
    folder = tmp_path / "services/a.gateway/instance-0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run/admin_token"
    assert control.prepare(folder, {"kind": "modelyard", "admin_token_file": str(path)}) == ""
    return path


def test_prepare_makes_one_admin_token_that_only_its_owner_reads(tmp_path, monkeypatch):
    tokens = [prepared(tmp_path, monkeypatch).read_text() for _ in range(2)]
    assert (tokens[0] == tokens[1], len(tokens[0].strip())) == (True, 32)
    assert prepared(tmp_path, monkeypatch).stat().st_mode & 0o777 == 0o600


def test_prepare_keeps_out_of_nginx_who_is_out_and_forgets_who_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "check_config", lambda folder, spec: "")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/backends.conf").write_text("server 127.0.0.1:1 down; # a/0\nserver 127.0.0.1:2 down; # a/1\n")
    (tmp_path / "backends.conf").write_text("# new\nserver 127.0.0.1:1; # a/0\nserver 127.0.0.1:3; # a/2\n")
    control.prepare(tmp_path, {"kind": "nginx"})
    assert nginx.drained((tmp_path / "run/backends.conf").read_text()) == {"a/0": True, "a/2": False}
