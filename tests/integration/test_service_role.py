"""deploy.yml over the stand-in for vLLM: files, starts in waves, the rolling restart, what is stopped again."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import deployed
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from harness import Run, Site, alive, free_port
from stand_in import Machine

THREE, ONE = "role-three", "role-one"
QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0, "release_supervisor": False}
#: Before the engine: ends at once where a test says so.
WRAPPER = """#!/bin/bash
if [ -e {flag}-$MODELYARD_INSTANCE ]; then echo 'RuntimeError: made to die'; exit 1; fi
exec {engine} "$@"
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three instances and one of another service; what a test leaves is where the next one begins."""
    folder = tmp_path_factory.mktemp("role")
    machine = Machine(folder, "8xk100ai")
    engine = machine.environment / "bin/vllm"
    engine.rename(engine.with_name("engine"))
    engine.write_text(WRAPPER.format(flag=folder / "die", engine=engine.with_name("engine")))
    engine.chmod(0o755)
    usual = {
        "backend": "hygon",
        "model": {"id": "tiny", "path": str(machine.model)},
        "runtime_path": str(machine.environment),
        "ready_timeout_s": 60,
        "acceptance": {"serial_requests": 2},
    }
    made = Site(folder, [])
    port = free_port(4)
    made.services = [
        {**usual, "name": THREE, "topology": {"replicas": 3}, "listen": {"base_port": port}, "start": {"stagger_s": 2}},
        {**usual, "name": ONE, "cards": [7], "listen": {"base_port": port + 3}},
    ]
    made.services[0]["cards"] = [0, 1, 2]
    for service in made.services:
        service["engine"] = {"max_model_len": 1024}
    made.variables.update(modelyard_sysroot=str(machine.sim.root), modelyard_tool_path=[str(machine.sim.root / "bin")])
    made.variables["modelyard_checks"] = {"PF-MEMORY": "note", "PF-DISK": "note"}
    yield made
    for name in (THREE, ONE):
        run.stop_service(str(made.home), name, options=QUICK)


def deploy(site: Site, arguments: str = "", **extra: Any) -> Run:
    return site.play("deploy", f"--skip-tags acceptance,card_test {arguments}", **extra)


def leaders(site: Site) -> list[int]:
    return [site.leader(THREE, index) for index in range(3)]


@contextlib.contextmanager
def watched(site: Site) -> Iterator[list[tuple[int, ...]]]:
    """Which of the three did not answer on /health, each time that it was looked at and was another answer than before."""
    port = site.services[0]["listen"]["base_port"]
    seen: list[tuple[int, ...]] = []
    over = threading.Event()

    def answers(index: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port + index}/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def look() -> None:
        while not over.is_set():
            down = tuple(index for index in range(3) if not answers(index))
            if seen[-1:] != [down]:
                seen.append(down)
            time.sleep(0.05)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_a_deploy_starts_in_waves_changes_nothing_again_and_knows_starts_by_hand(shared: Site) -> None:
    site, folder = shared, shared.home / "services" / THREE
    looked = deploy(site, "--check --diff")
    assert looked.rc == 0, looked.output
    assert not folder.exists()

    first = deploy(site)
    assert first.rc == 0, first.output
    assert "DEPRECATION" not in first.output
    states = [site.state(THREE, index) for index in range(3)]
    for index, state in enumerate(states):
        assert alive(state["leader"]["pid"])
        assert f"{THREE}/{index}: started, pid {state['leader']['pid']}" in first.output
        assert state["request"] == json.loads((folder / f"instance-{index}/instance.json").read_text())
    # From start to start, and not from the end of one to the next.
    assert 1.9 <= states[1]["started_at"] - states[0]["started_at"] <= 2.0 + 3.0
    service_file = json.loads((folder / "service.json").read_text())
    assert (service_file["instances"], service_file["home"]) == ([0, 1, 2], str(site.home))
    assert (folder / "start_cluster.sh").exists()
    assert not (folder / "start.sh").exists()
    assert (folder / "modelyard.pyz").stat().st_mode & 0o777 == 0o755

    second = deploy(site)
    assert (second.rc, second.changed) == (0, 0), second.output
    status = deployed.call(folder, "status_cluster.sh")
    assert status.returncode == 0, status.stdout

    # By hand with other words: the next deploy shows the difference and restarts nothing.
    assert deployed.call(folder, "stop_cluster.sh").returncode == 0
    started = deployed.call(folder, "start_cluster.sh", MAX_LEN="512", STAGGER="0")
    assert started.returncode == 0, started.stdout
    site.services[1]["engine"]["max_model_len"] = 512
    refused = deploy(site)
    assert refused.rc != 0
    assert "--max-model-len: 512 -> 1024" in refused.output


@pytest.mark.further
def test_a_restart_goes_from_one_to_the_next_and_never_are_two_down(shared: Site) -> None:
    site = shared
    before, single = leaders(site), site.leader(ONE)
    shown = deploy(site, "--check --diff", modelyard_restart=True)
    assert shown.rc == 0, shown.output
    for index in range(3):
        assert f"{THREE}/{index}: would be stopped, started and proven before the next one" in shown.output
    assert leaders(site) == before

    with watched(site) as seen:
        done = deploy(site, modelyard_restart=True)
    assert done.rc == 0, done.output
    assert not set(before) & set(leaders(site))
    assert all(len(down) <= 1 for down in seen), seen
    assert [down for down in seen if down] == [(0,), (1,), (2,)]
    for index in range(3):
        assert f"pass  {THREE}/{index} serial" in done.output
        assert site.state(THREE, index)["request"]["launch"]["argv"][-1] != "512"
    # One instance is restarted as one of many is.
    assert f"{ONE}/0: restart (0 to come after it)" in done.output
    assert site.leader(ONE) != single
    again = deploy(site)
    assert (again.rc, again.changed) == (0, 0), again.output


def test_a_restart_ends_at_the_first_that_fails_and_what_comes_after_it_keeps_its_files(shared: Site) -> None:
    site, folder = shared, shared.home / "services" / THREE
    before = leaders(site)
    files = {path: path.read_text() for path in (folder / "instance-2").iterdir() if path.is_file()}
    site.services[0]["engine"]["max_model_len"] = 2048
    (site.folder / "die-1").touch()
    failed = deploy(site, modelyard_restart=True)
    assert failed.rc != 0
    assert f"the restart of {THREE}/1 failed: {THREE}/1 ended (exit code 1)" in failed.output
    assert "RuntimeError: made to die" in failed.output
    assert f"Restarted and proven: {THREE}/0. Not touched, they run as before: {THREE}/2." in failed.output
    after = leaders(site)
    assert (after[0] == before[0], alive(after[0]), alive(after[1])) == (False, True, False)
    assert (after[2], alive(after[2])) == (before[2], True)
    # Started anew after a crash it would come back as it was.
    assert {path: path.read_text() for path in files} == files
    assert not (site.home / "lock").exists()


def test_only_restarts_exactly_one_and_another_supervisor_is_a_difference(shared: Site) -> None:
    if shutil.which("screen") is None:
        pytest.skip("screen is not installed")
    site = shared
    before = leaders(site)
    site.services[0]["supervisor"] = "screen"
    done = deploy(site, "-e only=role-three:2", modelyard_restart=True)
    assert done.rc == 0, done.output
    assert "instance 2 supervisor: plain -> screen" in done.output
    after = leaders(site)
    assert (after[:2], after[2] != before[2], alive(after[0]), alive(after[1])) == (before[:2], True, True, False)
    assert site.state(THREE, 2)["supervised"]["name"].endswith(f".{THREE}-2")
    assert layout.state(site.home / "services" / THREE / "instance-0")["supervised"]["kind"] == "plain"


def test_a_start_that_dies_at_once_ends_the_run_and_starts_no_more(shared: Site) -> None:
    site = Site(shared.folder / "other", [{**shared.services[0], "supervisor": "plain", "cards": [4, 5]}], shared.variables)
    site.folder.mkdir()
    site.services[0].update(topology={"replicas": 2}, listen={"base_port": free_port(2)}, name="role-dies")
    (shared.folder / "die-0").touch()
    done = deploy(site)
    assert done.rc != 0
    assert "role-dies/0 ended (exit code 1)" in done.output
    assert "RuntimeError: made to die" in done.output
    assert "Not started: role-dies/1" in done.output
    assert site.state("role-dies", 1) is None
    assert not (site.home / "lock").exists()
