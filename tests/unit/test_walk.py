"""The whole walk against a server that is spoilt in one way after the other: each step fails once, and the result says why."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import card_watch, entry, kernel_watch
from ladder_stub import Proxy
from unit.replies import GOOD
from unit.spoilt import LIMIT, plan, walked


def last(home, engine, **spoilt: Any):
    engine.spoilt = spoilt
    _, entries = walked(home, plan(engine))
    assert all(entry["passed"] for entry in entries[:-1])
    return entries[-1]


def test_a_sound_engine_passes_and_what_does_not_apply_is_left_out_with_a_word(home, engine):
    _, entries = walked(home, plan(engine))
    assert [(e["id"], e["verdict"]) for e in entries] == [
        *[(step, "pass") for step in ("health", "models")],
        ("memory", "skipped"),
        *[(step, "pass") for step in ("chat", "schema", "logprobs", "serial")],
        ("gateway", "skipped"),
    ]
    assert all(e["passed"] and e["detail"] and not e["cause"] for e in entries)
    assert set(entries[0]) - {"evidence"} == {
        *("id", "instance", "passed", "verdict", "seconds", "detail", "cause", "next", "restart"),
    }


@pytest.mark.parametrize(
    ("spoilt", "step", "cause", "restart", "words"),
    [
        ({"health": 503}, "health", "engine_dead", True, "HTTP 503: the API server says that its engine is dead"),
        ({"health": 500}, "health", "engine_error", False, "HTTP 500"),
        ({"model": "other"}, "models", "model", False, "tiny-qwen3 is not listed, only other"),
        ({"length": 2048}, "models", "max_model_len", False, "max_model_len is 2048, 4096 was wanted"),
        ({"models_status": 404}, "models", "path", False, "HTTP 404"),
        ({"status": 400, "body": LIMIT}, "chat", "context", False, "9921 tokens, max_model_len 8192"),
        ({"status": 400, "body": "not a multimodal model"}, "chat", "multimodal", False, "pictures"),
        ({"status": 400, "body": '{"param": "top_p"}'}, "chat", "parameter", False, "top_p"),
        ({"status": 401, "body": "Unauthorized"}, "chat", "key", False, "API key"),
        ({"status": 403, "body": ""}, "chat", "forbidden", False, "not allowed"),
        ({"status": 404, "body": "The model `tiny` does not exist."}, "chat", "model", False, "tiny is not served"),
        ({"status": 413, "body": ""}, "chat", "too_large", False, "larger"),
        ({"status": 500, "body": "EngineCore encountered an issue"}, "chat", "engine_dead", True, "has died"),
        ({"status": 500, "body": "Internal"}, "chat", "engine_error", False, "failed at this request"),
        ({"said": "{}"}, "schema", "unconstrained", False, "answer is missing"),
        ({"said": json.dumps({**GOOD, "extra": 1})}, "schema", "unconstrained", False, "extra is not allowed"),
        ({"said": json.dumps({**GOOD, "count": "1"})}, "schema", "unconstrained", False, "not of type integer"),
        ({"said": "Paris is the capital"}, "schema", "unconstrained", False, "no JSON"),
        ({"logprobs": [-0.1, float("nan"), -1, -2, -3]}, "logprobs", "not_finite", False, "not finite"),
        ({"logprobs": [-2, -1, -3, -4, -5]}, "logprobs", "unsorted", False, "not sorted"),
        ({"logprobs": [-1, -2]}, "logprobs", "shape", False, "2 alternatives, 5 were wanted"),
    ],
)
def test_each_step_fails_once_and_the_result_says_why(home, engine, spoilt, step, cause, restart, words):
    found = last(home, engine, **spoilt)
    assert (found["id"], found["verdict"], found["passed"]) == (step, "fail", False)
    assert (found["cause"], found["restart"]) == (cause, restart)
    assert words in found["detail"]
    assert found["next"]


# -- load, and silence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoilt", "verdict", "cause"),
    [
        ({"running": 4, "moves": 5}, "busy", "loaded"),
        ({"running": 1, "waiting": 2, "moves": 5}, "busy", "loaded"),
        ({"running": 4, "moves": 0}, "fail", "hung"),
    ],
)
def test_a_loaded_engine_is_asked_for_no_token(home, engine, spoilt, verdict, cause):
    found = last(home, engine, **spoilt)
    assert (found["id"], found["verdict"], found["cause"]) == ("chat", verdict, cause)
    assert "running" in found["detail"]
    assert not [path for path, _ in engine.asked if path == "/v1/chat/completions"]


@pytest.mark.parametrize(
    ("spoilt", "verdict", "cause", "restart"),
    [
        ({"running": 1, "moves": 5}, "busy", "loaded", False),
        ({"running": 1}, "fail", "hung", True),
        ({"moves": 5}, "fail", "slow", False),
        ({}, "fail", "silent", True),
    ],
)
def test_a_request_that_is_not_answered_in_time_is_read_by_the_figures(home, engine, spoilt, verdict, cause, restart):
    engine.spoilt = {"hang_s": 3, **spoilt}
    _, entries = walked(home, plan(engine, acceptance={"request_timeout_s": 1}))
    found = entries[-1]
    assert (found["id"], found["verdict"], found["cause"], found["restart"]) == ("chat", verdict, cause, restart)
    assert "no answer within 1 s" in found["detail"]


def test_too_many_requests_are_load_and_no_failure(home, engine):
    found = last(home, engine, status=429, body="the queue is full")
    assert (found["verdict"], found["cause"], found["restart"]) == ("busy", "queue", False)


def test_a_refused_connection_is_told_with_the_state_of_the_process(home, engine):
    engine.close()
    _, entries = walked(home, plan(engine), ["health"])
    assert (entries[0]["cause"], entries[0]["verdict"]) == ("closed", "fail")
    state = layout.state(home / "services/tiny-qwen3/instance-0")
    state["leader"]["start"] += 1
    layout.write_json(home / "services/tiny-qwen3/instance-0/run/state.json", state)
    _, entries = walked(home, plan(engine), ["health"])
    assert (entries[0]["cause"], entries[0]["restart"]) == ("ended", True)


# -- between the steps ----------------------------------------------------------------------------------------------


def test_a_fatal_line_of_the_engine_ends_the_ladder_after_the_step_that_passed(home, engine):
    def log():
        with (home / "engine.log").open("a") as stream:
            stream.write("(EngineCore pid=7) ERROR 11-29 17:00:00 [core.py:10] RPC call to sample_tokens timed out.\n")

    found = last(home, engine, log=log)
    assert (found["id"], found["cause"], found["restart"]) == ("chat", "log", True)
    assert found["detail"].startswith("after this step: the engine's log has become fatal: RPC call to sample_tokens timed out.")


def test_a_fatal_line_is_told_besides_the_step_that_failed(home, engine):
    def log():
        (home / "engine.log").write_text("INFO ready\nEngineDeadError: EngineCore encountered an issue.\n")

    found = last(home, engine, log=log, status=500, body="EngineCore encountered an issue")
    assert found["cause"] == "log"
    assert found["detail"].startswith("HTTP 500: the engine behind the API has died")
    assert "; besides, the engine's log has become fatal" in found["detail"]


def test_lines_of_the_kernel_count_from_the_beginning_on_and_only_ours(home, engine):
    kmsg = home / "sim/dev/kmsg"
    line = "4,1,2,-;Out of memory: Killed process {} (vllm) total-vm:1kB\n"
    kmsg.write_text(line.format(os.getpid()))

    def log():
        with kmsg.open("a") as stream:
            stream.write(line.format(1).replace("4,1,", "4,2,"))

    engine.spoilt = {"log": log}
    assert all(entry["passed"] for entry in walked(home, plan(engine))[1])

    def ours():
        with kmsg.open("a") as stream:
            stream.write(line.format(os.getpid()).replace("1kB", "2kB"))

    found = last(home, engine, log=ours)
    assert (found["id"], found["cause"]) == ("chat", "oom")
    assert "Killed process" in found["detail"]


@pytest.mark.parametrize("steps", [["health", "chat"], ["health", "chat", "gateway"]])
def test_what_happens_during_the_last_step_is_seen_although_the_last_look_is_still_fresh(home, engine, monkeypatch, steps):
    monkeypatch.setattr(kernel_watch, "FRESH_S", 60.0)
    kmsg = home / "sim/dev/kmsg"

    def log():
        with kmsg.open("a") as stream:
            stream.write(f"4,3,3,-;Out of memory: Killed process {os.getpid()} (vllm) total-vm:3kB\n")

    engine.spoilt = {"log": log}
    _, entries = walked(home, plan(engine), steps)
    assert (entries[-1]["id"], entries[-1]["cause"]) == (steps[-1], "oom")


def test_one_look_at_the_cards_serves_all_unless_it_was_begun_too_early(home, monkeypatch):
    asked = []
    watch = card_watch.CardWatch(str(home), "tiny-qwen3")
    watch.where = watch.where._replace(devices=[{"index": 0}], entry={"vendor": "0x10de", "tool_limit_s": 1})
    monkeypatch.setattr(watch, "devices", lambda index: watch.where.devices)
    monkeypatch.setattr(card_watch.cards, "look", lambda *_: asked.append(1) or ([], {"tool": {"said": "nothing"}}))
    for _ in range(3):
        watch.look(0, [])
    assert len(asked) == 1
    ended = time.monotonic()
    for _ in range(3):
        watch.look(0, [], ended)
    assert len(asked) == 2


# -- through the gateway --------------------------------------------------------------------------------------------


def through(home, engine, proxy, **spoilt: Any):
    engine.spoilt = spoilt
    service = {**plan(engine), "gateway": {"kind": "nginx", "host": "127.0.0.1", "port": proxy.port, "keys_file": ""}}
    _, (found,) = walked(home, service, ["gateway"])
    return found


@pytest.mark.parametrize(
    ("bundle", "wait_s", "spoilt", "verdict", "cause"),
    [
        (1, 0, {}, "pass", ""),
        (8, 0, {}, "fail", "clumped"),
        (1, 1.0, {}, "fail", "late"),
        (8, 0, {"running": 2, "moves": 3}, "busy", "loaded"),
        (1, 0, {"done": False}, "fail", "truncated"),
        (1, 0, {"status": 502, "body": "tiny-qwen3/0 refused the connection"}, "fail", "refused"),
        (1, 0, {"backend": "tiny-qwen3/1"}, "skipped", ""),
    ],
)
def test_a_proxy_that_holds_tokens_back_is_seen(home, engine, monkeypatch, bundle, wait_s, spoilt, verdict, cause):
    monkeypatch.setattr(entry, "_runnable", lambda: 1)  # whatever else these tests run beside
    proxy = Proxy(engine, bundle, wait_s)
    try:
        found = through(home, engine, proxy, gap_s=0.02, **spoilt)
    finally:
        proxy.close()
    assert (found["id"], found["verdict"], found["cause"]) == ("gateway", verdict, cause), found["detail"]


def test_a_proxy_is_not_blamed_for_a_host_whose_processors_are_taken(home, engine, monkeypatch):
    assert entry._runnable() >= 1, "this test at least"
    monkeypatch.setattr(entry, "_runnable", lambda: 5 * (os.cpu_count() or 1))
    proxy = Proxy(engine, 8, 0)
    try:
        found = through(home, engine, proxy, gap_s=0.02)
    finally:
        proxy.close()
    assert (found["verdict"], found["cause"]) == ("busy", "loaded")
    assert "5.0 programs wanted each processor" in found["detail"]


def test_a_gateway_that_does_not_listen_fails_and_one_that_comes_later_is_left_out(home, engine):
    proxy = Proxy(engine)
    proxy.close()
    found = through(home, engine, proxy)
    assert (found["verdict"], found["cause"]) == ("fail", "refused")
    assert found["detail"].startswith("through the gateway: connection refused")
    service = {**plan(engine), "gateway": {"kind": "nginx", "host": "127.0.0.1", "port": proxy.port}}
    _, (later,) = walked(home, service, ["gateway"], after=True)
    assert (later["verdict"], later["passed"]) == ("skipped", True)


@pytest.mark.parametrize(
    ("spoilt", "verdict", "cause"),
    [({}, "fail", "held"), ({"running": 1}, "fail", "hung"), ({"running": 1, "moves": 5}, "busy", "loaded")],
)
def test_a_gateway_that_does_not_answer_is_told_from_an_instance_that_does_not(home, engine, spoilt, verdict, cause):
    engine.spoilt = spoilt
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gateway = {"kind": "nginx", "host": "127.0.0.1", "port": silent.getsockname()[1], "keys_file": ""}
        service = {**plan(engine, acceptance={"request_timeout_s": 0.5}), "gateway": gateway}
        _, (found,) = walked(home, service, ["gateway"])
    assert (found["verdict"], found["cause"]) == (verdict, cause)
    assert found["detail"].startswith("through the gateway: no answer within ")
    assert "nothing of them needs a restart" in found["next"] or cause != "held"
