"""The ladder, what its steps ask for, answers that are none, and that no reply at all breaks a judge."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import unanswered
from hypothesis import example, given
from hypothesis import strategies as st
from unit import worlds
from unit.replies import GOOD, INSTANCE, SERVICE, answer, judged, one, reply

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
        match="shcema is no acceptance step; known: process, port, health, models, memory, chat, adapters, schema",
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
        (answer(status=0, error="timeout"), {"counters": EMPTY}, "of its last finished step", "silent", True, "fail"),
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
    "step", ["health", "models", "chat", "schema", "logprobs", "serial", "embeddings", "completions", "image", "adapters"]
)
@pytest.mark.parametrize(
    ("status", "error"),
    [(0, "refused"), (0, "timeout"), (400, ""), (401, ""), (404, ""), (500, ""), (503, ""), (302, "")],
)
def test_no_step_passes_without_status_200(step, status, error):
    complaint, _ = judged(step, one(reply(json.dumps(GOOD)), status=status, error=error))
    assert complaint


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


@pytest.mark.parametrize(
    "step", ["models", "chat", "schema", "logprobs", "serial", "embeddings", "completions", "image", "adapters"]
)
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
