"""The service over two CPU ranks once more: restarts, ends and stops, whatever was hit. In order, after its other files."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from e2e_site import ENGINE, answers, diagnosed, figure, get, start_by_hand
from e2e_site import TP2 as NAME
from footprint import API, CORE, KEEPER, TRACKER, WORKER, Instance, marked, nothing_left, port_open, strangers
from harness import BIN, ROOT, Site, alive, end, session_of, until
from stream import connections, held

pytestmark = pytest.mark.e2e
STRUCTURED = ENGINE["structured_outputs_config"]
#: What the engine grants open answers in the tests of stops, in seconds.
SHORT_S = 6


def test_another_parameter_is_shown_and_restarts_nothing(first: str, site: Site, port: int, key: str) -> None:
    site.services[0]["engine"]["max_model_len"] = 2048
    leader = site.leader(NAME)
    launch = site.home / "services" / NAME / "instance-0" / "launch.sh"
    before = launch.read_text(encoding="utf-8")
    run = site.play("deploy")
    assert run.rc != 0
    assert "PF-RESTART-NEEDED" in run.output
    assert "--max-model-len: 4096 -> 2048" in run.output
    assert "-e modelyard_restart=true" in run.output
    assert run.changed == 0
    assert launch.read_text(encoding="utf-8") == before
    assert site.leader(NAME) == leader
    assert alive(leader)


def test_check_mode_of_a_restart_shows_it_and_does_nothing(first: str, site: Site) -> None:
    leader = site.leader(NAME)
    run = site.play("deploy", "--check --diff", modelyard_restart=True)
    assert run.rc == 0, run.output[-3000:]
    assert run.changed > 0
    assert "-  4096 \\" in run.output
    assert "+  2048 \\" in run.output
    assert alive(leader)


def test_a_permitted_restart_holds_the_lock_against_a_second_run(first: str, site: Site, port: int, key: str) -> None:
    old = Instance.of(site, NAME)
    running = site.begin("deploy", ("-e", "modelyard_restart=true"))
    try:
        until((site.home / "lock").exists, 60, "the first run takes the lock")
        second = site.play("deploy", "", modelyard_restart=True)
        assert second.rc != 0
        assert "PF-LOCK-HELD" in second.output
        assert f"ansible-playbook pid {running.pid}" in second.output
        assert second.changed == 0
        output, _ = running.communicate(timeout=300)
    finally:
        end(running)
    assert running.returncode == 0, output[-3000:]
    assert site.leader(NAME) != old.leader
    assert [words for words in old.left() if "port" not in words] == [], "the port belongs to the new one"
    assert get(port, "/v1/models", key)[1]["data"][0]["max_model_len"] == 2048
    assert not (site.home / "lock").exists()


def test_a_service_whose_keeper_was_killed_serves_on(first: str, site: Site, port: int, key: str) -> None:
    instance = Instance.of(site, NAME)
    instance.signal(KEEPER, signal.SIGKILL)
    until(lambda: not instance.pids(KEEPER), 10, "the keeper is dead")
    assert answers(port, key)
    deploy = site.play("deploy")
    assert (deploy.rc, deploy.changed) == (0, 0), deploy.output[-3000:]
    assert len(session_of(instance.session)) == len(instance.processes) - 1


def test_leftovers_of_a_killed_server_are_named_refused_and_removed_exactly(first: str, site: Site, port: int, key: str) -> None:
    instance = Instance.of(site, NAME)
    assert any(name.startswith("psm_") for name in instance.segments)
    with strangers(site, NAME) as others:
        instance.signal(API, signal.SIGKILL)
        until(lambda: not instance.pids(API), 10, "the API server is dead")
        left = session_of(instance.session)
        assert sum(p["comm"] == "VLLM::Worker_TP" for p in left) == 2

        preflight = site.play("preflight")
        assert preflight.rc != 0
        assert "PF-LEFTOVER" in preflight.output
        for process in left:
            assert f"{process['pid']} {process['comm']}" in preflight.output
        refused = site.play("deploy")
        assert refused.rc != 0
        assert "PF-LEFTOVER" in refused.output
        assert {p["pid"] for p in session_of(instance.session)} >= {p["pid"] for p in left}

        shown = site.play("teardown", "--check")
        assert shown.rc == 0
        assert all(re.search(rf"would .*\b{p['pid']}\b", shown.output) for p in left)
        assert all(alive(p["pid"]) for p in left)

        two = [site.begin("teardown") for _ in range(2)]
        try:
            outputs = [one.communicate(timeout=180)[0] for one in two]
        finally:
            for one in two:
                end(one)
        assert 0 in [one.returncode for one in two], outputs
        for one, output in zip(two, outputs, strict=True):
            assert one.returncode == 0 or "PF-LOCK-HELD" in output, output
        nothing_left([instance], others)
        again = site.play("teardown")
        assert (again.rc, again.changed) == (0, 0), again.output[-3000:]


def test_a_deploy_that_was_killed_half_way_is_taken_up_and_bad_replies_are_not_accepted(first: str, site: Site) -> None:
    site.services[0]["engine"]["structured_outputs_config"] = {"backend": "xgrammar"}
    before = site.state(NAME)
    earlier = set((site.home / "evidence").glob("*"))
    killed = site.begin("deploy")
    try:
        until(lambda: site.state(NAME) != before, 120, "the engine is started")
    finally:
        end(killed)
    assert (site.home / "lock").exists()
    leader = site.leader(NAME)
    assert alive(leader)
    run = site.play("deploy")
    assert run.rc != 0
    assert site.leader(NAME) == leader, "the engine that was left loading is taken over"
    assert f"pass  {NAME}/0 chat:" in run.output
    assert "was not accepted: step schema failed on instance 0: the reply is no JSON" in run.output
    assert "disable_any_whitespace" in run.output
    assert f"{NAME}/0 logprobs" not in run.output
    kept = list(set((site.home / "evidence").glob(f"*-{NAME}-failed_schema")) - earlier)
    assert len(kept) == 1
    assert {"replies.json", "processes.json", "instance-0.log", "instance-0-state.json"} <= {p.name for p in kept[0].iterdir()}
    assert alive(leader)
    assert not (site.home / "services" / NAME / "accepted.json").exists()
    assert not (site.home / "lock").exists()


def test_a_killed_engine_core_ends_the_instance_and_a_deploy_needs_no_permission(
    first: str, site: Site, port: int, key: str
) -> None:
    instance = Instance.of(site, NAME)
    site.services[0]["acceptance"]["serial_requests"] = 500
    asking = site.begin("acceptance", ("-e", json.dumps({"acceptance_steps": ["health", "serial"]})))
    try:
        until(lambda: figure(port, "vllm:num_requests_running") > 0, 120, "one of the requests is in work")
        instance.signal(CORE, signal.SIGKILL)
        output, _ = asking.communicate(timeout=120)
    finally:
        end(asking)
        site.services[0]["acceptance"]["serial_requests"] = 5
    assert asking.returncode != 0
    assert f"pass  {NAME}/0 health: 200" in output
    assert f"FAIL  {NAME}/0 serial: " in output
    assert "A restart of the instance may help" in " ".join(output.split())
    instance.gone_by_itself()
    site.services[0]["engine"].update(structured_outputs_config=STRUCTURED, shutdown_timeout=SHORT_S)
    run = site.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    assert f"pass  {NAME}/0 serial: 5 of 5" in run.output
    assert not [words for words in instance.left() if "port" not in words]


def test_a_stop_goes_on_without_a_worker_that_hangs_and_an_answer_that_never_ends(
    first: str, site: Site, port: int, key: str
) -> None:
    instance = Instance.of(site, NAME)
    instance.signal(TRACKER, signal.SIGKILL)
    assert answers(port, key), "nobody needs a resource tracker to serve"
    stream = held(instance, 100, key)
    with strangers(site, NAME) as others:
        run = site.play("teardown")
        assert run.rc == 0, run.output[-3000:]
        nothing_left([instance], others)
    assert not stream.answer(10).whole


@pytest.mark.further
def test_a_worker_that_is_killed_in_a_diagnostic_window_ends_its_instance_whole(
    first: str, site: Site, port: int, key: str
) -> None:
    start_by_hand(site, NAME)
    until(lambda: answers(port, key), 180, "the engine that was started by hand answers")
    instance = Instance.of(site, NAME)

    def kill() -> None:
        """While both requests are in work for certain: the worker is held until they are there."""
        (worker,) = instance.signal(WORKER, signal.SIGSTOP, count=1)
        until(lambda: connections(port) >= 2, 60, "both requests were sent")
        time.sleep(1)
        os.kill(worker, signal.SIGKILL)

    code, said = diagnosed(site, NAME, kill)
    assert code != 0
    assert "one alone: answered as the schema wants" in said
    assert "verdict: concurrent structured decoding: one request is answered, two at once are not" in said
    assert "died unexpectedly" in said
    assert "nothing was restarted. See what is left with playbooks/preflight.yml" in said
    assert list((site.home / "evidence").glob(f"*-{NAME}-diagnose*"))
    instance.gone_by_itself()
    run = site.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    nothing_left([instance])


def test_an_engine_that_dies_at_its_start_is_explained_and_the_stranger_on_its_port_stays(site: Site, port: int) -> None:
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        running = site.begin("deploy")
        try:
            until((site.home / "lock").exists, 60, "the port has been looked at")
            stranger.bind(("127.0.0.1", port))
            stranger.listen()
            output, _ = running.communicate(timeout=180)
        finally:
            end(running)
        assert running.returncode != 0
        assert f"{NAME}/0 ended (exit code 1) after" in output
        assert "ddress already in use" in output
        assert "What this run had started was stopped" in output
        assert list((site.home / "evidence").glob(f"*-{NAME}-died_at_start"))
        assert marked(NAME) == set()
        run = site.play("teardown")
        assert run.rc == 0, run.output[-3000:]
        assert port_open(port), "the stranger still listens"


def with_small_shm(site: Site, *playbooks: str) -> str:
    """Play in a mount namespace with a small /dev/shm of its own, so that nobody else's is filled; what was said."""
    plays = [f"{BIN}/ansible-playbook -i {site.inventory} playbooks/{p}.yml; echo {p} ended with $?" for p in playbooks]
    script = "\n".join(["mount -t tmpfs -o size=64k tmpfs /dev/shm || exit 77", *plays, "ls -l /dev/shm; exit 0"])
    run = subprocess.run(["unshare", "--mount", "bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    return run.stdout


@pytest.mark.further
def test_a_full_shared_memory_is_refused_and_when_that_is_overruled_explained_and_cleaned_up(site: Site) -> None:
    refused = with_small_shm(site, "deploy")
    assert "PF-SHM " in refused
    assert marked(NAME) == set()
    site.variables["modelyard_checks"] = {"PF-SHM": "warn"}
    said = with_small_shm(site, "deploy", "teardown")
    assert "Insufficient space in /dev/shm" in said, said[-3000:]
    assert "What this run had started was stopped" in said
    assert "deploy ended with 2" in said
    assert "teardown ended with 0" in said
    assert said.endswith("total 0\n"), "nothing lies in that /dev/shm any more"
    assert marked(NAME) == set()
