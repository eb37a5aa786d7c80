"""The scripts in a service's folder, run as a person runs them, over a small program in the engine's place."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deployed
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import launch
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed as by_hand
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import status, wishes
from harness import alive, end, free_port, until

ONE, MANY = "hand-one", "hand-many"
needs_screen = pytest.mark.skipif(shutil.which("screen") is None, reason="screen is not installed")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from deployed.stopped_afterwards(tmp_path)


def one(home: Path, **changes: Any) -> Path:
    return Path(deployed.write(home, deployed.service(home, ONE, free_port(), **changes))["dir"])


def many(home: Path, replicas: int = 3, **changes: Any) -> Path:
    return Path(deployed.write(home, deployed.service(home, MANY, free_port(replicas), replicas=replicas, **changes))["dir"])


def states(folder: Path) -> list[dict[str, Any] | None]:
    return [layout.state(place) for _, place in layout.instances(str(folder.parent.parent), folder.name)]


def rows(folder: Path, script: str = "status_cluster.sh") -> dict[str, Any]:
    return json.loads(deployed.call(folder, script, "--json").stdout)


def test_start_look_and_stop_of_one_instance(home: Path) -> None:
    folder = one(home)
    assert sorted(p.name for p in folder.glob("*.sh")) == ["start.sh", "status.sh", "stop.sh"]
    nothing = deployed.call(folder, "status.sh")
    assert (nothing.returncode, "absent" in nothing.stdout) == (3, True)
    began = deployed.call(folder, "start.sh")
    assert began.returncode == 0, began.stderr
    assert "answers on /health" in began.stdout
    looked = deployed.call(folder, "status.sh")
    state = layout.state(folder / "instance-0")
    assert looked.returncode == 0
    row = looked.stdout.splitlines()[1].split()
    assert row[:3] == [f"{ONE}/0", "ready", str(state["leader"]["pid"])]
    assert row[-1] == state["log"]
    assert "\033" not in looked.stdout
    stopped = deployed.call(folder, "stop.sh")
    assert stopped.returncode == 0, stopped.stdout
    assert f"SIGINT to {state['leader']['pid']}" in stopped.stdout
    assert not alive(state["leader"]["pid"])
    assert deployed.call(folder, "status.sh").returncode == 3


def test_variables_choose_number_ports_and_parameters_and_the_next_deploy_sees_it(home: Path) -> None:
    folder = many(home)
    base = free_port(3) + 5
    began = deployed.call(
        folder, "start_cluster.sh", N="2", BASE_PORT=str(base), MAX_LEN="2048", MAX_SEQS="1", EAGER="1", STAGGER="0"
    )
    assert began.returncode == 0, began.stdout + began.stderr
    running = states(folder)
    assert [bool(state) for state in running] == [True, True, False]
    assert [state["request"]["port"] for state in running[:2]] == [base, base + 1]
    said = Path(running[1]["log"]).read_text()
    assert "'--max-model-len', '4096', '--port'" in said
    assert f"'--port', '{base + 1}', '--max-model-len', '2048', '--max-num-seqs', '1', '--enforce-eager']" in said
    wanted = json.loads((folder / "instance-1/instance.json").read_text())
    assert running[1]["request"]["digest"] != wanted["digest"]
    shown = launch.differences(running[1]["request"]["launch"], wanted["launch"])
    assert shown == [
        "--enforce-eager: on -> (not set)",
        "--max-model-len: 2048 -> 4096",
        "--max-num-seqs: 1 -> (not set)",
        f"--port: {base + 1} -> {wanted['port']}",
    ]
    assert rows(folder)["exit"] == 1
    # Without the variables it is what was deployed again.
    assert deployed.call(folder, "stop_cluster.sh").returncode == 0
    assert deployed.call(folder, "start_cluster.sh", "1").returncode == 0
    assert layout.state(folder / "instance-1")["request"] == wanted


def test_wrong_values_are_all_refused_by_name_and_nothing_starts(home: Path) -> None:
    folder = many(home)
    done = deployed.call(
        folder, "start_cluster.sh", N="4", BASE_PORT="70000", MAX_LEN="-1", MAX_SEQS="x", EAGER="yes", WAVE="0", STAGGER="1e9"
    )
    assert done.returncode == 2
    for name in ("N=4", "BASE_PORT=70000", "MAX_LEN=-1", "MAX_SEQS=x", "EAGER=yes", "WAVE=0", "STAGGER=1e9"):
        assert f"refused: {name}: " in done.stderr
    assert not any(states(folder))
    unknown = deployed.call(folder, "start_cluster.sh", "7", "x")
    assert (unknown.returncode, f"{MANY} has no instance 7, x; it has 0, 1, 2" in unknown.stderr) == (2, True)


def test_what_runs_is_skipped_and_a_strangers_port_is_refused_and_the_others_start(home: Path) -> None:
    folder = many(home)
    assert deployed.call(folder, "start_cluster.sh", "0").returncode == 0
    before = layout.state(folder / "instance-0")["leader"]
    port = json.loads((folder / "instance-1/instance.json").read_text())["port"]
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        done = deployed.call(folder, "start_cluster.sh", STAGGER="0")
    assert done.returncode == 1
    assert f"{MANY}/0: skipped, it runs already: pid {before['pid']}" in done.stdout
    assert f"{MANY}/1: REFUSED: port {port} is taken by pid {os.getpid()}" in done.stdout
    assert f"{MANY}/2: started" in done.stdout
    assert [bool(state) for state in states(folder)] == [True, False, True]
    assert layout.state(folder / "instance-0")["leader"] == before


def test_one_instance_is_stopped_and_the_others_serve_on(home: Path) -> None:
    folder = many(home)
    assert deployed.call(folder, "start_cluster.sh", STAGGER="0").returncode == 0
    before = states(folder)
    stopped = deployed.call(folder, "stop_cluster.sh", "1")
    assert stopped.returncode == 0, stopped.stdout
    assert [alive(state["leader"]["pid"]) for state in before] == [True, False, True]
    assert [alive(state["keeper"]["pid"]) for state in before] == [True, False, True]
    seen = rows(folder)
    assert [row["state"] for row in seen["instances"]] == ["ready", "stopped", "ready"]


def test_two_starts_at_once_both_end_well_and_start_each_instance_once(home: Path) -> None:
    folder = many(home)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(deployed.call, folder, "start_cluster.sh", STAGGER="0.5", WAVE="1")
        until(lambda: layout.state(folder / "instance-0") is not None, 10, "the first one")
        second = pool.submit(deployed.call, folder, "start_cluster.sh", STAGGER="0.5", WAVE="1")
        done = [first.result(), second.result()]
    assert [one.returncode for one in done] == [0, 0], [one.stdout for one in done]
    assert sum(one.stdout.count(": started, pid") for one in done) == 3
    assert [len(list((folder / f"instance-{index}/logs").glob("2*.log"))) for index in range(3)] == [1, 1, 1]


def test_a_start_that_asks_for_other_parameters_than_what_runs_says_that_it_did_not_get_them(home: Path) -> None:
    folder = one(home)
    assert deployed.call(folder, "start.sh").returncode == 0
    done = deployed.call(folder, "start.sh", MAX_SEQS="1")
    assert (done.returncode, "REFUSED: it runs with other parameters than this start asks for" in done.stdout) == (1, True)


def test_a_release_that_cannot_switch_eager_off_is_told_so(home: Path) -> None:
    folder = one(home, words=("--enforce-eager",), eager_off=[])
    done = deployed.call(folder, "start.sh", EAGER="0")
    assert (done.returncode, "EAGER=0: this release of vLLM has no option for it" in done.stderr) == (2, True)
    assert states(folder) == [None]


def test_ctrl_c_ends_no_engine_and_says_what_was_not_done(home: Path) -> None:
    folder = many(home)
    code, said = deployed.interrupted(folder, "start_cluster.sh", f"{MANY}/0: started", STAGGER="30", WAVE="1")
    assert (code, "Traceback" in said) == (130, False)
    assert f"not started, or not waited for: {MANY}/1, {MANY}/2\n" in said
    assert "what was started goes on; status_cluster.sh shows what runs" in said
    assert alive(states(folder)[0]["leader"]["pid"])
    code, said = deployed.interrupted(folder, "stop_cluster.sh", "SIGINT to")
    assert (code, "Run the stop again" in said, "Traceback" in said) == (130, True, False)
    assert deployed.call(folder, "stop_cluster.sh").returncode == 0


def test_a_teardown_that_begins_in_the_middle_of_a_start_is_not_worked_against(home: Path) -> None:
    folder = many(home)
    with ThreadPoolExecutor() as pool:
        begun = pool.submit(deployed.call, folder, "start_cluster.sh", STAGGER="1.5", WAVE="1", WAIT="0")
        until(lambda: layout.state(folder / "instance-0") is not None, 10, "the first one")
        layout.write_json(home / "lock", {"run": "r", "what": "teardown", "by": "ann on control", "since": "2026-11-29"})
        done = begun.result()
    assert done.returncode == 1
    assert f"not started: {MANY}/1, {MANY}/2: PF-LOCK-HELD: teardown by ann on control" in done.stdout
    assert [bool(state) for state in states(folder)] == [True, False, False]


def test_whatever_stands_in_the_files_a_look_ends_in_an_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = one(home)
    place = folder / "instance-0"
    (place / "run").mkdir()
    pids = {"keeper": {"pid": 1, "start": 1}, "leader": {"pid": 1, "start": 1}}
    rest = {"log": "l", "started_at": 1.0, "ended": None, "supervised": {}, "boot": "b", "ready_at": None}
    layout.write_json(place / "run/state.json", {**pids, **rest, "request": layout.read_json(place / "instance.json")})
    monkeypatch.setattr(status.proc, "processes", dict)
    bad = (None, "x", -1, [], {}, [None], 1e300, True)
    for path in (folder / "service.json", place / "instance.json", place / "run/state.json"):
        whole = path.read_text()
        data = json.loads(whole)
        cases = ["{", "", "[]", "[" * 100000, *(json.dumps({**data, key: value}) for key in data for value in bad)]
        for text in cases:
            path.write_text(text)
            try:
                service = by_hand.load(folder)
                status.run(service, [], False, False)
                wishes.read({"EAGER": "0"}, service.info)
            except by_hand.Refused as refused:
                assert "deploy the service again" in str(refused), text[:200]
        path.write_text(whole)


def test_a_running_deploy_refuses_starts_and_is_named(home: Path) -> None:
    folder = one(home)
    layout.write_json(home / "lock", {"run": "r", "what": "deploy", "by": "ann on control", "since": "2026-11-29"})
    done = deployed.call(folder, "start.sh")
    assert done.returncode == 2
    assert "PF-LOCK-HELD: deploy by ann on control holds the lock" in done.stderr
    (home / "lock").write_text("{")
    assert deployed.call(folder, "start.sh").returncode == 2


def test_what_needs_an_admin_refuses_starts(home: Path) -> None:
    folder = one(home)
    layout.write_json(folder / "needs_admin.json", {"report": "/evidence/x"})
    done = deployed.call(folder, "start.sh")
    assert (done.returncode, "see /evidence/x" in done.stderr) == (2, True)
    assert "needs admin" in deployed.call(folder, "status.sh").stdout


def test_no_more_are_started_when_one_has_died_at_once_and_its_log_says_why(home: Path) -> None:
    folder = many(home, words=("--die", "1"))
    done = deployed.call(folder, "start_cluster.sh", WAVE="1", STAGGER="1")
    assert done.returncode == 1
    assert f"{MANY}/0: ended (exit code 1)" in done.stdout
    assert "RuntimeError: made to die" in done.stdout
    assert f"not started: {MANY}/1, {MANY}/2, because one before them ended at once" in done.stdout
    assert [bool(state) for state in states(folder)] == [True, False, False]


def test_it_does_not_wait_for_ever_and_not_at_all_when_told_so(home: Path) -> None:
    folder = one(home, words=("--late", "60"))
    began = time.monotonic()
    done = deployed.call(folder, "start.sh", TIMEOUT="2")
    assert (done.returncode, "does not answer after 2 s" in done.stdout) == (1, True)
    assert time.monotonic() - began < 20
    assert deployed.call(folder, "status.sh").stdout.splitlines()[1].split()[1] == "starting"
    assert deployed.call(folder, "stop.sh").returncode == 0
    assert deployed.call(folder, "start.sh", WAIT="0").returncode == 0


def test_another_user_is_refused(home: Path) -> None:
    folder = one(home)
    if os.geteuid() != 0:
        pytest.skip("needs root to give the folder to somebody else")
    os.chown(folder, 65534, 65534)
    done = deployed.call(folder, "start.sh")
    assert (done.returncode, "log in as nobody" in done.stderr) == (2, True)


def test_files_that_are_not_whole_are_refused_with_the_next_step(home: Path) -> None:
    folder = many(home)
    (folder / "instance-1/instance.json").write_text("{")
    (folder / "instance-2/instance.json").write_text("[]")
    done = deployed.call(folder, "start_cluster.sh")
    assert done.returncode == 2
    assert done.stderr.count("deploy the service again") == 2
    for index in range(3):
        (folder / f"instance-{index}/instance.json").unlink()
    assert "no instance of" in deployed.call(folder, "start_cluster.sh").stderr
    (folder / "service.json").write_text("[]")
    assert "deploy the service again" in deployed.call(folder, "status_cluster.sh").stderr


def test_the_scripts_work_through_links_and_from_anywhere_and_say_how_to_use_them(home: Path) -> None:
    folder = one(home)
    link = home / "s.sh"
    link.symlink_to(folder / "start.sh")
    shown = subprocess.run([str(link), "--help"], cwd="/", capture_output=True, text=True, check=True).stdout
    assert shown.startswith("usage: start.sh [INDEX ...]")
    assert "MAX_SEQS" in shown


def test_a_narrow_terminal_gets_what_matters_most(home: Path) -> None:
    folder = one(home)
    shown = deployed.call(folder, "status.sh", COLUMNS="50").stdout.splitlines()
    assert shown[0].split() == ["instance", "state", "pid", "port", "cards", "memory"]
    assert max(len(line) for line in shown[:2]) <= 50
    assert shown[-1].startswith("no room for: log, supervisor, since")


def test_colour_is_for_terminals_that_want_it(home: Path) -> None:
    folder = one(home)
    for more, wanted in (({}, True), ({"NO_COLOR": "1"}, False)):
        shown = subprocess.run(
            ["script", "-qec", str(folder / "status.sh"), "/dev/null"],
            env={"PATH": "/usr/bin:/bin", "HOME": "/root", **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("\033[" in shown.stdout) is wanted


def test_the_client_environment_holds_no_key_and_no_card(home: Path) -> None:
    folder = one(home, secured=True)
    shown = subprocess.run(
        ["bash", "-c", f"set -a; . {folder}/client.env; env"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert "CUDA_VISIBLE_DEVICES=" in shown
    assert "OMP_NUM_THREADS=4" in shown
    assert f"MODELYARD_API_KEY_FILE={folder}/api_key" in shown
    assert not [line for line in shown if line.startswith(("VLLM_", "MODELYARD_SERVICE"))]


@pytest.mark.parametrize("script", ["start.sh", "status.sh", "stop.sh", "instance-0/launch.sh", "client.env"])
def test_the_scripts_are_clean(home: Path, script: str) -> None:
    folder = one(home)
    subprocess.run(["bash", "-n", str(folder / script)], check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(
            ["shellcheck", "-s", "bash", "-e", "SC2034", str(folder / script)], capture_output=True, text=True, check=False
        )
        assert done.stdout == ""


# -- screen -----------------------------------------------------------------------------------------------------------


@needs_screen
def test_in_screen_the_window_shows_the_log_and_the_engine_does_not_hang_on_it(home: Path) -> None:
    folder = one(home, supervisor="screen")
    assert deployed.call(folder, "start.sh").returncode == 0
    state = layout.state(folder / "instance-0")
    full = state["supervised"]["name"]
    assert full.partition(".")[2] == ONE
    shown = deployed.call(folder, "status.sh")
    assert f"look in with screen -r {full}\n" in shown.stdout
    assert "-d" not in shown.stdout.partition("look in with")[2]
    copy = home / "window"

    def window() -> str:
        subprocess.run(["screen", "-S", full, "-X", "hardcopy", str(copy)], check=False, capture_output=True)
        return copy.read_text(errors="replace") if copy.exists() else ""

    until(lambda: "engine" in window(), 5, "the window shows the log")
    # Ctrl-C in the window, and the end of the session, are nothing to the engine.
    subprocess.run(["screen", "-S", full, "-p", "0", "-X", "stuff", "\003"], check=True)
    until(lambda: "only shows the log" in window(), 5, "the hint")
    subprocess.run(["screen", "-S", full, "-X", "quit"], check=True)
    until(lambda: "its session is gone" in deployed.call(folder, "status.sh").stdout, 5, "the session is gone")
    assert alive(state["leader"]["pid"])
    assert deployed.call(folder, "stop.sh").returncode == 0


@needs_screen
def test_a_session_of_the_name_that_is_somebody_elses_is_refused_and_left_alone(home: Path) -> None:
    folder = one(home, supervisor="screen")
    stranger = subprocess.Popen(["screen", "-DmS", ONE, "sleep", "300"], start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        until(
            lambda: ONE in subprocess.run(["screen", "-ls"], capture_output=True, text=True, check=False).stdout, 5, "it is there"
        )
        done = deployed.call(folder, "start.sh")
        assert done.returncode == 1
        assert "two of one name cannot be told apart" in done.stdout
        assert stranger.poll() is None
        assert layout.state(folder / "instance-0") is None
    finally:
        subprocess.run(["screen", "-S", ONE, "-X", "quit"], check=False, capture_output=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            stranger.wait(timeout=5)
        end(stranger)


@needs_screen
def test_the_session_ends_with_the_engine(home: Path) -> None:
    folder = one(home, supervisor="screen")
    assert deployed.call(folder, "start.sh").returncode == 0
    full = layout.state(folder / "instance-0")["supervised"]["name"]
    assert deployed.call(folder, "stop.sh").returncode == 0
    until(
        lambda: full not in subprocess.run(["screen", "-ls"], capture_output=True, text=True, check=False).stdout, 5, "it is gone"
    )


# -- old Pythons ------------------------------------------------------------------------------------------------------


def test_a_python_that_is_too_old_is_told_so(home: Path) -> None:
    folder = one(home)
    pythons = sorted(Path.home().glob(".pyenv/versions/3.[678].*/bin/python"))
    if not pythons:
        pytest.skip("no older Python is installed")
    for python in pythons:
        done = subprocess.run([str(python), str(folder / "modelyard.pyz"), "status"], capture_output=True, text=True, check=False)
        old = int(python.parts[-3].split(".")[1]) < 8
        assert ("needs Python 3.8 or newer" in done.stderr) is old, (python, done.stderr)
        assert old or done.returncode == 3, (python, done.stderr)


def test_the_program_is_the_same_bytes_each_time() -> None:
    from ansible_collections.modelyard.core.plugins.plugin_utils import program  # noqa: PLC0415

    assert program.build() == program.build()
    assert sys.version_info >= (3, 11)
