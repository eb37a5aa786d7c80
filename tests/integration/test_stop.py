"""Keeper and guarded stop on real process trees of this machine; the trees stand in for an engine, the rest is the real thing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, stop, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.survey import host
from harness import ROOT, alive, end, session_of, until

SERVICE = "tree-one"
# A server with a child of its own; both end at SIGINT.
OBEDIENT = "sleep 300 & child=$!\ntrap 'kill $child; exit 0' INT TERM\nwait\n"
# A server whose child ignores everything but KILL, and which leaves it behind.
STUBBORN = "bash -c 'trap \"\" INT TERM HUP; while :; do sleep 0.2; done' &\ntrap 'exit 0' INT TERM\nwait\n"


def start(home: Path, script: str, service: str = SERVICE) -> dict[str, Any]:
    """Start a service whose launch script is `script`."""
    folder = layout.instance_dir(str(home), service, 0)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "roles/service/files/keeper.py", folder.parent / "keeper.py")
    (folder / "launch.sh").write_text(
        f'#!/bin/bash\ncd "$(dirname "$0")/run"\nexport MODELYARD_SERVICE={service}\n{script}', encoding="utf-8"
    )
    request = {"service": service, "host": "127.0.0.1", "port": 1, "digest": "d", "runtime": str(home / "runtime")}
    request.update(marker={"MODELYARD_SERVICE": service}, launch={"argv": ["x"], "environment": {}, "model": ""}, index=0)
    return supervisor.Plain().start(folder, request, sys.executable)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in layout.services(str(tmp_path)):
        stop.Stopper(str(tmp_path), name, stop.Limits(1, 1, 5)).run()


def stopped(home: Path, service: str = SERVICE, limits: stop.Limits | None = None) -> stop.Stopper:
    """Stop a service and expect nothing of it to be left."""
    stopper = stop.Stopper(str(home), service, limits or stop.Limits(grace_s=5, term_s=1, kill_s=5))
    left = [f for f in stopper.run() if f.process.state != "Z"]
    assert left == []
    return stopper


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
    seen = host.service(str(home), SERVICE, host.proc.processes())
    assert [p["pid"] for p in seen["leftovers"]] == [orphan["pid"]]
    assert seen["instances"][0]["alive"] is False
    stopper = stopped(home)
    assert [s["pid"] for s in stopper.signalled] == [orphan["pid"]]


def test_strangers_and_suspects_are_left_alone(home: Path) -> None:
    state = start(home, OBEDIENT)
    folder = home / "services" / SERVICE / "instance-0"
    clean = {"PATH": os.environ["PATH"]}
    same_name = subprocess.Popen(
        ["bash", "-c", f"exec -a 'bash {folder}/launch.sh' sleep 300"], start_new_session=True, env=clean, cwd="/"
    )
    in_folder = subprocess.Popen(["sleep", "300"], start_new_session=True, env=clean, cwd=folder / "run")
    with_marker = subprocess.Popen(["sleep", "300"], start_new_session=True, env={**clean, "MODELYARD_SERVICE": SERVICE}, cwd="/")
    try:
        seen = host.service(str(home), SERVICE, host.proc.processes())
        assert sorted(p["pid"] for p in seen["suspects"]) == sorted([in_folder.pid, with_marker.pid])
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
        assert stop.send(process.pid, 1, 15) is False
        time.sleep(0.2)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_segments_without_a_holder_are_removed_and_held_ones_stay(home: Path) -> None:
    mine, held = f"modelyard-test-mine-{os.getpid()}", f"modelyard-test-held-{os.getpid()}"
    state = start(home, OBEDIENT)
    for name in (mine, held):
        Path("/dev/shm", name).write_bytes(b"x")
    recorded = {name: Path("/dev/shm", name).stat().st_ino for name in (mine, held)}
    layout.write_json(home / "services" / SERVICE / "instance-0" / "run" / "segments.json", recorded)
    try:
        with Path("/dev/shm", held).open("rb"):
            stopper = stopped(home)
            assert stopper.remove_segments() == [mine]
            assert Path("/dev/shm", held).exists()
        assert not alive(state["leader"]["pid"])
    finally:
        for name in (mine, held):
            Path("/dev/shm", name).unlink(missing_ok=True)


def test_logs_of_earlier_starts_stay(home: Path) -> None:
    first = start(home, "echo first; exit 1\n")
    until(lambda: not alive(first["keeper"]["pid"]), 5, "the first has ended")
    second = start(home, "echo second; exit 1\n")
    until(lambda: not alive(second["keeper"]["pid"]), 5, "the second has ended")
    assert first["log"] != second["log"]
    assert Path(first["log"]).read_text() == "first\n"
    assert Path(second["log"]).read_text() == "second\n"
