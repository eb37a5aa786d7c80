"""The acceptance's own steps: what they ask for, and what passes."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import unanswered
from hypothesis import example, given
from hypothesis import strategies as st
from unit import worlds
from unit.replies import GOOD, INSTANCE, SERVICE, answer, judged, one, reply, tokens

# -- the ladder -----------------------------------------------------------------------------------------------------


def test_the_ladder_has_these_steps_in_this_order():
    assert [s.id for s in acceptance.ladder(SERVICE)] == [
        *("process", "port", "health", "models", "memory", "chat", "schema", "logprobs", "serial", "gateway"),
    ]
    assert [s.id for s in acceptance.ladder(SERVICE, depth="quick")] == ["process", "port", "health", "models", "chat", "schema"]


def test_chosen_steps_keep_the_order_of_the_ladder():
    assert [s.id for s in acceptance.ladder(SERVICE, ["serial", "health"])] == ["health", "serial"]


def test_a_step_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(
        KeyError,
        match="shcema is no acceptance step; known: process, port, health, models, memory, chat, schema",
    ):
        acceptance.ladder(SERVICE, ["shcema"])


def test_the_schema_step_sends_a_strict_schema_with_required_fields():
    ask = acceptance.ladder(SERVICE, ["schema"])[0].ask(SERVICE, INSTANCE)
    body = ask["bodies"][0]
    sent = body["response_format"]["json_schema"]
    assert (ask["method"], ask["path"]) == ("POST", "/v1/chat/completions")
    assert (body["model"], body["temperature"]) == ("tiny-qwen3", 0)
    assert sent["strict"] is True
    assert sent["schema"]["required"] == ["answer", "count", "kind"]
    assert sent["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("number", [0, 1, 20])
def test_the_serial_step_asks_as_often_as_the_inventory_says(number):
    service = worlds.service(acceptance={"serial_requests": number})
    bodies = acceptance.ladder(service, ["serial"])[0].ask(service, INSTANCE)["bodies"]
    assert len(bodies) == number
    assert len({json.dumps(b) for b in bodies}) == number  # no two alike: a cached answer proves nothing


def test_the_logprobs_step_asks_for_the_wanted_number_of_alternatives():
    service = worlds.service(acceptance={"top_logprobs": 20})
    body = acceptance.ladder(service, ["logprobs"])[0].ask(service, INSTANCE)["bodies"][0]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)


# -- answers that are none ------------------------------------------------------------------------------------------


def figures(running=0, generated=100, prompted=10):
    return {"running": running, "waiting": 0, "generation_tokens": generated, "prompt_tokens": prompted}


def counted(before, after, later):
    return {"before": before, "after": after, "later": later}


AT_WORK = counted(figures(1, 100), figures(2, 150), figures(1, 160))
STUCK = counted(figures(1, 100), figures(2, 100), figures(1, 100))
TOO_SLOW = counted(figures(0, 100), figures(1, 150), figures(0, 151))
EMPTY = counted(figures(), figures(), figures())


@pytest.mark.parametrize(
    ("got", "more", "words", "cause", "restart", "verdict"),
    [
        (answer(status=0, error="refused"), {"engine": {"alive": False, "listening": False}}, "has ended", "ended", True, "fail"),
        (
            answer(status=0, error="refused"),
            {"engine": {"alive": True, "listening": False}},
            "lives, but",
            "closed",
            False,
            "fail",
        ),
        (
            answer(status=0, error="refused"),
            {"engine": {"alive": True, "listening": True}},
            "a moment",
            "reopened",
            False,
            "fail",
        ),
        (answer(status=0, error="refused"), {}, "nothing listens", "refused", False, "fail"),
        (answer(status=0, error="timeout", seconds=120.2), {"counters": AT_WORK}, "within 120 s", "loaded", False, "busy"),
        (answer(status=0, error="timeout"), {"counters": STUCK}, "generates no token", "hung", True, "fail"),
        (answer(status=0, error="timeout"), {"counters": TOO_SLOW}, "too slowly", "slow", False, "fail"),
        (answer(status=0, error="timeout"), {"counters": EMPTY}, "no request in work", "lost", False, "fail"),
        (answer(status=0, error="timeout"), {}, "could not be seen", "timeout", False, "fail"),
        (answer(status=0, error="OSError: no route"), {}, "no route", "no_answer", False, "fail"),
        (answer({"message": "maximum context length is 8192"}, 400), {}, "max_model_len 8192", "context", False, "fail"),
        (answer({"message": "Grammar error: unsupported"}, 400), {}, "cannot hold an answer", "schema", False, "fail"),
        (
            answer({"message": "At most 0 image(s) may be provided in one prompt."}, 400),
            {},
            "pictures",
            "multimodal",
            False,
            "fail",
        ),
        (answer({"message": "default chat template is no longer allowed"}, 400), {}, "template", "template", False, "fail"),
        (answer({"message": "The model does not support Embeddings API"}, 501), {}, "not started", "unsupported", False, "fail"),
        (answer({"error": "Unauthorized"}, 401), {}, "HTTP 401: the API key", "key", False, "fail"),
        (answer("no", 403), {}, "not allowed", "forbidden", False, "fail"),
        (answer({"detail": "Not Found"}, 404), {}, "no such path", "path", False, "fail"),
        (answer({"message": "The model `a` does not exist."}, 404), {}, "model a is not served", "model", False, "fail"),
        (answer("", 413), {}, "larger than", "too_large", False, "fail"),
        (answer({"message": "the queue of the gateway is full"}, 429), {}, "queue", "queue", False, "busy"),
        (answer("Internal Server Error", 500), {}, "Body: Internal Server Error", "engine_error", False, "fail"),
        (answer({"message": "EngineCore encountered an issue."}, 500), {}, "has died", "engine_dead", True, "fail"),
        (answer("", 302), {}, "not 200. Body: (empty)", "http_302", False, "fail"),
    ],
)
def test_an_answer_that_is_none_is_told_apart_with_what_to_do(got, more, words, cause, restart, verdict):
    found = unanswered(got, more)
    assert words in found.complaint
    assert (found.cause, found.restart, found.word) == (cause, restart, verdict)
    assert found.next
    if not restart:
        assert "restart this" not in found.next


def test_an_answer_with_status_200_is_one():
    assert unanswered(answer(None), {}) is None


def test_a_long_body_is_cut_in_the_message():
    assert len(unanswered(answer("x" * 10000, 500), {}).complaint) < 700


@pytest.mark.parametrize(
    "step", ["health", "models", "chat", "schema", "logprobs", "serial", "embeddings", "completions", "image"]
)
@pytest.mark.parametrize(
    ("status", "error"),
    [(0, "refused"), (0, "timeout"), (400, ""), (401, ""), (404, ""), (500, ""), (503, ""), (302, "")],
)
def test_no_step_passes_without_status_200(step, status, error):
    complaint, _ = judged(step, one(reply(json.dumps(GOOD)), status=status, error=error))
    assert complaint


# -- process and port -----------------------------------------------------------------------------------------------

TREE = {"alive": True, "leader": 42, "comms": ["vllm", "VLLM::EngineCor", "VLLM::Worker_TP", "VLLM::Worker_TP"]}


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


# -- any reply at all -----------------------------------------------------------------------------------------------

KEYS = st.sampled_from(
    ["choices", "message", "content", "usage", "logprobs", "top_logprobs", "data", "id", "completion_tokens"],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
CHOICE = st.fixed_dictionaries({"message": st.fixed_dictionaries({"content": JSON}), "logprobs": JSON})
LOGPROBS = st.fixed_dictionaries(
    {"content": st.lists(st.fixed_dictionaries({"top_logprobs": JSON}) | JSON, max_size=2)},
)
BODIES = (
    JSON
    | st.fixed_dictionaries({"choices": st.lists(CHOICE, min_size=1, max_size=1), "usage": JSON})
    | st.fixed_dictionaries({"data": JSON})
    | LOGPROBS.map(lambda value: reply("a", logprobs=value))
)


@pytest.mark.parametrize("step", ["models", "chat", "schema", "logprobs", "serial", "embeddings", "completions", "image"])
@given(body=BODIES)
@example(body="<html>It works!</html>")
@example(body=["It works!"])
@example(body=reply(["text in parts"]))
@example(body=reply("a", logprobs="none"))
@example(body=reply("a", logprobs={"content": [{}]}))
@example(body=reply("a", logprobs={"content": [{"top_logprobs": [{"logprob": None}] * 5}]}))
@example(body={"data": [{"id": 1}]})
def test_whatever_comes_with_status_200_is_judged_and_breaks_nothing(step, body):
    service = worlds.service(acceptance={"serial_requests": 1})
    complaint, seen = judged(step, one(body), service)
    assert isinstance(complaint, str)
    assert isinstance(seen, str)
