"""Keeper and guarded stop on real process trees of this machine; the trees stand in for an engine, the rest is the real thing."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run, signals
from ansible_collections.modelyard.core.plugins.module_utils.survey import services
from harness import ROOT, alive, end, session_of, until

SERVICE = "tree-one"
SOON = {"grace_s": 5, "term_s": 1, "kill_s": 5, "memory_s": 3}
QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0}
# A server with a child of its own; both end at SIGINT.
OBEDIENT = "sleep 300 & child=$!\ntrap 'kill $child; exit 0' INT TERM\nwait\n"
# A server whose child ignores everything but KILL, and which leaves it behind.
STUBBORN = "bash -c 'trap \"\" INT TERM HUP; while :; do sleep 0.2; done' &\ntrap 'exit 0' INT TERM\nwait\n"


def start(home: Path, script: str, service: str = SERVICE, **more: Any) -> dict[str, Any]:
    """Start a service whose launch script is `script`."""
    folder = layout.instance_dir(str(home), service, 0)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "roles/service/files/keeper.py", folder.parent / "keeper.py")
    (folder / "launch.sh").write_text(
        f'#!/bin/bash\ncd "$(dirname "$0")/run"\nexport MODELYARD_SERVICE={service}\n{script}', encoding="utf-8"
    )
    request = {"service": service, "host": "127.0.0.1", "port": 1, "digest": "d", "runtime": str(home / "runtime")}
    request.update(marker={"MODELYARD_SERVICE": service}, launch={"argv": ["x"], "environment": {}, "model": ""}, index=0, **more)
    return supervisor.Plain().start(folder, request, sys.executable)


def settled(state: dict[str, Any]) -> None:
    """Wait until the launch script is past its own helpers: a process that is just ending shows fewer signs."""
    comms = ["bash", "python3", "sleep"]
    until(
        lambda: sorted(p["comm"] for p in session_of(state["keeper"]["pid"])) in (comms, ["bash", "python", "sleep"]),
        5,
        "settled",
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in layout.services(str(tmp_path)):
        run.stop_service(str(tmp_path), name, options=QUICK)


def stopped(home: Path, service: str = SERVICE, indexes: list[int] | None = None, **options: Any) -> run.Stop:
    """Stop a service and expect nothing of it to be left."""
    stopper = run.Stop(str(home), service, indexes, {**SOON, **options})
    result = stopper.run()
    assert (result["left"], result["failed"], result["needs_admin"]) == ([], False, ""), result
    return stopper


def words(stopper: run.Stop) -> list[str]:
    """What a stop said it did."""
    return [said for _, said in stopper.actions]


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
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], check=False).returncode:
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


def test_logs_of_earlier_starts_stay(home: Path) -> None:
    first = start(home, "echo first; exit 1\n")
    until(lambda: not alive(first["keeper"]["pid"]), 5, "the first has ended")
    second = start(home, "echo second; exit 1\n")
    until(lambda: not alive(second["keeper"]["pid"]), 5, "the second has ended")
    assert first["log"] != second["log"]
    assert Path(first["log"]).read_text() == "first\n"
    assert Path(second["log"]).read_text() == "second\n"
