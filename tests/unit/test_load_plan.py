"""What a load test is to do, and reading how loaded an engine is."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.load import look
from ansible_collections.modelyard.core.plugins.module_utils.plan import load_test, planner, tables
from ansible_collections.modelyard.core.plugins.module_utils.survey import engine_metrics
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds
from unit.load_inputs import USUAL

NAMES = tables.vllm("0.32.0")["metrics"]


def service(**changes: Any) -> dict[str, Any]:
    planned: dict[str, Any] = planner.plan(worlds.intent(services=[worlds.service(**changes)]), worlds.survey())["services"][0]
    return planned


def test_the_defaults_of_the_role_are_sound_and_known():
    options, wrong = load_test.options(USUAL)
    assert (options, wrong) == (USUAL, [])
    assert load_test.complaints(options, service()) == []


def test_inputs_may_come_as_text_as_extra_variables_do():
    texts = {key: ",".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in USUAL.items()}
    assert load_test.options(texts) == (USUAL, [])
    assert load_test.options({**USUAL, "concurrency": "[1, 2]", "anyway": "yes"})[0]["concurrency"] == [1, 2]


@pytest.mark.parametrize("key", ["users", "seconds", "concurrency", "tool", "entry"])
def test_what_is_no_value_of_an_input_is_named(key):
    _, (words,) = load_test.options({**USUAL, key: "many"})
    assert words.startswith(f"load_test_{key} is 'many'")


@pytest.mark.parametrize(
    ("changes", "levels"),
    [
        ({}, [(8, 40), (16, 64), (32, 128), (48, 192), (64, 256)]),
        ({"concurrency": [4, 2, 2], "requests": 9}, [(2, 9), (4, 9)]),
        ({"rates": [0.5, 20]}, [(0.5, 40), (20, 600)]),
        ({"concurrency": [3], "seconds": 30}, [(3, 0)]),
        ({"users": 100}, [(100, 0)]),
    ],
)
def test_levels_of_a_shape(changes, levels):
    found = load_test.levels(load_test.shape({**USUAL, **changes}))
    assert [(level["value"], level["requests"]) for level in found] == levels
    assert all(bool(level["requests"]) is not bool(level["seconds"]) for level in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"concurrency": []}, "load_test_concurrency is empty"),
        ({"concurrency": [0]}, "load_test_concurrency holds a level that is not between 0 and 4096"),
        ({"rates": [20000.0]}, "load_test_rates holds a level"),
        ({"rates": [1.0], "users": 5}, "load_test_rates and load_test_users are both set"),
        ({"requests": 5, "seconds": 5.0}, "load_test_requests and load_test_seconds are both set"),
        ({"output_tokens": 0}, "load_test_output_tokens is 0"),
        ({"requests": -1}, "load_test_requests is negative"),
        ({"users": 5, "pause_s": [3.0, 1.0]}, "load_test_pause_s wants two numbers"),
        ({"entry": "gateway"}, "and tiny-qwen3 has no gateway"),
        ({"tool": "vllm", "users": 5}, "which knows neither users with pauses nor seconds"),
    ],
)
def test_inputs_that_cannot_be_are_named(changes, words):
    (said,) = load_test.complaints({**USUAL, **changes}, service())
    assert words in said


def test_limits_that_cannot_be_are_named():
    limits = {"e2e_p95_ms": -1, "error_rate": 2.0}
    found = load_test.complaints(USUAL, service(load={"limits": limits}))
    assert [words.split(" of ")[0] for words in found] == ["load.limits.e2e_p95_ms", "load.limits.error_rate"]


GATEWAY = {"kind": "modelyard", "port": 8100}


@pytest.mark.parametrize(
    ("gateway", "only", "entry", "through"),
    [
        ({}, [], "auto", False),
        (GATEWAY, [], "auto", True),
        (GATEWAY, [0], "auto", False),
        (GATEWAY, [0], "gateway", True),
        (GATEWAY, [], "instance", False),
    ],
)
def test_requests_go_through_the_gateway_unless_single_instances_are_meant(gateway, only, entry, through):
    planned = service(gateway={**worlds.NO_GATEWAY, **gateway}, topology={"replicas": 2, "tensor_parallel_size": 1})
    asked = load_test.request(planned, {**USUAL, "entry": entry}, only, {}, {}, "0.1.0")
    assert bool(asked["gateway"]) is through
    assert [one["index"] for one in asked["instances"]] == (only or [0, 1])
    running = [{"index": 0, "host": "0.0.0.0", "port": 8000}, {"index": 1, "host": "0.0.0.0", "port": 8001}]
    where, addresses = load_test.entry(asked, running)
    assert (where["kind"], where["port"], len(addresses)) == (("gateway", 8100, 1) if through else ("instance", 8000, 2))


@pytest.mark.parametrize(
    ("changes", "own"),
    [({}, False), ({"tool": "own"}, True), ({"users": 5}, True), ({"seconds": 9.0}, True), ({"ignore_eos": False}, True)],
)
def test_what_vllm_bench_serve_does_not_know_is_for_our_generator(changes, own):
    asked = load_test.request(service(), {**USUAL, **changes}, [], tables.bench("0.32.0"), {}, "0.1.0")
    assert (asked["bench"] == {}) is own


@pytest.mark.parametrize(
    ("answer", "through", "words"),
    [
        ({"status": 0, "error": "refused", "body": None}, True, "connection refused. playbooks/acceptance.yml"),
        ({"status": 0, "error": "timeout", "body": None}, False, "no answer within 60 s"),
        ({"status": 401, "body": {"error": "Unauthorized"}}, True, "with a key for the gateway: load_test_key_file"),
        ({"status": 401, "body": {"error": "Unauthorized"}}, False, "with the right key: load_test_key_file"),
        (
            {"status": 404, "body": {"error": {"message": "no such model"}}},
            False,
            'HTTP 404: {"error": {"message": "no such model"}}',
        ),
        ({"status": 502, "body": "Bad Gateway"}, True, "HTTP 502: Bad Gateway"),
    ],
)
def test_the_first_request_that_fails_says_why(answer, through, words):
    assert words in look.failure({"error": "", **answer}, through)


def test_options_are_read_from_the_command_line_that_runs():
    words = ["vllm", "serve", "--max-num-seqs", "4", "--max-model-len=4096", "--max-num-seqs", "8"]
    assert look.option(words, "--max-num-seqs") == "8"
    assert look.option(words, "--max-model-len") == "4096"
    assert look.option(words, "--seed") == ""


# -- /metrics ----------------------------------------------------------------------------------------------------------

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a{b}c"} 3.0
vllm:num_requests_running{engine="1",model_name="a{b}c"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:num_preemptions_total 4.0 1700000000
vllm:request_success_total{finished_reason="stop"} 5.0
vllm:request_success_total{finished_reason="length"} 6.0
vllm:generation_tokens_total{engine="0"} NaN
"""


def test_cores_are_added_and_the_fullest_cache_counts():
    found = engine_metrics.read(TEXT, NAMES)
    assert found == {"running": 5.0, "waiting": 1.0, "kv_usage": 0.75, "preemptions": 4.0, "finished": 11.0}


def test_without_names_nothing_is_known():
    assert engine_metrics.read(TEXT, {}) == {}
    assert engine_metrics.read(TEXT, {"running": ""}) == {}


@given(st.text(st.sampled_from('vllm:num_requests_running{}="0 1.e\n#'), max_size=120))
def test_no_text_makes_the_reader_fail(text):
    assert set(engine_metrics.read(text, NAMES)) <= set(NAMES)
