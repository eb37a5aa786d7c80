"""Sessions of screen and tmux and units of systemd: on folders that look like a host's, and with the real programs."""

from __future__ import annotations

import os
import pty
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import sessions
from unit import fake_proc

ME = proc.user_name(os.geteuid())
HEAD = "Num               RefCount Protocol Flags    Type St Inode Path\n"


@pytest.fixture
def place():
    """A folder with a short path, because the path of a socket may have 107 letters."""
    folder = Path(tempfile.mkdtemp(prefix="my-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def host(place, monkeypatch):
    """A folder in place of /proc; screen's sockets are looked for beside it and nowhere else."""
    (place / "proc/net").mkdir(parents=True)
    (place / "proc/net/unix").write_text(HEAD)
    monkeypatch.setattr(sessions, "SCREEN_FOLDERS", (str(place / "screen"),))
    monkeypatch.setattr(sessions, "_private", lambda _: [])
    return place / "proc"


def listening(host, path, inode=11, made=True, mode=0o600):
    """A socket in the kernel's list, and its file."""
    rows = [
        f"00000000aaaaaaaa: 00000002 00000000 00010000 0001 01 {inode:5} {path}\n",
        f"00000000aaaaaaab: 00000003 00000000 00000000 0001 03 {inode + 1000:5} {path}\n",  # a connection to it
        f"00000000aaaaaaac: 00000002 00000000 00010000 0001 01 {inode + 2000:5} @abstract\n",
        f"00000000aaaaaaad: 00000003 00000000 00000000 0001 03 {inode + 3000:5}\n",
    ]
    with (host / "net/unix").open("a") as file:
        file.writelines(rows)
    if made:
        socket_file(path, mode)


def socket_file(path, mode=0o600):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
    Path(path).chmod(mode)


def never(argv, _):
    raise AssertionError(f"{argv} was started")


def look(host, run=never, denied=(), table=None):
    table = table or proc.processes(host)
    handles = opened.handles(table, host)
    seen = {pid: targets for pid, targets in handles.targets.items() if pid not in denied}
    return sessions.sessions(table, opened.Handles(seen, set(denied)), run, host)


# -- screen ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "attached"), [(0o600, False), (0o700, True), (0o601, False), (0o701, True)], ids=["", "x", "multi", "multi x"]
)
def test_a_screen_is_named_and_judged_by_its_socket(host, place, mode, attached):
    fake_proc.add(host, 7, comm="screen", command=("SCREEN", "-dmS", "first", "vllm"))
    fake_proc.add(host, 8, comm="screen", command=("screen", "-r"))
    fake_proc.add(host, 9, comm="screen", state="Z", command=())
    fake_proc.add(host, 10, comm="screener", command=("screener",))
    socket_file(place / f"screen/S-{ME}/7.second.name x", mode)
    socket_file(place / f"screen/S-{ME}/71.dead", 0o700)
    assert look(host) == [{"kind": "screen", "name": "second.name x", "pid": 7, "user": ME, "attached": attached}]


def test_a_screens_own_folder_is_found_by_the_kernels_list(host, place):
    fake_proc.add(host, 7, comm="screen", command=("SCREEN", "-S", "a"))
    listening(host, place / "own/7.a", made=False)
    socket_file(place / "own/7.renamed", 0o700)
    assert [(s["name"], s["attached"]) for s in look(host)] == [("renamed", True)]


def test_an_old_screens_pipe_counts_and_another_file_does_not(host, place):
    fake_proc.add(host, 7, comm="screen", command=("SCREEN",))
    folder = place / f"screen/S-{ME}"
    folder.mkdir(parents=True)
    (folder / "7.file").write_text("")
    os.mkfifo(folder / "7.pipe", 0o700)
    assert [(s["name"], s["attached"]) for s in look(host)] == [("pipe", True)]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("-dmS", "tiny", "vllm"), "tiny"),
        (("-S", "tiny"), "tiny"),
        (("-Stiny", "-d", "-m"), "tiny"),
        (("-c", "-S", "-L", "-S", "tiny"), "tiny"),
        (("-d", "-m", "vllm", "-S", "no"), ""),
        (("-dmS",), ""),
        ((), ""),
    ],
)
def test_without_a_socket_the_name_is_read_from_the_arguments(host, arguments, name):
    fake_proc.add(host, 7, comm="screen", command=("SCREEN", *arguments))
    assert [(s["name"], s["attached"]) for s in look(host)] == [(name, None)]


def test_a_socket_that_cannot_be_reached_still_gives_the_name(host, place):
    fake_proc.add(host, 7, comm="screen", command=("SCREEN",))
    listening(host, place / "absent/7.tiny", made=False)
    assert [(s["name"], s["attached"]) for s in look(host)] == [("tiny", None)]


def test_a_users_own_folders_are_below_his_home_and_in_our_environment(monkeypatch):
    monkeypatch.setenv("SCREENDIR", "/srv/screens")
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert sessions._private(os.geteuid()) == ["/srv/screens", f"{home}/.screen"]
    assert sessions._private(3999999) == []


# -- tmux -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tmux_program(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")


def test_a_tmux_server_of_this_user_is_asked_for_its_sessions(host, place, tmux_program):
    fake_proc.add(host, 7, comm="tmux: server", files=("socket:[11]",))
    fake_proc.add(host, 8, comm="tmux: client", files=("socket:[1011]",))
    listening(host, place / "any/where", 11)
    listening(host, place / "other", 12)
    asked = []

    def run(argv, limit_s):
        asked.append((argv, limit_s))
        return "0 zwei\n2 one two: 3\n"

    assert [(s["name"], s["attached"], s["pid"]) for s in look(host, run)] == [("one two: 3", True, 7), ("zwei", False, 7)]
    assert asked == [(["/bin/tmux", "-u", "-S", f"{place}/any/where", "list-sessions", "-F", asked[0][0][-1]], 2.0)]


@pytest.mark.parametrize(("mode", "attached"), [(0o660, False), (0o760, True)])
@pytest.mark.parametrize("said", [None, "", "error connecting"])
def test_a_server_that_does_not_answer_is_listed_without_a_name(host, place, tmux_program, said, mode, attached):
    fake_proc.add(host, 7, comm="tmux: server", files=("socket:[11]",))
    listening(host, place / "one", 11, mode=mode)
    found = look(host, lambda *_: said)
    assert found == [{"kind": "tmux", "name": "", "pid": 7, "user": ME, "attached": attached}]
    assert sessions.servers(found) == [7]


def test_servers_of_other_users_are_listed_and_not_asked(host, place, tmux_program, monkeypatch):
    fake_proc.add(host, 7, comm="tmux: server", files=("socket:[11]",))
    listening(host, place / "one", 11, mode=0o700)
    table = {pid: process._replace(uid=3999999) for pid, process in proc.processes(host).items()}
    expected = {"kind": "tmux", "name": "", "pid": 7, "user": "3999999"}
    assert look(host, table=table) == [{**expected, "attached": True}]
    # Its descriptors may not be read: the one socket in its user's folder.
    (place / "one").unlink()
    listening(host, place / "tmux-3999999/default", 12, mode=0o600)
    assert look(host, table=table, denied=[7]) == [{**expected, "attached": False}]
    two = {**table, 8: table[7]._replace(pid=8)}
    assert [session["attached"] for session in look(host, table=two, denied=[7, 8])] == [None, None]
    listening(host, place / "tmux-3999999/second", 13, mode=0o700)
    assert look(host, table=table, denied=[7]) == [{**expected, "attached": None}]


def test_without_the_program_the_socket_tells_what_it_can(host, place, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    fake_proc.add(host, 7, comm="tmux: server", files=("socket:[11]",))
    listening(host, place / "one", 11)
    assert [(s["name"], s["attached"]) for s in look(host)] == [("", False)]


def test_an_old_tmux_gives_server_and_client_one_name(host, place, tmux_program):
    for pid, files in ((7, ("socket:[11]",)), (8, ("socket:[1011]",))):
        fake_proc.add(host, pid, comm="tmux", files=files)
    listening(host, place / "one", 11)
    assert [(s["name"], s["pid"]) for s in look(host, lambda *_: "1 a\n")] == [("a", 7)]


def test_a_host_without_servers_is_not_searched(host, monkeypatch):
    fake_proc.add(host, 7)
    monkeypatch.setattr(sessions, "_sockets", never)
    assert look(host) == []


# -- systemd --------------------------------------------------------------------------------------------------------

LISTED = """\
ssh.service loaded active running OpenBSD Secure Shell server
vllm-tiny.service loaded failed failed vLLM for tiny
● tiny-b.service loaded failed failed with a mark
tiny-gone.service not-found inactive dead tiny-gone.service
run-tiny\\x2dc.scope loaded active running /usr/bin/vllm
cut
"""


def systemd(root, comm="systemd"):
    fake_proc.add(root, 1, comm=comm)
    (root / "system").mkdir()
    return {"user_runtime": str(root / "none"), "system_runtime": root / "system", "proc_root": root}


def test_units_whose_name_holds_a_services_are_listed(tmp_path):
    asked = []

    def run(argv, limit_s):
        asked.append((argv[0], "--user" in argv, limit_s))
        return LISTED

    places = systemd(tmp_path)
    assert sessions.units(["tiny", ""], run, **places) == [
        {"name": "vllm-tiny.service", "state": "failed", "scope": "system"},
        {"name": "tiny-b.service", "state": "failed", "scope": "system"},
        {"name": "run-tiny\\x2dc.scope", "state": "active", "scope": "system"},
    ]
    assert [u["name"] for u in sessions.units(["tiny-c"], run, **places)] == ["run-tiny\\x2dc.scope"]
    assert asked == [("systemctl", False, 3.0)] * 2


def test_units_of_the_users_own_manager_are_asked_for_where_it_runs(tmp_path):
    asked = []

    def run(argv, _):
        asked.append(argv)
        return "tiny.service loaded active running x\n" if "--user" in argv else None

    (tmp_path / "mine/systemd").mkdir(parents=True)
    places = {**systemd(tmp_path), "user_runtime": str(tmp_path / "mine")}
    assert sessions.units(["tiny"], run, **places) == [{"name": "tiny.service", "state": "active", "scope": "user"}]
    assert asked[1][:4] == ["env", f"XDG_RUNTIME_DIR={tmp_path}/mine", "systemctl", "--user"]


@pytest.mark.parametrize("why", ["other init", "no names", "no process 1", "not booted"])
def test_without_systemd_nothing_is_asked(tmp_path, why):
    places = systemd(tmp_path, "python" if why == "other init" else "systemd")
    if why == "no process 1":
        shutil.rmtree(tmp_path / "1")
    elif why == "not booted":
        (tmp_path / "system").rmdir()
    assert sessions.units([] if why == "no names" else ["tiny"], never, **places) == []


def test_what_a_program_prints_is_taken_only_if_it_ends_well_and_in_time():
    assert sessions.output([sys.executable, "-c", "import os; print(os.environ['LC_ALL'])"], 20) == "C\n"
    assert sessions.output([sys.executable, "-c", "print(1); exit(3)"], 20) is None
    assert sessions.output(["/nonexistent/program"], 1) is None
    began = time.monotonic()
    assert sessions.output(["sleep", "60"], 0.2) is None
    assert time.monotonic() - began < 20


# -- the real programs ----------------------------------------------------------------------------------------------


def real(pid):
    """The sessions of one real server."""
    table = proc.processes()
    return [session for session in sessions.sessions(table, opened.handles(table)) if session["pid"] == pid]


def attach(argv):
    """A program on a terminal of its own, in a session of its own."""
    mine, its = pty.openpty()
    child = subprocess.Popen(
        argv, stdin=its, stdout=its, stderr=its, start_new_session=True, env={**os.environ, "TERM": "xterm", "TMUX": ""}
    )
    os.close(its)
    return child, mine


needs_screen = pytest.mark.skipif(shutil.which("screen") is None, reason="screen is not installed")
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@needs_screen
def test_a_real_screen_is_seen_detached_attached_and_renamed(place, monkeypatch):
    # The folder is not in our environment when we look: it is found through the kernel's list.
    place.chmod(0o700)
    environment = {**os.environ, "SCREENDIR": str(place)}
    subprocess.run(["screen", "-dmS", "tiny one", "sleep", "600"], env=environment, check=True)
    harness.until(lambda: list(place.iterdir()), 10, "the socket is there")
    pid = int(next(place.iterdir()).name.partition(".")[0])
    client = terminal = None
    try:
        expected = {"kind": "screen", "name": "tiny one", "pid": pid, "user": ME}
        harness.until(lambda: real(pid) == [{**expected, "attached": False}], 10, "detached")
        monkeypatch.setenv("SCREENDIR", str(place))
        client, terminal = attach(["screen", "-r", str(pid)])
        monkeypatch.delenv("SCREENDIR")
        harness.until(lambda: real(pid) == [{**expected, "attached": True}], 10, "attached")
        assert len(real(client.pid)) == 0
        if ME == "nobody":
            return  # screen gives no orders of a user with this name
        subprocess.run(["screen", "-S", str(pid), "-X", "sessionname", "two"], env=environment, check=True)
        harness.until(lambda: real(pid) == [{**expected, "name": "two", "attached": True}], 10, "renamed")
    finally:
        if client:
            harness.end(client)
            os.close(terminal)
        os.kill(pid, signal.SIGKILL)
    harness.until(lambda: not harness.alive(pid), 10, "the server has ended")
    assert list(place.iterdir()) != []  # it left its socket behind
    assert real(pid) == []


@needs_tmux
def test_a_real_tmux_is_seen_with_all_its_sessions_detached_and_attached(place):
    socket_path = str(place / "s")
    ask = ["tmux", "-f", "/dev/null", "-u", "-S", socket_path]
    environment = {key: value for key, value in os.environ.items() if key != "TMUX"}
    subprocess.run([*ask, "new-session", "-d", "-s", "tiny ü", "sleep 600"], env=environment, check=True)
    shown = subprocess.run([*ask, "display-message", "-p", "#{pid}"], env=environment, check=True, capture_output=True, text=True)
    pid = int(shown.stdout)
    client = terminal = None
    try:
        subprocess.run([*ask, "new-session", "-d", "-s", "b", "sleep 600"], env=environment, check=True)
        first = {"kind": "tmux", "name": "b", "pid": pid, "user": ME, "attached": False}
        assert real(pid) == [first, {**first, "name": "tiny ü"}]
        client, terminal = attach([*ask, "attach", "-t", "b"])
        harness.until(lambda: real(pid) == [{**first, "attached": True}, {**first, "name": "tiny ü"}], 10, "attached")
        # One that is stopped does not answer; its socket still tells that somebody is attached.
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        assert real(pid) == [{**first, "name": "", "attached": True}]
        assert time.monotonic() - began < 20
    finally:
        os.kill(pid, signal.SIGKILL)
        if client:
            harness.end(client)
            os.close(terminal)
    harness.until(lambda: not harness.alive(pid), 10, "the server has ended")
    assert real(pid) == []
