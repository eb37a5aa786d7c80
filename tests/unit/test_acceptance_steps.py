"""The acceptance's own steps that every engine for text has: what passes, and what is said when not."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import structured
from unit import worlds
from unit.replies import GOOD, INSTANCE, SERVICE, answer, judged, one, reply, tokens

# -- process and port -----------------------------------------------------------------------------------------------

TREE = {"alive": True, "leader": 42, "helpers": 0, "comms": ["vllm", "VLLM::EngineCor", "VLLM::Worker_TP", "VLLM::Worker_TP"]}


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (TREE, ("", "pid 42, 4 processes, 2 worker(s)")),
        ({**TREE, "alive": False}, ("the API server is not running", "")),
        (
            {**TREE, "comms": ["vllm", "VLLM::Worker_TP", "VLLM::Worker_TP"]},
            ("no EngineCore below the API server (vllm, VLLM::Worker_TP, VLLM::Worker_TP)", ""),
        ),
        (
            {**TREE, "comms": ["vllm", "VLLM::EngineCor", "VLLM::Worker_TP"]},
            ("1 workers for tensor_parallel_size 2", ""),
        ),
        # Before 0.10.1 processes have no titles.
        ({**TREE, "comms": ["vllm", "python", "python"]}, ("", "pid 42, 3 processes")),
        ({**TREE, "comms": ["vllm"]}, ("no process below the API server (vllm)", "")),
        # Python's own helper outlives the engine of one card, and has no title either.
        ({**TREE, "comms": ["vllm", "python3"], "helpers": 1}, ("no process below the API server (vllm, python3)", "")),
    ],
)
def test_the_process_tree_has_an_engine_core_and_a_worker_for_each_rank(seen, verdict):
    assert judged("process", seen) == verdict


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ({"listening": True, "ours": True, "pid": 42}, ("", "port 8000, pid 42")),
        ({"listening": False, "ours": False, "pid": None}, ("nothing listens on port 8000", "")),
        (
            {"listening": True, "ours": False, "pid": 7},
            ("port 8000 is held by pid 7, which is not of this service", ""),
        ),
    ],
)
def test_the_port_is_held_by_this_very_service(seen, verdict):
    assert judged("port", seen) == verdict


def test_a_port_holder_that_may_not_be_looked_into_is_not_called_none():
    complaint, _ = judged("port", {"listening": True, "ours": False, "pid": None})
    assert complaint
    assert "None" not in complaint


# -- models ---------------------------------------------------------------------------------------------------------


def models(*entries):
    return one({"object": "list", "data": list(entries)})


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (models({"id": "tiny-qwen3", "max_model_len": 4096}), ("", "tiny-qwen3, max_model_len 4096")),
        (models({"id": "tiny-qwen3", "max_model_len": 2048}), ("max_model_len is 2048, 4096 was wanted", "")),
        (models({"id": "tiny-qwen3"}), ("max_model_len is None, 4096 was wanted", "")),
        (models({"id": "a"}, {"id": "b"}), ("tiny-qwen3 is not listed, only a, b", "")),
        (one({"object": "list"}), ("the reply is not a list of models: \"{'object': 'list'}\"", "")),
        (one("<html>hello</html>"), ("the reply is not a list of models: '<html>hello</html>'", "")),
    ],
)
def test_models_shows_the_wanted_id_and_context_length(seen, verdict):
    assert judged("models", seen) == verdict


def test_without_a_wanted_length_any_length_passes():
    seen = models({"id": "tiny-qwen3", "max_model_len": 40960})
    assert judged("models", seen, worlds.service(engine={})) == ("", "tiny-qwen3, max_model_len 40960")


LORA = worlds.service(engine={"lora_modules": ["a=/a", '{"name": "b", "path": "/b"}'], "enable_lora": True})


def test_adapters_are_listed_beside_their_base():
    listed = [{"id": "tiny-qwen3", "max_model_len": 4096}, {"id": "a"}]
    assert judged("models", models(*listed), LORA) == ("adapter b is not listed, only tiny-qwen3, a", "")
    assert judged("models", models(*listed, {"id": "b"}), LORA)[0] == ""


def test_each_adapter_is_asked_under_its_own_name():
    (step,) = [step for step in acceptance.ladder(LORA, depth="quick") if step.id == "adapters"]
    assert [body["model"] for body in step.ask(LORA, INSTANCE)["bodies"]] == ["a", "b"]
    assert "adapters" not in [step.id for step in acceptance.ladder(worlds.service())]
    good, bad = answer(reply("Hello.")), answer({"error": {"message": "The model `b` does not exist."}}, 404)
    assert judged("adapters", {"answers": [good, good]}, LORA) == ("", "a, b")
    assert judged("adapters", {"answers": [good, bad]}, LORA)[0].startswith("adapter b: HTTP 404")
    assert judged("adapters", {"answers": [good, answer(reply(""))]}, LORA)[0] == "adapter b: the reply holds no text"
    assert judged("adapters", {"answers": [good]}, LORA)[0] == "1 adapters were asked"


# -- chat -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (reply("Hello."), ("", "7 tokens, finish_reason stop")),
        (reply("Hel", "length", 16), ("", "16 tokens, finish_reason length")),
        (
            {
                "choices": [{"message": {"content": None, "reasoning": "hm"}, "finish_reason": "stop"}],
                "usage": {"completion_tokens": 1},
            },
            ("", "1 tokens, finish_reason stop"),
        ),
        (
            {"choices": [{"message": {"content": "", "reasoning_content": "hm"}}], "usage": {"completion_tokens": 1}},
            ("", "1 tokens, finish_reason None"),
        ),
        (reply(""), ("the reply holds no text", "")),
        (reply(None), ("the reply holds no text", "")),
        (reply("Hello.", tokens=0), ("the reply counts no completion tokens", "")),
        ({"choices": [], "usage": None}, ("the reply holds no text", "")),
        ({}, ("the reply holds no text", "")),
    ],
)
def test_a_chat_passes_with_text_and_tokens_only(body, verdict):
    assert judged("chat", one(body)) == verdict


# -- schema ---------------------------------------------------------------------------------------------------------


def test_an_answer_that_fits_the_schema_passes():
    assert judged("schema", one(reply(json.dumps(GOOD)))) == ("", '{"answer": "Paris", "count": 1, "kind": "place"}')


@pytest.mark.parametrize(
    "value",
    [
        {},
        {k: v for k, v in GOOD.items() if k != "count"},
        {**GOOD, "extra": 1},
        {**GOOD, "count": "1"},
        {**GOOD, "count": 1.5},
        {**GOOD, "count": -1},
        {**GOOD, "count": 100},
        {**GOOD, "kind": "city"},
        {**GOOD, "answer": None},
        {**GOOD, "answer": "x" * 17},
        [GOOD],
        "Paris",
        None,
        1,
    ],
    ids=json.dumps,
)
def test_json_that_does_not_fit_the_schema_fails(value):
    complaint, seen = judged("schema", one(reply(json.dumps(value))))
    assert complaint.startswith("the reply does not fit the schema: $")
    assert seen == ""


def test_the_complaint_says_which_field_is_wrong_and_how():
    complaint, _ = judged("schema", one(reply(json.dumps({**GOOD, "count": "1"}))))
    assert complaint == "the reply does not fit the schema: $.count: '1' is not of type integer"


@pytest.mark.parametrize("content", ["The capital of France is Paris.", "", f"```json\n{json.dumps(GOOD)}\n```", None])
def test_status_200_with_unconstrained_text_fails(content):
    assert judged("schema", one(reply(content)))[0].startswith("the reply is no JSON: ")


def test_an_answer_cut_by_its_length_gets_the_hint_about_white_space():
    complaint, _ = judged("schema", one(reply('{"answer":' + "\n" * 190, "length", 200)))
    assert complaint == (
        "the reply is no JSON; it was cut by max_tokens (white space between tokens? "
        "structured_outputs_config: disable_any_whitespace): '{\"answer\":'"
    )


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"answer": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa', "cut"),
        ("The capital of France is Paris, and", "unconstrained"),
        ("", "unconstrained"),
    ],
)
def test_an_answer_that_is_only_too_long_is_told_from_one_that_is_held_to_nothing(text, cause):
    verdict = structured.schema(SERVICE, INSTANCE, one(reply(text, "length", 200)))
    assert (verdict.cause, "larger max_tokens" in verdict.next) == (cause, cause == "cut")
    assert ("cut by max_tokens before it was whole" in verdict.complaint) == (cause == "cut")


# -- logprobs -------------------------------------------------------------------------------------------------------

FIVE = (-0.1, -0.2, -0.2, -3.0, -9999.0)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (tokens(FIVE, FIVE), ("", "2 tokens, 5 alternatives each")),
        (tokens(FIVE, FIVE[:4]), ("token 1 has 4 alternatives, 5 were wanted", "")),
        (tokens((*FIVE, -10000.0)), ("token 0 has 6 alternatives, 5 were wanted", "")),
        (tokens((-0.2, -0.1, -0.3, -0.4, -0.5)), ("the alternatives of token 0 are not sorted", "")),
        (tokens((float("nan"), -1, -2, -3, -4)), ("token 0 has a logprob that is not finite", "")),
        (tokens((-1, -2, -3, -4, float("-inf"))), ("token 0 has a logprob that is not finite", "")),
        (tokens((0.5, -1, -2, -3, -4)), ("token 0 has a logprob above 0", "")),
        (reply("red"), ("the reply has no logprobs", "")),
        (reply("red", logprobs=None), ("the reply has no logprobs", "")),
        (reply("red", logprobs={"content": []}), ("the reply has no logprobs", "")),
    ],
)
def test_logprobs_are_as_many_as_wanted_finite_and_sorted(body, verdict):
    assert judged("logprobs", one(body)) == verdict


# -- serial ---------------------------------------------------------------------------------------------------------


def test_serial_reports_median_and_longest():
    answers = [answer(reply("two"), seconds=s) for s in (0.9, 0.1, 0.3)]
    service = worlds.service(acceptance={"serial_requests": 3})
    assert judged("serial", {"answers": answers}, service) == ("", "3 of 3, median 0.30 s, longest 0.90 s")


def test_serial_names_the_request_that_failed():
    answers = [answer(reply("two")), answer(reply("three")), answer(None, 0, error="refused")]
    assert judged("serial", {"answers": answers})[0] == "request 3: connection refused: nothing listens on the port"


def test_serial_does_not_take_an_empty_reply_for_an_answer():
    answers = [answer(reply("two")), answer(reply(""))]
    assert judged("serial", {"answers": answers}) == ("request 2: the reply holds nothing", "")


def test_serial_that_lacks_answers_does_not_pass_as_whole():
    # Two of twenty: whatever stopped the asking, this is not the wanted proof.
    assert judged("serial", {"answers": [answer(reply("two")), answer(reply("three"))]})[0]


def test_serial_with_nothing_asked_for_says_so():
    service = worlds.service(acceptance={"serial_requests": 0})
    assert judged("serial", {"answers": []}, service) == ("", "none asked for")
