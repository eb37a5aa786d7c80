"""Two single-rank instances on two ports with the real engine, behind our gateway."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accepting import Accept, users
from e2e_site import answers, diagnosed, figure, get, make_site, torn_down
from footprint import API, CORE, KEEPER, TRACKER, WORKER, Instance, marked, nothing_left, port_open, strangers
from harness import ROOT, Site, end, free_port, session_of, until
from stream import held
from two_engines import NAME, answered, counted, entry, gives_way, inventory, served_by, told
from web import Web

pytestmark = pytest.mark.e2e
#: What users ask who keep an engine busy.
LONG: dict[str, Any] = {"model": "tiny", "max_tokens": 300, "ignore_eos": True}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = make_site(tmp_path_factory.mktemp("two"), NAME, replicas=2, tp=1)
    base = free_port(4)
    made.services[0].update(
        listen={"host": "127.0.0.1", "base_port": base},
        gateway={"kind": "modelyard", "host": "127.0.0.1", "port": base + 2, "drain_s": 30},
    )
    made.services[0]["environment"].update(PYTHONPATH=str(ROOT / "tests/e2e/faults"), ENGINE_FAULT="two grammars")
    yield from torn_down(made)


def loading(site: Site, index: int) -> bool:
    """Is the engine core of an instance there?"""
    return site.state(NAME, index) is not None and bool(Instance.of(site, NAME, index).pids(CORE))


def asked_to_stop(site: Site, index: int) -> bool:
    """Does the engine say in its log that it was asked to end?"""
    state = site.state(NAME, index)
    assert state is not None
    return "[shutdown] API server: shutdown triggered" in Path(state["log"]).read_text(encoding="utf-8", errors="replace")


def test_two_instances_answer_on_two_ports_with_one_core_each(site: Site) -> None:
    run = site.play("deploy")
    assert run.rc == 0, run.output[-4000:]
    base = int(site.services[0]["listen"]["base_port"])
    for index in (0, 1):
        assert f"pass  {NAME}/{index} serial: 5 of 5" in run.output
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        status, reply = get(base + index, "/v1/chat/completions", body=body)
        assert (status, reply["usage"]["completion_tokens"]) == (200, 4)
        comms = [p["comm"] for p in session_of(site.state(NAME, index)["keeper"]["pid"])]
        assert sum(c.startswith("VLLM::Worker") for c in comms) == 1
    binds = [site.state(NAME, i)["request"]["launch"]["environment"]["VLLM_CPU_OMP_THREADS_BIND"] for i in (0, 1)]
    assert len(set(binds)) == 2
    assert sorted(served_by(site)) == [f"{NAME}/0"] * 2 + [f"{NAME}/1"] * 2
    assert get(entry(site), "/v1/models")[1]["data"][0]["id"] == "tiny"


def loaded(site: Site, tool: str) -> dict[str, Any]:
    """The record of a load test through the gateway."""
    run = site.play(
        "load_test",
        load_test_tool=tool,
        load_test_concurrency=[2, 16],
        load_test_requests=40,
        load_test_input_tokens=64,
        load_test_output_tokens=32,
    )
    assert run.rc == 0, run.output[-4000:]
    folder = site.home / "services" / NAME / "load"
    record: dict[str, Any] = json.loads(max(folder.glob("*.json")).read_text(encoding="utf-8"))
    return record


def test_a_load_test_with_both_generators_shows_slots_and_agrees_with_itself(site: Site) -> None:
    engines = [site.leader(NAME, index) for index in (0, 1)]
    before = counted(site)
    theirs = loaded(site, "vllm")
    between = counted(site)
    ours = loaded(site, "own")
    # The engines' own counters, beside the records: 80 requests of 32 tokens, and two of one token that come before a test.
    for first, last in ((before, between), (between, counted(site))):
        assert [now - then for now, then in zip(last, first, strict=True)] == [80 + 2, 80 * 32 + 2]
    assert [r["tool"]["name"] for r in (theirs, ours)] == ["vllm bench serve", "modelyard"]
    for record in (theirs, ours):
        assert (record["slots"], record["entry"]["kind"], record["passed"]) == (8, "gateway", True)
        for level in record["levels"]:
            assert (level["completed"], level["failed"]) == (40, 0)
            assert sum(level["by_backend"].values()) == 40
            # Fewest requests first: an engine that is slower for a while gets fewer.
            assert len(level["by_backend"]) == 2 and min(level["by_backend"].values()) > 0
            assert level["server"]["running_max"] is None or level["server"]["running_max"] <= 8
            assert 0.6 * 64 <= level["input_tokens_per_s"] / level["requests_per_s"] <= 1.6 * 64
            assert level["output_tokens_per_s"] / level["requests_per_s"] == pytest.approx(32, rel=0.02)
            # Little's law, on a machine of any speed. One slow request (an engine warms up) pulls the mean away from the median.
            busy = level["requests_per_s"] * level["e2e_ms"]["p50"] / 1000
            assert 0.1 * level["value"] <= busy <= 1.4 * level["value"]
    assert ours["compared_with"]["id"] == theirs["id"]
    assert any(word.startswith("load tool: vllm bench serve") for word in ours["compared_with"]["words"])
    assert [site.leader(NAME, index) for index in (0, 1)] == engines


@pytest.mark.further
def test_a_scheduled_acceptance_of_a_full_engine_is_busy_and_no_user_notices(site: Site, tmp_path: Path) -> None:
    """One of the two: with both full, two cores are left with no time for anybody else."""
    accept, port = Accept(site, tmp_path), int(site.services[0]["listen"]["base_port"])
    with Web(200) as web, inventory(site, "acceptance", busy_wait_s=2):
        accept.configure(tell=[{"kind": "webhook", "url": web.url}], busy_told_after_s=1)
        gives_way(site, 0)
        before = answered(port)
        with users(site, 0, count=8, **LONG) as seen:
            until(lambda: figure(port, "vllm:num_requests_running") == 4, 60, "all slots are taken")
            done = accept.run()
            assert done.returncode == 4, done.stdout + done.stderr
            assert web.heard == [], "that it is busy is no news"
            time.sleep(1)
            done = accept.run()
            assert done.returncode == 4, done.stdout + done.stderr
        assert set(seen) == {200}
        requests, tokens = (now - then for now, then in zip(answered(port), before, strict=True))
        own, own_tokens = requests - len(seen), tokens - len(seen) * LONG["max_tokens"]
        assert 0 <= own <= 20 and own <= own_tokens <= 64 * own, "no answer was cut, and few were the acceptance's own"
        (service,) = accept.latest["hosts"]["host-a"]["services"]
        busy = {
            (s["instance"], s["cause"], s["detail"].partition(" running")[0][-1])
            for s in service["steps"]
            if s["verdict"] == "busy"
        }
        assert busy == {(0, "loaded", "4")}
        assert [[item["answer"] for item in message["news"]] for _, message in web.heard] == [["busy", "busy"]], "service, whole"
        assert accept.run().returncode == 0
        assert web.heard[1][1]["news"][0]["answer"] == "accepted"


def test_a_second_deploy_changes_nothing(site: Site) -> None:
    running = [(NAME, 0), (NAME, 1), (f"{NAME}.gateway", 0)]
    leaders = [site.leader(name, i) for name, i in running]
    run = site.play("deploy")
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert [site.leader(name, i) for name, i in running] == leaders


def test_an_acceptance_goes_through_the_gateway_too_and_nothing_is_restarted(site: Site) -> None:
    leaders = [site.leader(NAME, index) for index in (0, 1)]
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}
    closed = {**schema, "additionalProperties": False}
    site.services[0]["acceptance"].update(also=["completions"], schemas=[{"name": "person", "schema": closed}])
    run = site.play("acceptance")
    assert (run.rc, run.changed) == (0, 0), run.output[-4000:]
    for index in (0, 1):
        assert f"pass  {NAME}/{index} gateway: first token after" in run.output
        assert f"pass  {NAME}/{index} completions: 16 tokens" in run.output
        assert f"skip  {NAME}/{index} memory: a CPU engine keeps its cache in main memory" in run.output
    assert "; and person" in run.output
    results = sorted((site.home / "services" / NAME / "acceptance").glob("*.json"))
    result = json.loads(results[-1].read_text(encoding="utf-8"))
    assert (result["passed"], result["depth"], result["asked"]) == (True, "full", [0, 1])
    assert [site.leader(NAME, index) for index in (0, 1)] == leaders
    told(site, "drain")
    run = site.play("acceptance", acceptance_steps=["gateway"])
    told(site, "undrain")
    assert run.rc == 0, run.output[-4000:]
    assert f"pass  {NAME}/0 gateway: first token after" in run.output
    assert f"skip  {NAME}/1 gateway: the gateway sent none of" in run.output


def test_one_instance_less_needs_permission(site: Site) -> None:
    site.services[0]["topology"]["replicas"] = 1
    run = site.play("deploy")
    assert run.rc != 0
    assert "instance 1: running -> gone" in run.output
    site.services[0]["topology"]["replicas"] = 2


def test_a_window_in_which_structured_decoding_ends_an_engine_says_so_and_spares_the_other(site: Site) -> None:
    hit, spared = (Instance.of(site, NAME, index) for index in (0, 1))
    code, said = diagnosed(site, f"{NAME}/0", lambda: None)
    assert code != 0
    assert "one alone: answered as the schema wants" in said
    assert "verdict: concurrent structured decoding: one request is answered, two at once are not" in said
    assert "two together: its log has become fatal: " in said
    assert "RuntimeError: two grammars in one batch" in said
    assert "Nothing was restarted." in said
    (folder,) = (site.home / "evidence").glob(f"*-{NAME}-diagnose")
    assert "RuntimeError: two grammars in one batch" in (folder / "instance-0.log").read_text(encoding="utf-8")
    hit.gone_by_itself()
    assert answers(spared.port)
    assert served_by(site) == [f"{NAME}/1"] * 4, "no client of the gateway notices"


def test_what_has_ended_what_is_held_and_what_is_taken_is_told_apart(site: Site) -> None:
    dead, living = (Instance.of(site, NAME, index) for index in (0, 1))
    gateway = site.leader(f"{NAME}.gateway")
    with inventory(site, "acceptance", request_timeout_s=4):
        os.kill(gateway, signal.SIGSTOP)
        try:
            run = site.play("acceptance", acceptance_steps=["process", "gateway"])
        finally:
            os.kill(gateway, signal.SIGCONT)
    assert run.rc != 0
    assert f"FAIL  {NAME}/0 process: the API server is not running" in run.output
    assert f"pass  {NAME}/1 process: pid {living.leader}" in run.output
    assert f"FAIL  {NAME}/1 gateway: through the gateway: no answer within 4 s" in run.output
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", dead.port))
        stranger.listen()
        run = site.play("acceptance", acceptance_steps=["port"])
        assert port_open(dead.port), "the stranger is left alone"
    assert run.rc != 0
    said = " ".join(run.output.split())
    assert f"pass {NAME}/1 port: port {living.port}" in said
    assert "instance 0 was not asked, because the plan refuses it: PF-PORT" in said
    assert answers(entry(site))


def test_a_plain_deploy_starts_what_is_missing_and_nothing_else(site: Site) -> None:
    before, spared = site.leader(NAME, 0), Instance.of(site, NAME, 1)
    run = site.play("deploy")
    assert run.rc == 0, run.output[-4000:]
    assert site.leader(NAME, 0) != before
    assert site.leader(NAME, 1) == spared.leader
    assert set(spared.processes) == {p["pid"] for p in session_of(spared.session)}
    assert f"pass  {NAME}/0 serial: 5 of 5" in run.output
    assert answers(spared.port)
    assert f"gateway: {NAME}/0 may get requests again" in run.output
    assert set(served_by(site)) == {f"{NAME}/0", f"{NAME}/1"}


def test_a_teardown_lets_an_open_answer_end_beside_a_dead_instance(site: Site) -> None:
    hit, serving = (Instance.of(site, NAME, index) for index in (0, 1))
    hit.signal(WORKER, signal.SIGKILL)
    hit.gone_by_itself()
    serving.signal(TRACKER, signal.SIGKILL)
    serving.signal(KEEPER, signal.SIGKILL)
    assert answers(serving.port), "nobody needs a keeper or a resource tracker to serve"
    with strangers(site, NAME) as others:
        stream = held(serving, tokens=1000)
        running = site.begin("teardown")
        try:
            until(lambda: asked_to_stop(site, 1), 120, "the engine is asked to end")
            serving.signal(WORKER, signal.SIGCONT)
            answer = stream.answer(60)
            output, _ = running.communicate(timeout=180)
        finally:
            end(running)
        assert running.returncode == 0, output[-3000:]
        assert (answer.whole, answer.finish_reason) == (True, "length")
        nothing_left([hit, serving], others)
        assert not port_open(entry(site)), "the gateway has ended as well"
        assert not marked(f"{NAME}.gateway")


def test_a_stop_while_loading_leaves_nothing_whatever_was_hit_before(site: Site) -> None:
    running = site.begin("deploy")
    try:
        until(lambda: all(loading(site, index) for index in (0, 1)), 120, "both engines load")
    finally:
        end(running)
    asked, killed = (Instance.of(site, NAME, index) for index in (0, 1))
    assert not answers(asked.port)
    assert not answers(killed.port)
    asked.signal(API, signal.SIGTERM)
    killed.signal(API, signal.SIGKILL)
    with strangers(site, NAME) as others:
        run = site.play("teardown")
        assert run.rc == 0, run.output[-3000:]
        nothing_left([asked, killed], others)
