"""The diagnostic window over the stand-in for vLLM: one instance that is well, one that two requests kill, one that they hang."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from e2e_site import get
from harness import Run, Site, alive, free_port, until
from stand_in import Machine

NAME = "diagnosed"
QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0, "release_supervisor": False}
WELL, DIES, HANGS = range(3)
SECRET = "diagnose-secret-8d02e1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three instances over two simulated cards each, deployed; what runs at the end is stopped."""
    folder = tmp_path_factory.mktemp("diagnose")
    machine = Machine(folder, "8xk100ai")
    port = free_port(4)
    settings = machine.environment / "stand-in.json"
    usual = json.loads(settings.read_text(encoding="utf-8"))
    faults = {str(port + DIES): {"together": "die"}, str(port + HANGS): {"together": "hang"}}
    settings.write_text(json.dumps({**usual, "token_s": 0.03, "ports": faults}), encoding="utf-8")
    made = Site(folder, [])
    made.services = [
        {
            "name": NAME,
            "backend": "hygon",
            "model": {"id": "tiny", "path": str(machine.model)},
            "runtime_path": str(machine.environment),
            "topology": {"replicas": 3, "tensor_parallel_size": 2},
            "cards": list(range(6)),
            "listen": {"host": "127.0.0.1", "base_port": port},
            "engine": {"max_model_len": 1024, "max_num_seqs": 4},
        }
    ]
    made.variables.update(modelyard_sysroot=str(machine.sim.root), modelyard_tool_path=[str(machine.sim.root / "bin")])
    made.variables["modelyard_checks"] = {"PF-MEMORY": "note", "PF-DISK": "note"}
    made.variables["modelyard_api_keys"] = {NAME: SECRET}
    deployed = made.play("deploy", "--skip-tags acceptance,card_test")
    assert deployed.rc == 0, deployed.output[-4000:]
    yield made
    run.stop_service(str(made.home), NAME, options=QUICK)


def port(site: Site, index: int) -> int:
    return int(site.services[0]["listen"]["base_port"]) + index


def evidence(site: Site) -> list[Path]:
    return sorted((site.home / "evidence").glob(f"*-{NAME}-diagnose*"))


def diagnose(site: Site, index: int, arguments: str = "", **extra: Any) -> Run:
    return site.play("diagnose", arguments, confirm_diagnose=f"host-a:{NAME}/{index}", diagnose_limit_s=6, **extra)


def flat(run: Run) -> str:
    return " ".join(run.output.split())


@contextlib.contextmanager
def requests_of_others(site: Site, index: int) -> Iterator[None]:
    """A long answer to somebody else, for as long as the context lasts or a little more."""
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 900, "ignore_eos": True}
    client = threading.Thread(target=get, args=(port(site, index), "/v1/chat/completions", SECRET, body), daemon=True)
    client.start()
    until(
        lambda: 'num_requests_running{engine="0",model_name="tiny"} 1.0' in get(port(site, index), "/metrics")[1], 10, "it runs"
    )
    yield


def test_without_a_persons_word_nothing_is_asked(site: Site) -> None:
    for extra, words in (
        ({}, "it is not given: two JSON Schema requests at once"),
        ({"confirm_diagnose": f"host-a:{NAME}"}, f"{NAME} has 3 instances (0, 1, 2)"),
        ({"confirm_diagnose": f"host-b:{NAME}/0"}, "host-b is no host of this run"),
    ):
        run = site.play("diagnose", **extra)
        assert run.rc != 0
        assert words in flat(run)
        assert "DG-CONFIRM" in run.output
        assert "Nothing was asked or changed." in flat(run)
    site.variables["confirm_diagnose"] = f"host-a:{NAME}/{WELL}"
    try:
        run = site.play("diagnose")
    finally:
        del site.variables["confirm_diagnose"]
    assert run.rc != 0
    assert "confirm_diagnose stands in the inventory" in flat(run)
    assert evidence(site) == []
    assert not (site.home / "lock").exists()


def test_check_mode_only_says_what_would_be_asked(site: Site) -> None:
    run = diagnose(site, WELL, "--check")
    assert run.rc == 0, run.output[-3000:]
    assert f"would ask {NAME}/{WELL} one request with a schema alone, then two at once, 6 s at most each" in run.output
    assert evidence(site) == []


def test_a_busy_instance_is_refused_and_goes_on(site: Site) -> None:
    with requests_of_others(site, WELL):
        run = diagnose(site, WELL)
    assert run.rc != 0
    assert "DG-STATE" in run.output
    assert "the service is busy: 1 request(s) of others run or wait" in flat(run)
    assert evidence(site) == []
    until(lambda: 'num_requests_running{engine="0",model_name="tiny"} 0.0' in get(port(site, WELL), "/metrics")[1], 60, "idle")


def test_an_engine_that_takes_two_at_once_is_said_to_be_well_and_the_result_is_kept(site: Site) -> None:
    leader = site.leader(NAME, WELL)
    run = diagnose(site, WELL, "-vvv")
    assert run.rc == 0, run.output[-4000:]
    assert "verdict: nothing failed: two requests with a schema at once are answered as one alone is" in run.output
    (folder,) = evidence(site)
    assert f"Evidence: {folder}" in run.output
    names = {path.name for path in folder.iterdir()}
    assert {"verdict.txt", "window.json", "findings.json", "survey.json", "processes.json", "instance-0.log"} <= names
    window = json.loads((folder / "window.json").read_text(encoding="utf-8"))
    assert [one["status"] for one in window["together"]["answers"]] == [200, 200]
    together = window["together"]
    assert len(together["samples"]) >= 4
    assert {card["index"] for card in together["samples"][0]["cards"]} == set(range(8))
    assert {one["comm"] for one in together["samples"][0]["processes"]} >= {"VLLM::EngineCor", "VLLM::Worker_TP"}
    assert SECRET not in run.output
    assert all(SECRET.encode() not in path.read_bytes() for path in folder.iterdir())
    assert site.leader(NAME, WELL) == leader
    assert not (site.home / "lock").exists()


@pytest.mark.further
def test_an_engine_that_two_requests_kill_is_told_from_leftovers_and_nothing_is_restarted(site: Site) -> None:
    kept = len(evidence(site))
    leader, others = site.leader(NAME, DIES), [site.leader(NAME, index) for index in (WELL, HANGS)]
    run = diagnose(site, DIES)
    assert run.rc != 0
    said = flat(run)
    assert "verdict: concurrent structured decoding: one request is answered, two at once are not" in said
    assert "two together: the engine waits for a rank in vain: TimeoutError: RPC call to sample_tokens timed out." in said
    assert "-> until it is solved, one request at a time: engine.max_num_seqs: 1" in said
    assert "Nothing was restarted." in said
    folder = evidence(site)[-1]
    assert "RPC call to sample_tokens timed out" in (folder / f"instance-{DIES}.log").read_text(encoding="utf-8")
    until(lambda: not alive(leader), 20, "it ends by itself")
    assert site.leader(NAME, DIES) == leader, "nothing was started again"
    assert [site.leader(NAME, index) for index in (WELL, HANGS)] == others
    again = diagnose(site, DIES)
    assert again.rc != 0
    assert "the engine has ended" in flat(again)
    assert len(evidence(site)) == kept + 1


@pytest.mark.further
def test_an_engine_that_two_requests_hang_is_told_from_a_slow_one(site: Site) -> None:
    leader, kept = site.leader(NAME, HANGS), len(evidence(site))
    run = diagnose(site, HANGS)
    assert run.rc != 0
    said = flat(run)
    assert "verdict: concurrent structured decoding" in said
    assert (
        "had no answer within 6 s; no token comes, 1 run by its count of the last finished step; its processes: VLLM::EngineCor S"
        in said
    )
    assert alive(leader)
    assert len(evidence(site)) == kept + 1
    again = diagnose(site, HANGS)
    assert again.rc != 0
    assert "the service is busy: 1 request(s) of others run or wait" in flat(again), "what hangs is not asked again"
