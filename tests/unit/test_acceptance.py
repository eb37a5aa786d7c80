from __future__ import annotations

import json
import zlib

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.modelyard.core.plugins.action import service_probe
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import image, structured, vectors
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import unanswered
from hypothesis import example, given
from hypothesis import strategies as st
from unit import worlds
from unit.check_cases import acted

SERVICE = worlds.service()
INSTANCE = {"index": 0, "port": 8000}


def judged(step, seen, service=SERVICE):
    """(complaint, what was seen) of one step."""
    return tuple(acceptance.ladder(service, [step])[0].judge(service, INSTANCE, seen)[:2])


def answer(body=None, status=200, seconds=0.5, error=""):
    return {"status": status, "body": body, "seconds": seconds, "error": error}


def one(body=None, **more):
    return {"answers": [answer(body, **more)]}


def reply(content, finish_reason="stop", tokens=7, **choice):
    return {
        "choices": [{"message": {"content": content}, "finish_reason": finish_reason, **choice}],
        "usage": {"completion_tokens": tokens},
    }


def tokens(*alternatives):
    """A logprobs reply: for each token its alternatives."""
    content = [{"token": "a", "logprob": v[0], "top_logprobs": [{"logprob": x} for x in v]} for v in alternatives]
    return reply("a", logprobs={"content": content})


GOOD = {"answer": "Paris", "count": 1, "kind": "place"}


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
    return {"running": running, "waiting": 0, "generated": generated, "prompted": prompted}


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


def found(steps, passed=True):
    """What the module service_probe says."""
    told = {"schema": 1, "at": 1.0, "service": "two", "passed": passed, "depth": "full", "asked": [0], "steps": steps}
    failed = any(step["verdict"] == "fail" for step in steps)
    return {"acceptance": told, "result": "/r", "evidence": "/e" if failed else "", "problems": []}


def two(**more):
    service = worlds.service(name="two", **more)
    service["instances"] = [{"index": i, "action": "keep", "accepted": False, "port": 8000 + i} for i in range(3)]
    return service


@pytest.mark.parametrize(("about", "asked"), [({}, [0, 1, 2]), ({"two": [1]}, [1]), ({"two": []}, [0, 1, 2]), ({"x": []}, [])])
def test_an_acceptance_of_some_instances_asks_no_others(about, asked, monkeypatch):
    service = two()
    service["instances"][0]["accepted"] = True
    seen = []

    def answered(action, name, args, variables):
        seen.extend(i["index"] for i in args["service"]["instances"])
        return found([])

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": service, "steps": [], "always": True, "only": about}
    assert not acted(service_probe, args, {}).run(None, {}).get("failed")
    assert seen == asked


def walked(index, failed="", ids=None, word="fail"):
    more = {"seconds": 0.1, "detail": "", "cause": "", "next": "look", "restart": False}
    steps = [one.id for one in acceptance.ladder(SERVICE, ids or [])]
    return [
        {"instance": index, "id": id, "passed": id != failed, "verdict": word if id == failed else "pass", **more} for id in steps
    ]


def test_only_the_whole_ladder_proves_an_instance():
    steps = [
        *walked(0),
        *walked(1, failed="chat"),
        *walked(2, ids=["health"]),
        *walked(3),
        *walked(4, failed="chat", word="busy"),
    ]
    assert acceptance.proven(SERVICE, steps) == [0, 3]
    assert acceptance.proven(SERVICE, walked(0)[:-1]) == []
    assert acceptance.proven(SERVICE, []) == []
    assert acceptance.proven(worlds.service(acceptance={"also": ["completions"]}), walked(0)) == []


def test_what_could_not_be_judged_is_no_failure():
    assert acceptance.failing(walked(0, failed="chat", word="busy")) == []
    assert [step["id"] for step in acceptance.failing(walked(0, failed="chat"))] == ["chat"]


GATEWAY = {"kind": "nginx", "host": "0.0.0.0", "port": 1}


@pytest.mark.parametrize(
    ("more", "gateway", "told"),
    [({"admit": True}, GATEWAY, [[0, 2]]), ({}, GATEWAY, []), ({"admit": True}, {}, [])],
)
def test_what_is_proven_comes_in_at_the_gateway_and_nothing_else(more, gateway, told, monkeypatch):
    service = {**two(), "gateway": gateway}
    seen = []

    def answered(action, name, args, variables):
        if name == "gateway_control":
            seen.append(args["in"])
            return {"changed": True, "actions": []}
        return found([*walked(0), *walked(1, failed="schema"), *walked(2)], passed=False)

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": service, "steps": [], "only": {}, **more}
    result = acted(service_probe, args, {}).run(None, {})
    assert result["failed"]
    assert result["msg"].startswith("two was not accepted: step schema failed on instance 1")
    assert "Next: look. A restart would not help. Evidence: /e. The service was left as it is." in result["msg"]
    assert (result["evidence"], result["depth"], result["busy"]) == ("/e", "full", False)
    assert seen == told


def test_a_busy_service_is_no_failure_and_is_not_let_in(monkeypatch):
    seen = []

    def answered(action, name, args, variables):
        if name == "gateway_control":
            seen.append(args["in"])
            return {"changed": False, "actions": []}
        return found(walked(0, failed="chat", word="busy"), passed=False)

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": {**two(), "gateway": GATEWAY}, "steps": [], "only": {}, "admit": True}
    result = acted(service_probe, args, {}).run(None, {})
    assert not result.get("failed")
    assert (result["busy"], result["passed"], seen) == (True, False, [[]])


def test_a_gateway_that_cannot_be_told_hides_no_failure(monkeypatch):
    failed = ""

    def answered(action, name, args, variables):
        if name == "gateway_control":
            raise AnsibleActionFail("the gateway of two: refused")
        return found(walked(0, failed=failed), passed=not failed)

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": {**two(), "gateway": GATEWAY}, "steps": [], "only": {}, "admit": True}
    late = "two: what has been proven gets no requests yet: the gateway of two: refused. " + service_probe.LATER
    assert acted(service_probe, dict(args), {}).run(None, {})["msg"] == late
    failed = "chat"
    both = acted(service_probe, dict(args), {}).run(None, {})["msg"]
    assert both.startswith("two was not accepted: step chat failed")
    assert both.endswith(late)


def test_a_result_that_could_not_be_written_down_is_a_failure_of_its_own(monkeypatch):
    full = {**found(walked(0)), "problems": ["[Errno 28] No space left on device: '/h/x'"]}
    monkeypatch.setattr(service_probe.call, "module", lambda *_: full)
    args = {"home": "/h", "service": two(), "steps": [], "only": {}}
    result = acted(service_probe, args, {}).run(None, {})
    assert result["msg"] == "two: not written down: [Errno 28] No space left on device: '/h/x'"


# -- further steps --------------------------------------------------------------------------------------------------

EMBEDDING = worlds.service(engine={"runner": "pooling"})


@pytest.mark.parametrize(
    ("engine", "has", "lacks"),
    [
        ({}, "chat", "embeddings"),
        ({"runner": "pooling"}, "embeddings", "chat"),
        ({"task": "embed"}, "embeddings", "schema"),
        ({"task": "generate"}, "logprobs", "embeddings"),
        ({"runner": "pooling", "convert": "classify"}, "memory", "serial"),
        ({"runner": "auto", "task": "auto"}, "serial", "image"),
    ],
)
def test_the_ladder_follows_what_the_engine_can_be_asked(engine, has, lacks):
    ids = [step.id for step in acceptance.ladder(worlds.service(engine=engine))]
    assert has in ids
    assert lacks not in ids


def test_steps_that_a_service_declares_come_in_their_place():
    service = worlds.service(acceptance={"also": ["image", "completions"]})
    assert [s.id for s in acceptance.ladder(service)][-5:] == ["logprobs", "completions", "image", "serial", "gateway"]
    assert "image" not in [s.id for s in acceptance.ladder(service, depth="quick")]


def vector_reply(*vectors_):
    return one({"data": [{"embedding": list(v)} for v in vectors_]})


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (vector_reply([0.1, 0.2], [0.3, -0.1]), ""),
        (vector_reply([0.1, 0.2]), "1 vectors came for 2 texts"),
        (vector_reply([0.1, 0.2], [0.3]), "different lengths"),
        (vector_reply([0.1, float("nan")], [0.3, 1]), "not finite"),
        (vector_reply([0.0, 0.0], [0.3, 1]), "nothing but zeros"),
        (vector_reply([0.3, 1], [0.3, 1]), "the same vector"),
        (one({"data": [{"embedding": "AAAA"}] * 2}), "0 vectors"),
    ],
)
def test_vectors_are_one_a_text_finite_and_different(seen, words):
    complaint, shown = judged("embeddings", seen, EMBEDDING)
    assert words in complaint
    assert (complaint == "") is (shown == "2 vectors of 2 numbers")


def test_serial_requests_of_an_engine_that_pools_are_vectors():
    ask = acceptance.ladder(EMBEDDING, ["serial"])[0].ask(EMBEDDING, INSTANCE)
    assert (ask["path"], len(ask["bodies"])) == (vectors.PATH, 20)
    service = worlds.service(engine={"runner": "pooling"}, acceptance={"serial_requests": 1})
    assert judged("serial", vector_reply([1.0, 2.0]), service)[0] == ""
    assert judged("serial", vector_reply([0.0, 0.0]), service)[0] == "request 1: the reply holds nothing"


def counted_prompt(tokens_, text="red and blue"):
    return answer({**reply(text), "usage": {"completion_tokens": 3, "prompt_tokens": tokens_}})


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([counted_prompt(12, ""), counted_prompt(76)], ""),
        ([counted_prompt(12), counted_prompt(12)], "the picture was not read"),
        ([counted_prompt(12), counted_prompt(76, "")], "holds no text"),
        ([counted_prompt(12), answer({"message": "m is not a multimodal model"}, 400)], "does not take such pictures"),
    ],
)
def test_a_picture_makes_the_prompt_longer_and_gets_an_answer(answers, words):
    complaint, _ = judged("image", {"answers": answers}, worlds.service(acceptance={"also": ["image"]}))
    assert words in complaint
    assert bool(complaint) is bool(words)


def test_the_picture_is_a_png_that_any_reader_takes(tmp_path):
    data = image.png(16)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, rest = [], data[8:]
    while rest:
        size = int.from_bytes(rest[:4], "big")
        chunks.append((rest[4:8], rest[8 : 8 + size]))
        assert zlib.crc32(rest[4 : 8 + size]) == int.from_bytes(rest[8 + size : 12 + size], "big")
        rest = rest[12 + size :]
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    rows = zlib.decompress(chunks[1][1])
    assert len(rows) == 16 * (1 + 3 * 16)
    assert rows[1:4] == b"\xff\0\0"
    assert rows[-3:] == b"\0\0\xff"


OTHER = {"name": "person v2", "schema": {"type": "object", "required": ["age"]}, "prompt": "Who?", "max_tokens": 64}


def test_schemas_of_the_inventory_are_asked_for_and_judged_after_ours():
    service = worlds.service(acceptance={"schemas": [OTHER]})
    ours, other = acceptance.ladder(service, ["schema"])[0].ask(service, INSTANCE)["bodies"]
    sent = other["response_format"]["json_schema"]
    assert (sent["name"], sent["schema"], other["max_tokens"]) == ("person_v2", OTHER["schema"], 64)
    assert ours["response_format"]["json_schema"]["schema"] == structured.SCHEMA
    good, bad = answer(reply(json.dumps(GOOD))), answer(reply("{}"))
    assert judged("schema", {"answers": [good, answer(reply('{"age": 3}'))]}, service)[1].endswith("; and person v2")
    complaint = "schema person v2: the reply does not fit the schema: $: age is missing"
    assert judged("schema", {"answers": [good, bad]}, service) == (complaint, "")
    assert judged("schema", {"answers": [good]}, service)[0] == "1 of 2 requests were answered"


def test_a_fork_that_knows_another_field_for_schemas_gets_that():
    service = {**worlds.service(), "api": {"structured": "guided_json"}}
    body = acceptance.ladder(service, ["schema"])[0].ask(service, INSTANCE)["bodies"][0]
    assert body["guided_json"] == structured.SCHEMA
    assert "response_format" not in body
