"""One service over two CPU ranks with the real engine, from the first deploy to the last stop. In order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_site import get, make_site, torn_down
from harness import Site, alive, end, session_of, shared_memory, until

pytestmark = pytest.mark.e2e
NAME = "tiny-tp2"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, key: str) -> Iterator[Site]:
    made = make_site(tmp_path_factory.mktemp("tp2"), NAME, replicas=1, tp=2)
    made.variables["modelyard_api_keys"] = {NAME: key}
    yield from torn_down(made)


@pytest.fixture(scope="module")
def port(site: Site) -> int:
    return int(site.services[0]["listen"]["base_port"])


@pytest.fixture(scope="module")
def first(site: Site) -> str:
    """Output of the first deploy, as talkative as it gets."""
    run = site.play("deploy", "-vvv --diff")
    assert run.rc == 0, run.output[-4000:]
    return run.output


def test_a_first_deploy_ends_with_an_accepted_service(first: str, site: Site, port: int, key: str) -> None:
    for step in ("process", "port", "health", "models", "chat", "schema", "logprobs", "serial"):
        assert f"pass  {NAME}/0 {step}:" in first
    assert "max_model_len 4096" in first
    assert re.search(r"core 0 +pass .*\n +core 1 +pass .*\n +all-reduce tiny-tp2/0 +pass ", first), "each core has computed"
    assert f"curl -s http://127.0.0.1:{port}/v1/chat/completions" in first
    assert "teardown_service=tiny-tp2" in first
    status, models = get(port, "/v1/models", key)
    assert (status, models["data"][0]["id"]) == (200, "tiny")
    comms = sorted(p["comm"] for p in session_of(site.state(NAME)["keeper"]["pid"]))
    assert comms.count("VLLM::Worker_TP") == 2
    assert comms.count("VLLM::EngineCor") == 1


def test_the_result_is_kept_for_programs(first: str, site: Site) -> None:
    results = list((site.home / "services" / NAME / "acceptance").glob("*.json"))
    assert len(results) == 1
    result = json.loads(results[0].read_text(encoding="utf-8"))
    assert result["passed"] is True
    assert [s["id"] for s in result["steps"]][:2] == ["process", "port"]


def test_waiting_shows_what_the_engine_does(first: str) -> None:
    for words in ("reading the model's configuration", "starting the engine and its workers", "answers on /health"):
        assert f"{NAME}/0: {words}" in first


def test_the_key_protects_the_service_and_never_shows(first: str, site: Site, port: int, key: str) -> None:
    assert get(port, "/v1/models")[0] == 401
    assert key not in first
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key.encode() not in cmdline.read_bytes(), cmdline
        except OSError:
            continue
    holders = [p for p in site.home.rglob("*") if p.is_file() and not p.is_symlink() and key.encode() in p.read_bytes()]
    assert [p.name for p in holders] == ["api_key"]
    assert holders[0].stat().st_mode & 0o777 == 0o600


def test_every_process_carries_the_marker(first: str, site: Site) -> None:
    for process in session_of(site.state(NAME)["keeper"]["pid"]):
        environ = Path(f"/proc/{process['pid']}/environ").read_bytes().split(b"\0")
        assert b"MODELYARD_SERVICE=tiny-tp2" in environ, process


def test_a_second_deploy_changes_nothing(first: str, site: Site) -> None:
    before = session_of(site.state(NAME)["keeper"]["pid"])
    run = site.play("deploy")
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert run.tasks <= 40
    assert "passed earlier, by these very processes" in run.output
    assert [p["pid"] for p in session_of(site.state(NAME)["keeper"]["pid"])] == [p["pid"] for p in before]


def test_check_mode_on_a_deployed_host_shows_no_change(first: str, site: Site) -> None:
    run = site.play("deploy", "--check --diff")
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]


def test_acceptance_alone_walks_the_ladder_again(first: str, site: Site) -> None:
    run = site.play("acceptance", "", acceptance_steps=["health", "logprobs"])
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert "pass  tiny-tp2/0 logprobs: 8 tokens, 5 alternatives each" in run.output
    assert "tiny-tp2/0 serial" not in run.output


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
    old = site.leader(NAME)
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
    assert site.leader(NAME) != old
    assert not alive(old)
    assert get(port, "/v1/models", key)[1]["data"][0]["max_model_len"] == 2048
    assert not (site.home / "lock").exists()


def test_leftovers_of_a_killed_server_are_named_refused_and_removed_exactly(first: str, site: Site, port: int, key: str) -> None:
    model = site.services[0]["model"]["path"]
    stranger = subprocess.Popen(
        ["bash", "-c", f"exec -a 'python vllm serve {model} --port {port}' sleep 600"], start_new_session=True
    )
    namesake = subprocess.Popen(["bash", "-c", "exec -a VLLM::EngineCore sleep 600"], start_new_session=True)
    keeper = site.state(NAME)["keeper"]["pid"]
    segments = set().union(*(shared_memory(p["pid"]) for p in session_of(keeper)))
    assert any(name.startswith("psm_") for name in segments)
    try:
        os.kill(site.leader(NAME), signal.SIGKILL)
        until(lambda: not alive(site.leader(NAME)), 10, "the API server is dead")
        left = [p for p in session_of(keeper) if p["pid"] != keeper]
        assert sum(p["comm"] == "VLLM::Worker_TP" for p in left) == 2

        preflight = site.play("preflight")
        assert preflight.rc != 0
        assert "PF-LEFTOVER" in preflight.output
        for process in left:
            assert f"{process['pid']} {process['comm']}" in preflight.output
        refused = site.play("deploy")
        assert refused.rc != 0
        assert "PF-LEFTOVER" in refused.output
        assert {p["pid"] for p in session_of(keeper)} >= {p["pid"] for p in left}

        shown = site.play("teardown", "--check")
        assert shown.rc == 0
        assert all(f" to {p['pid']} (" in shown.output for p in left)
        assert all(alive(p["pid"]) for p in left)

        stopped = site.play("teardown")
        assert stopped.rc == 0, stopped.output[-3000:]
        assert "0 left; port closed" in stopped.output
        assert not [p for p in left if alive(p["pid"])]
        assert stranger.poll() is None
        assert namesake.poll() is None
        assert not segments & {p.name for p in Path("/dev/shm").iterdir()}
    finally:
        end(stranger)
        end(namesake)


def test_a_deploy_that_was_killed_half_way_can_be_run_again(first: str, site: Site, port: int, key: str) -> None:
    before = site.state(NAME)
    killed = site.begin("deploy")
    try:
        until(lambda: site.state(NAME) != before, 120, "the engine is started")
    finally:
        end(killed)
    assert (site.home / "lock").exists()
    leader = site.leader(NAME)
    assert alive(leader)
    again = site.play("deploy")
    assert again.rc == 0, again.output[-3000:]
    assert site.leader(NAME) == leader
    assert f"pass  {NAME}/0 serial: 5 of 5" in again.output
    assert get(port, "/v1/models", key)[0] == 200


def test_a_service_whose_replies_do_not_fit_the_schema_is_not_accepted(first: str, site: Site) -> None:
    site.services[0]["engine"]["structured_outputs_config"] = {"backend": "xgrammar"}
    run = site.play("deploy", "", modelyard_restart=True)
    assert run.rc != 0
    assert "was not accepted: step schema failed on instance 0: the reply is no JSON" in run.output
    assert "disable_any_whitespace" in run.output
    assert f"{NAME}/0 logprobs" not in run.output
    kept = list((site.home / "evidence").glob(f"*-{NAME}-failed_schema"))
    assert len(kept) == 1
    assert {"replies.json", "processes.json", "instance-0.log", "instance-0-state.json"} <= {p.name for p in kept[0].iterdir()}
    assert alive(site.leader(NAME))
    assert not (site.home / "services" / NAME / "accepted.json").exists()


def test_the_stop_leaves_nothing(first: str, site: Site, port: int) -> None:
    keeper = site.state(NAME)["keeper"]["pid"]
    run = site.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    assert "asked to stop" in run.output
    assert session_of(keeper) == []
    again = site.play("teardown")
    assert (again.rc, again.changed) == (0, 0)


def test_an_engine_that_dies_at_its_start_is_explained_at_once(site: Site) -> None:
    site.services[0]["engine"]["kv_cache_memory_bytes"] = 4096
    run = site.play("deploy")
    assert run.rc != 0
    assert f"{NAME}/0 ended (exit code 1) after" in run.output
    assert "No available memory for the cache blocks" in run.output
    assert "What this run had started was stopped" in run.output
    assert list((site.home / "evidence").glob(f"*-{NAME}-died_at_start"))
