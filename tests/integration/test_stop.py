"""Keeper and guarded stop on real process trees of this machine; the trees stand in for an engine, the rest is the real thing."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import phases, preview, run, signals
from ansible_collections.modelyard.core.plugins.module_utils.survey import services
from harness import alive, end, session_of, until
from trees import OBEDIENT, QUICK, SERVICE, STUBBORN, settled, start, stopped, words


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in layout.services(str(tmp_path)):
        run.stop_service(str(tmp_path), name, options=QUICK)


def test_the_keeper_writes_down_what_it_started(home: Path) -> None:
    state = start(home, OBEDIENT)
    assert alive(state["leader"]["pid"])
    assert state["ended"] is None
    assert Path(state["log"]).exists()
    assert (home / f"services/{SERVICE}/instance-0/logs/current.log").resolve() == Path(state["log"])


def test_an_obedient_service_gets_one_signal(home: Path) -> None:
    state = start(home, OBEDIENT)
    until(lambda: len(session_of(state["keeper"]["pid"])) == 3, 5, "keeper, server and child run")
    stopper = stopped(home)
    assert [(s["pid"], s["signal"]) for s in stopper.signalled] == [(state["leader"]["pid"], "SIGINT")]
    assert session_of(state["keeper"]["pid"]) == []


def test_a_stubborn_child_is_killed_and_only_it(home: Path) -> None:
    state = start(home, STUBBORN)
    until(lambda: len(session_of(state["keeper"]["pid"])) >= 3, 5, "the child runs")
    stopper = stopped(home)
    assert "SIGKILL" in {s["signal"] for s in stopper.signalled}
    assert session_of(state["keeper"]["pid"]) == []


def test_how_a_server_ended_is_written_down(home: Path) -> None:
    state = start(home, "exit 3\n")
    folder = layout.instance_dir(str(home), SERVICE, 0)
    until(lambda: (layout.state(folder) or {}).get("ended"), 5, "the end is written down")
    ended = layout.state(folder)["ended"]
    assert (ended["code"], ended["signal"]) == (3, None)
    assert not alive(state["leader"]["pid"])


def test_orphans_of_a_killed_server_go_to_the_keeper_and_are_leftovers(home: Path) -> None:
    state = start(home, "sleep 300 &\nwait\n")
    keeper = state["keeper"]["pid"]
    until(lambda: len(session_of(keeper)) == 3, 5, "the child runs")
    os.kill(state["leader"]["pid"], 9)
    until(lambda: not alive(state["leader"]["pid"]), 5, "the server is dead")
    orphan = next(p for p in session_of(keeper) if p["comm"] == "sleep")
    until(lambda: Path(f"/proc/{orphan['pid']}/stat").read_text().split()[3] == str(keeper), 5, "the keeper adopts it")
    seen = services.service(str(home), SERVICE, proc.processes())
    assert [p["pid"] for p in seen["leftovers"]] == [orphan["pid"]]
    assert seen["instances"][0]["alive"] is False
    stopper = stopped(home)
    assert [s["pid"] for s in stopper.signalled] == [orphan["pid"]]


def test_strangers_and_suspects_are_left_alone(home: Path) -> None:
    state = start(home, OBEDIENT)
    settled(state)
    folder = home / "services" / SERVICE / "instance-0"
    clean = {"PATH": os.environ["PATH"]}
    same_name = subprocess.Popen(
        ["bash", "-c", f"exec -a 'bash {folder}/launch.sh' sleep 300"], start_new_session=True, env=clean, cwd="/"
    )
    in_folder = subprocess.Popen(["sleep", "300"], start_new_session=True, env=clean, cwd=folder / "run")
    with_marker = subprocess.Popen(["sleep", "300"], start_new_session=True, env={**clean, "MODELYARD_SERVICE": SERVICE}, cwd="/")
    try:

        def suspects() -> list[int]:
            return sorted(p["pid"] for p in services.service(str(home), SERVICE, proc.processes())["suspects"])

        # An environment shows a moment after its program has begun.
        until(lambda: suspects() == sorted([in_folder.pid, with_marker.pid]), 5, "both show one sign")
        stopped(home)
        assert [p.poll() for p in (same_name, in_folder, with_marker)] == [None, None, None]
        assert not alive(state["leader"]["pid"])
    finally:
        for process in (same_name, in_folder, with_marker):
            end(process)


def test_a_second_service_of_the_same_home_is_left_alone(home: Path) -> None:
    start(home, OBEDIENT)
    other = start(home, OBEDIENT, "tree-two")
    stopped(home)
    assert alive(other["leader"]["pid"])
    assert alive(other["keeper"]["pid"])


def test_a_pid_that_belongs_to_another_process_now_is_not_signalled() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert signals.send(process.pid, 1, 15) == signals.GONE
        time.sleep(0.2)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_segments_without_a_holder_are_removed_and_held_ones_stay(home: Path) -> None:
    mine, held = f"psm_modelyard-mine-{os.getpid()}", f"psm_modelyard-held-{os.getpid()}"
    state = start(home, OBEDIENT)
    for name in (mine, held):
        Path("/dev/shm", name).write_bytes(b"x")
    recorded = {name: Path("/dev/shm", name).stat().st_ino for name in (mine, held)}
    layout.write_json(home / "services" / SERVICE / "instance-0" / "run" / "segments.json", recorded)
    try:
        with Path("/dev/shm", held).open("rb"):
            stopper = stopped(home)
            assert f"removed 1 shared-memory segment(s): {mine}" in words(stopper)
            assert Path("/dev/shm", held).exists()
        assert not alive(state["leader"]["pid"])
    finally:
        for name in (mine, held):
            Path("/dev/shm", name).unlink(missing_ok=True)


def test_what_else_lies_in_shared_memory_is_never_removed(home: Path) -> None:
    # A model on tmpfs, mapped by the engine, is no segment of it.
    folder = Path("/dev/shm", f"modelyard-model-{os.getpid()}")
    folder.mkdir()
    weights = folder / "psm_model.safetensors"
    weights.write_bytes(b"x" * 4096)
    try:
        state = start(home, f"exec 9<{weights}\n{OBEDIENT}")
        until(lambda: len(session_of(state["keeper"]["pid"])) == 3, 5, "keeper, server and child run")
        stopper = stopped(home)
        assert "removed" not in " ".join(words(stopper)[:-1])
        assert weights.exists()
    finally:
        shutil.rmtree(folder)


def test_a_service_is_found_and_stopped_when_its_folder_was_removed(home: Path) -> None:
    runtime = home / "runtimes" / "one"
    (runtime / "bin").mkdir(parents=True)
    shutil.copy("/bin/sleep", runtime / "bin" / "sleep")
    state = start(home, f"exec {runtime}/bin/sleep 300\n")
    until(lambda: Path(f"/proc/{state['leader']['pid']}/comm").read_text() == "sleep\n", 5, "it runs")
    shutil.rmtree(home / "services")
    seen = services.service(str(home), SERVICE, proc.processes())
    assert seen["known"]
    assert state["leader"]["pid"] in seen["pids"]
    stopped(home)
    assert not alive(state["leader"]["pid"])


def test_a_home_behind_a_link_with_a_torn_state_is_not_called_stopped(home: Path) -> None:
    (home / "real").mkdir()
    link = home / "link"
    link.symlink_to("real")
    runtime = home / "real" / "runtimes" / "one"
    (runtime / "bin").mkdir(parents=True)
    shutil.copy("/bin/sleep", runtime / "bin" / "sleep")
    state = start(link, f"exec {link}/runtimes/one/bin/sleep 300\n")
    until(lambda: Path(f"/proc/{state['leader']['pid']}/comm").read_text() == "sleep\n", 5, "it runs")
    layout.instance_dir(str(link), SERVICE, 0).joinpath("run/state.json").write_text("")
    assert layout.unreadable(str(link), SERVICE) == [0]
    stopped(link)
    assert not alive(state["leader"]["pid"])


def test_numbers_that_were_written_down_before_a_reboot_prove_nothing(home: Path) -> None:
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True, env={"PATH": os.environ["PATH"]}, cwd="/")
    try:
        state = start(home, "exit 0\n")
        until(lambda: not alive(state["keeper"]["pid"]), 5, "it has ended")
        same = {"pid": stranger.pid, "start": proc.read(stranger.pid).start}
        path = layout.instance_dir(str(home), SERVICE, 0) / "run" / "state.json"
        layout.write_json(path, {**layout.read_json(path), "keeper": same, "leader": same, "boot": "an earlier one"})
        assert services.service(str(home), SERVICE, proc.processes())["instances"][0]["alive"] is False
        stopped(home)
        assert stranger.poll() is None
    finally:
        end(stranger)


def test_a_shell_with_the_services_environment_in_its_folder_is_left_alone(home: Path) -> None:
    start(home, OBEDIENT)
    folder = home / "services" / SERVICE / "instance-0"
    shell = subprocess.Popen(
        ["tail", "-f", "logs/current.log"],
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "MODELYARD_SERVICE": SERVICE},
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        stopped(home)
        assert shell.poll() is None
    finally:
        end(shell)


def test_a_process_of_a_container_with_the_same_paths_is_left_alone(home: Path) -> None:
    start(home, OBEDIENT)
    folder = home / "services" / SERVICE / "instance-0" / "run"
    runtime = home / "runtimes" / "one"
    runtime.mkdir(parents=True)
    shutil.copy("/bin/sleep", runtime / "sleep")
    inside = subprocess.Popen(
        ["unshare", "--mount", str(runtime / "sleep"), "300"],
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "MODELYARD_SERVICE": SERVICE},
        cwd=folder,
    )
    try:
        until(lambda: Path(f"/proc/{inside.pid}/comm").read_text() == "sleep\n", 5, "it runs")
        seen = services.service(str(home), SERVICE, proc.processes())["suspects"]
        assert "other mounts" in next(p["signs"] for p in seen if p["pid"] == inside.pid)
        stopped(home)
        assert inside.poll() is None
    finally:
        end(inside)


def test_a_drain_that_the_engine_was_promised_is_not_cut_short(home: Path) -> None:
    drain = "sleep 300 & child=$!\ntrap 'sleep 4; kill $child; exit 0' INT\nwait\n"
    state = start(home, drain, shutdown_timeout_s=10)
    until(lambda: len(session_of(state["keeper"]["pid"])) == 3, 5, "keeper, server and child run")
    stopper = stopped(home, grace_s=1)
    assert [s["signal"] for s in stopper.signalled] == ["SIGINT"]


def test_a_full_disk_does_not_end_the_keeper(home: Path) -> None:
    small = home / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        state = start(small, "sleep 300 &\nsleep 300 & wait -n\n")
        keeper = state["keeper"]["pid"]
        until(lambda: len(session_of(keeper)) == 4, 5, "all run")
        fill = os.open(str(small / "fill"), os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(fill, b"x" * 4096)
        os.close(fill)
        os.kill(state["leader"]["pid"], 9)
        until(lambda: not alive(state["leader"]["pid"]), 5, "the server is dead")
        time.sleep(0.5)
        assert alive(keeper)
        (small / "fill").unlink()
        stopped(small)
        assert layout.state(layout.instance_dir(str(small), SERVICE, 0))["ended"]["signal"] == 9
    finally:
        run.stop_service(str(small), SERVICE, options=QUICK)
        until(lambda: subprocess.run(["umount", str(small)], check=False).returncode == 0, 10, "unmounted")


def test_a_service_that_has_filled_its_disk_is_stopped(home: Path) -> None:
    small = home / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        state = start(small, OBEDIENT)
        fill = os.open(str(small / "fill"), os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(fill, b"x" * 4096)
        os.close(fill)
        result = run.stop_service(str(small), SERVICE, options=QUICK)
        assert (result["failed"], result["stopped"], result["changed"]) == (False, True, True), result["msg"]
        assert session_of(state["keeper"]["pid"]) == []
    finally:
        (small / "fill").unlink(missing_ok=True)
        run.stop_service(str(small), SERVICE, options=QUICK)
        until(lambda: subprocess.run(["umount", str(small)], check=False).returncode == 0, 10, "unmounted")


def test_what_has_become_another_user_in_its_session_is_left_alone_and_not_called_stopped(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    child = "import os,time; os.setgid(65534); os.setuid(65534); time.sleep(300)"
    state = start(home, f"{sys.executable} -c {shlex.quote(child)} &\n{OBEDIENT}")

    def others() -> list[int]:
        return [p.pid for p in proc.processes().values() if p.sid == state["keeper"]["pid"] and p.uid == 65534]

    until(others, 10, "it has become another user")
    (pid,) = others()
    try:
        result = run.stop_service(str(home), SERVICE, options=QUICK)
        assert (result["failed"], result["stopped"], result["changed"]) == (True, False, True)
        assert f"{pid} " in result["msg"]
        assert "left alone" in result["msg"]
        assert alive(pid)
    finally:
        os.kill(pid, 9)


def test_a_service_json_that_people_have_edited_does_not_keep_a_service_alive(home: Path) -> None:
    state = start(home, OBEDIENT)
    settled(state)
    layout.write_json(home / "services" / SERVICE / "service.json", {"backend": "nvidia", "backends": ["nvidia"], "stop": 7})
    stopper = stopped(home)
    assert "its cards were not looked at" in " ".join(words(stopper))
    assert not alive(state["leader"]["pid"])


def test_logs_of_earlier_starts_stay(home: Path) -> None:
    first = start(home, "echo first; exit 1\n")
    until(lambda: not alive(first["keeper"]["pid"]), 5, "the first has ended")
    second = start(home, "echo second; exit 1\n")
    until(lambda: not alive(second["keeper"]["pid"]), 5, "the second has ended")
    assert first["log"] != second["log"]
    assert Path(first["log"]).read_text() == "first\n"
    assert Path(second["log"]).read_text() == "second\n"


# -- one instance of several -----------------------------------------------------------------------------------------


def test_one_instance_is_stopped_and_no_process_of_the_others_is_touched(home: Path) -> None:
    states = [start(home, OBEDIENT, index=index) for index in range(3)]
    accepted = [{"index": i, "leader": state["leader"], "digest": "d"} for i, state in enumerate(states)]
    layout.write_json(home / "services" / SERVICE / "accepted.json", {"instances": accepted, "result": "x"})
    for state in states:
        settled(state)

    def members(state: dict[str, Any]) -> list[dict[str, Any]]:
        """Without the state: a keeper wakes up each second."""
        return [{k: v for k, v in p.items() if k != "stat"} for p in session_of(state["keeper"]["pid"])]

    before = [members(state) for state in states]
    stopper = stopped(home, indexes=[1])
    assert {s["pid"] for s in stopper.signalled} <= {p["pid"] for p in before[1]}
    assert [bool(session_of(state["keeper"]["pid"])) for state in states] == [True, False, True]
    assert [members(states[i]) for i in (0, 2)] == [before[0], before[2]]
    kept = layout.read_json(home / "services" / SERVICE / "accepted.json")
    assert kept == {"instances": [accepted[0], accepted[2]], "result": "x"}
    assert services.service(str(home), SERVICE, proc.processes())["needs_admin"] is None


def test_several_instances_are_asked_at_the_same_time(home: Path) -> None:
    slow = "sleep 300 & child=$!\ntrap 'sleep 2; kill $child; exit 0' INT\nwait\n"
    for index in range(3):
        settled(start(home, slow, index=index))
    stopper = stopped(home, grace_s=20)
    asked = [at for at, said in stopper.actions if said.startswith("SIGINT")]
    assert len(asked) == 3
    assert asked == [asked[0]] * 3
    assert [s["signal"] for s in stopper.signalled] == ["SIGINT"] * 3


def test_what_a_stop_would_do_is_said_and_not_done(home: Path) -> None:
    state = start(home, STUBBORN)
    until(lambda: len(session_of(state["keeper"]["pid"])) >= 3, 5, "the child runs")
    before = {p["pid"] for p in session_of(state["keeper"]["pid"])}
    shown = preview.preview(str(home), SERVICE, options=QUICK)
    leader = state["leader"]["pid"]
    assert shown["actions"][0].startswith(f"would send SIGINT to {leader} (bash) of ")
    assert "recorded" in shown["actions"][0]
    assert any(said.startswith(f"would send SIGKILL to {leader} (bash): did not end when asked, if") for said in shown["actions"])
    assert (shown["changed"], shown["failed"]) == (True, False)
    assert {p["pid"] for p in session_of(state["keeper"]["pid"])} >= {leader, state["keeper"]["pid"]} & before


# -- servers and engines that do not do as they are told -------------------------------------------------------------

TITLE = "import ctypes, os, signal, sys, time; ctypes.CDLL(None).prctl(15, {title!r}, 0, 0, 0)\n"


def python(title: str, code: str) -> str:
    """A line of a launch script that starts a Python program with a title of vLLM's."""
    text = TITLE.format(title=title.encode()) + code
    return f"{sys.executable} -c {shlex.quote(text)} &\n"


def named(comm: str, state: dict[str, Any]) -> list[int]:
    """Pids in the instance's session that are called so."""
    return [p["pid"] for p in session_of(state["keeper"]["pid"]) if p["comm"] == comm]


def test_a_server_that_waits_alone_for_a_client_is_given_a_moment_and_then_ended(home: Path) -> None:
    # As vLLM does: the engine ends at once, the server goes on until the client has hung up.
    server = (
        "import signal, socket, sys, threading, time\n"
        "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(); print(l.getsockname()[1], flush=True)\n"
        "c, _ = l.accept()\n"
        "signal.signal(signal.SIGINT, lambda *_: print('Waiting for connections to close', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('still waiting', flush=True))\n"
        "print('serving', flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    state = start(home, f"exec {sys.executable} -c {shlex.quote(server)}\n")
    log = Path(state["log"])
    until(lambda: log.read_text().strip().isdigit(), 10, "it listens")
    with socket.create_connection(("127.0.0.1", int(log.read_text()))):
        until(lambda: "serving" in log.read_text(), 5, "it serves")
        stopper = stopped(home, grace_s=30)
    assert [s["signal"] for s in stopper.signalled] == ["SIGINT", "SIGTERM", "SIGKILL"]
    assert "Waiting for connections to close" in log.read_text()
    first, second = (at for at, said in stopper.actions if said.startswith(("SIGINT", "SIGTERM")))
    assert 4 < second - first < 10


def test_a_signal_that_was_lost_during_loading_is_sent_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "REPEAT_S", 2.0)
    monkeypatch.setattr(phases, "LINGER_S", 60.0)
    state = start(home, "trap '' INT\nsleep 300 & child=$!\ntrap 'kill $child; exit 0' TERM\nwait\n")
    settled(state)
    stopper = stopped(home, grace_s=30)
    assert [s["signal"] for s in stopper.signalled][:2] == ["SIGINT", "SIGTERM"]
    assert "asked again, nothing moved" in " ".join(words(stopper))
    assert "SIGKILL" not in {s["signal"] for s in stopper.signalled}


def test_an_engine_whose_server_was_killed_is_ended_at_its_core(home: Path) -> None:
    worker = python("VLLM::Worker_TP", "signal.signal(15, lambda *_: print('asked')); time.sleep(300)")
    core = python(
        "VLLM::EngineCor",
        "import subprocess\n"
        f"w = subprocess.Popen(['bash', '-c', {worker.rstrip('&').rstrip()[:-1]!r}])\n"
        "signal.signal(15, lambda *_: (w.kill(), sys.exit(0)))\nwhile True: time.sleep(0.1)",
    )
    state = start(home, f"{core}wait\n")
    until(lambda: named("VLLM::EngineCor", state) and named("VLLM::Worker_TP", state), 10, "core and worker run")
    core_pid = named("VLLM::EngineCor", state)[0]
    os.kill(state["leader"]["pid"], 9)
    until(lambda: not alive(state["leader"]["pid"]), 5, "the server is dead")
    stopper = stopped(home, term_s=5)
    assert (stopper.signalled[0]["pid"], stopper.signalled[0]["signal"]) == (core_pid, "SIGTERM")
    assert session_of(state["keeper"]["pid"]) == []


def test_a_worker_that_somebody_has_stopped_goes_on_and_ends(home: Path) -> None:
    state = start(home, "sleep 300 & disown\nsleep 0.2\ntrap 'exit 0' INT\nwhile :; do sleep 0.1; done\n")
    until(lambda: named("sleep", state), 5, "the worker runs")
    worker = max(p["pid"] for p in session_of(state["keeper"]["pid"]) if p["args"] == "sleep 300")
    os.kill(worker, 19)
    stopper = stopped(home)
    mine = [s["signal"] for s in stopper.signalled if s["pid"] == worker]
    assert mine == ["SIGTERM", "SIGCONT"]


def test_a_half_ended_worker_is_no_ended_one(home: Path) -> None:
    half = (
        "import threading\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\nctypes.CDLL(None).pthread_exit(None)"
    )
    state = start(home, f"{python('VLLM::Worker_TP', half)}trap 'exit 0' INT\nwhile :; do sleep 0.1; done\n")
    found: list[int] = []

    def is_half_ended() -> bool:
        found[:] = [p.pid for p in proc.processes().values() if p.sid == state["keeper"]["pid"] and proc.half_ended(p)]
        return bool(found)

    until(is_half_ended, 10, "its first thread has ended")
    os.kill(state["leader"]["pid"], 9)
    until(lambda: not alive(state["leader"]["pid"]), 5, "the server is dead")
    seen = services.service(str(home), SERVICE, proc.processes())
    assert found[0] in [p["pid"] for p in seen["leftovers"]]
    stopper = stopped(home)
    assert (found[0], "SIGKILL") in {(s["pid"], s["signal"]) for s in stopper.signalled}


@pytest.mark.parametrize("harm", [9, 19])
def test_a_keeper_that_is_dead_or_stopped_does_not_protect_its_engine(home: Path, harm: int) -> None:
    state = start(home, OBEDIENT)
    settled(state)
    os.kill(state["keeper"]["pid"], harm)
    stopped(home)
    assert not alive(state["leader"]["pid"])
    assert not alive(state["keeper"]["pid"])


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A group of the freezer of version 1: what is frozen there is in state D, and SIGKILL waits."""
    folder = Path(f"/sys/fs/cgroup/freezer/modelyard-test-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("needs the freezer of cgroups version 1, and root")
    yield folder
    (folder / "freezer.state").write_text("THAWED")

    def removed() -> bool:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    until(removed, 10, "the group is empty")


def test_what_hangs_in_the_kernel_is_handed_over_with_a_report_and_cleared_later(home: Path, freezer: Path) -> None:
    state = start(home, STUBBORN)
    until(lambda: len(session_of(state["keeper"]["pid"])) >= 4, 5, "the child runs")
    child = next(p["pid"] for p in session_of(state["keeper"]["pid"]) if p["args"].startswith("bash -c"))
    (freezer / "cgroup.procs").write_text(str(child))
    (freezer / "freezer.state").write_text("FROZEN")
    until(lambda: proc.read(child).state == "D", 5, "it hangs")
    told: list[str] = []
    began = time.monotonic()
    result = run.stop_service(str(home), SERVICE, options={**QUICK, "kill_s": 2}, say=told.append)
    assert time.monotonic() - began < 15
    assert (result["failed"], result["stopped"]) == (True, False)
    assert child in [p["pid"] for p in result["left"]]
    assert "needs an admin" in result["msg"]
    assert result["needs_admin"] in result["msg"]
    assert any(said.startswith(f"SIGKILL to {child}") for said in told)
    report = Path(result["needs_admin"], "report.txt").read_text()
    assert f"pid {child} of user" in report
    assert "state D" in report
    assert "Reboot, after asking" in report
    known = layout.read_json(home / "services" / SERVICE / "needs_admin.json")
    assert child in [p["pid"] for p in known["processes"]]
    seen = services.service(str(home), SERVICE, proc.processes())["needs_admin"]
    assert child in seen["left"]
    again = run.stop_service(str(home), SERVICE, options={**QUICK, "kill_s": 2})
    assert again["failed"]
    assert child in [p["pid"] for p in again["left"]]
    (freezer / "freezer.state").write_text("THAWED")
    until(lambda: not alive(child), 5, "the signal arrives")
    # Its keeper ends a moment after it.
    until(lambda: services.service(str(home), SERVICE, proc.processes())["needs_admin"]["left"] == [], 10, "nothing is left")
    stopper = stopped(home)
    assert "needs_admin.json removed" in words(stopper)[-1]
    assert not (home / "services" / SERVICE / "needs_admin.json").exists()


def test_a_zombie_is_named_with_the_parent_that_does_not_read_its_end(home: Path) -> None:
    runtime = home / "runtimes" / "one"
    runtime.mkdir(parents=True)
    shutil.copy("/bin/sleep", runtime / "sleep")
    folder = home / "services" / SERVICE / "instance-0" / "run"
    folder.mkdir(parents=True)
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            f"marker = {{'MODELYARD_SERVICE': '{SERVICE}'}}\n"
            "p = subprocess.Popen(sys.argv[1:3], cwd=sys.argv[3], start_new_session=True, env=marker)\n"
            "print(p.pid, flush=True)\ntime.sleep(300)",
            str(runtime / "sleep"),
            "300",
            str(folder),
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd="/",
    )
    try:
        pid = int(launcher.stdout.readline())
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", 5, "it runs")
        stopper = stopped(home)
        assert f"{pid} has ended and waits for its parent {launcher.pid} (python" in " ".join(words(stopper))
        assert launcher.poll() is None
    finally:
        end(launcher)


INSIDE = """
import json, os, subprocess, sys, time
from pathlib import Path
sys.path[:0] = {path!r}
import trees
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import preview, run
home = Path({home!r})
state = trees.start(home, trees.STUBBORN)
trees.until(lambda: len(trees.session_of(state["keeper"]["pid"])) >= 3, 10, "all run")
os.kill(state["keeper"]["pid"], 9)
time.sleep(0.3)
print(json.dumps(run.stop_service(str(home), trees.SERVICE, options=trees.QUICK)), flush=True)
"""


def test_ended_processes_under_a_process_1_that_does_not_reap_are_a_note(home: Path) -> None:
    folders = [folder for folder in sys.path if folder]
    code = INSIDE.format(path=folders, home=str(home))
    inside = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "Operation not permitted" in inside.stderr:
        pytest.skip("needs the right to make a pid namespace (root)")
    result = json.loads(inside.stdout.splitlines()[-1])
    assert (result["left"], result["failed"]) == ([], False), inside.stderr
    assert "waits for its parent 1 (python" in " ".join(result["actions"])
    assert "harmless" in " ".join(result["actions"])


# -- before the signals ----------------------------------------------------------------------------------------------


def told_to(home: Path, **stop: Any) -> None:
    """What a deploy wrote down about stopping."""
    (home / "services" / SERVICE).mkdir(parents=True)
    layout.write_json(home / "services" / SERVICE / "service.json", {"schema": 1, "service": SERVICE, "stop": stop})


def test_the_drain_command_runs_before_the_first_signal(home: Path) -> None:
    seen = home / "drained"
    told_to(home, drain_command=f"sh -c 'env | grep ^MODELYARD > {seen}'")
    state = start(home, OBEDIENT)
    settled(state)
    stopper = stopped(home)
    assert sorted(seen.read_text().split()) == ["MODELYARD_INSTANCE=0", "MODELYARD_PORT=1", f"MODELYARD_SERVICE={SERVICE}"]
    assert words(stopper)[0].startswith(f"drain command for {SERVICE}/0 ended with 0")
    assert words(stopper)[1].startswith("SIGINT")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sh -c 'echo no gateway here >&2; exit 7'", "ended with 7 after"),
        ("sleep 300", "had not ended after 1 s and was ended"),
        ("/nowhere/drain", "did not start"),
        ("sh -c 'unfinished", "was not run, it cannot be read: No closing quotation"),
    ],
)
def test_a_drain_command_that_fails_stops_no_stop(home: Path, command: str, said: str) -> None:
    told_to(home, drain_command=command, drain_s=1)
    state = start(home, OBEDIENT)
    settled(state)
    stopper = stopped(home)
    assert said in words(stopper)[0]
    assert not alive(state["leader"]["pid"])


def test_a_second_stop_waits_for_the_first_and_finds_nothing_to_do(home: Path) -> None:
    slow = "sleep 300 & child=$!\ntrap 'sleep 2; kill $child; exit 0' INT\nwait\n"
    settled(start(home, slow))
    results: dict[str, Any] = {}

    def stop(name: str) -> None:
        results[name] = run.stop_service(str(home), SERVICE, options={"grace_s": 20})

    threads = [threading.Thread(target=stop, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    actions = [result["actions"] for result in results.values()]
    assert [result["failed"] for result in results.values()] == [False, False]
    assert sum(said.startswith("SIGINT") for said in itertools.chain(*actions)) == 1
    assert any(f"another stop of {SERVICE}/0 is at work" in said for said in itertools.chain(*actions))


def test_a_stop_that_was_interrupted_can_be_run_again(home: Path) -> None:
    state = start(home, STUBBORN)
    until(lambda: len(session_of(state["keeper"]["pid"])) >= 3, 5, "the child runs")
    code = (
        f"import sys; sys.path[:0] = {[f for f in sys.path if f]!r}\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run\n"
        f"run.stop_service({str(home)!r}, {SERVICE!r}, options={{'term_s': 60}}, say=lambda words: print(words, flush=True))\n"
    )
    first = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert first.stdout.readline().startswith("SIGINT")
    finally:
        end(first)
    stopped(home)
    assert session_of(state["keeper"]["pid"]) == []


def test_a_user_without_the_right_to_look_is_refused_and_told_who_may(home: Path) -> None:
    state = start(home, OBEDIENT)
    settled(state)
    code = (
        f"import sys, json; sys.path[:0] = {[f for f in sys.path if f]!r}\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run\n"
        "import os; os.setgid(65534); os.setuid(65534)\n"
        f"print(json.dumps(run.stop_service({str(home)!r}, {SERVICE!r})))\n"
    )
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    said = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert (said["failed"], said["stopped"], said["actions"]) == (True, False, [])
    assert "may not look into" in said["msg"]
    assert "as root" in said["msg"]
    assert alive(state["leader"]["pid"])


def test_a_torn_state_and_a_process_that_may_be_ours_are_no_success(home: Path) -> None:
    folder = home / "services" / SERVICE / "instance-0" / "run"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"keeper": {"pi')
    marked = subprocess.Popen(["sleep", "300"], start_new_session=True, env={"MODELYARD_SERVICE": SERVICE}, cwd="/")
    try:
        until(lambda: proc.environment(marked.pid, "MODELYARD_SERVICE") == SERVICE, 5, "it shows its marker")
        result = run.stop_service(str(home), SERVICE, options=QUICK)
        assert (result["failed"], result["needs_admin"]) == (True, "")
        assert f"these may be its processes: {marked.pid} sleep 300 (marker)" in result["msg"]
        assert marked.poll() is None
    finally:
        end(marked)


def test_a_stop_that_the_system_breaks_off_says_what_was_done(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = start(home, OBEDIENT)
    settled(state)

    def full(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(run.Stop, "_reaped", full)
        result = run.stop_service(str(home), SERVICE, options=QUICK)
    assert (result["failed"], result["stopped"], result["changed"]) == (True, False, True)
    assert "Too many open files. It can simply be run again" in result["msg"]
    assert result["actions"][0].startswith("SIGINT")
    stopped(home)
