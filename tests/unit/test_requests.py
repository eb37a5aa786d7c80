"""Why requests failed, what failures have in common, and what people read about it."""

from __future__ import annotations

import json
import stat

import pytest
from ansible_collections.modelyard.core.plugins.action import requests_report
from ansible_collections.modelyard.core.plugins.module_utils.judge import reply_cause, requests, requests_text
from ansible_collections.modelyard.core.plugins.module_utils.survey import request_log
from unit.check_cases import acted

TOO_LONG = "This model's maximum context length is 8192 tokens. However, "


def error(message, status=400, **more):
    return status, json.dumps({"error": {"message": message, "type": "BadRequestError", "param": None, "code": status, **more}})


# The texts are those of vLLM's sources and of published logs.
@pytest.mark.parametrize(
    ("answer", "cause", "words"),
    [
        (error(TOO_LONG + "your request has 9921 input tokens."), "context", "9921 tokens, max_model_len 8192"),
        (
            error(TOO_LONG + "your prompt contains at least 8193 input tokens, which"),
            "context",
            "8193 tokens, max_model_len 8192",
        ),
        (
            error(TOO_LONG + "you requested 12000 tokens (2000 in the messages, 10000"),
            "context",
            "12000 tokens, max_model_len 8192",
        ),
        (error(TOO_LONG + "your prompt contains 99999 characters (more than"), "context", "too long for max_model_len 8192"),
        (error("The decoder prompt (length 9000) is longer than the maximum model length of 4096. "), "context", "9000 tokens"),
        (error("The model `gpt-4` does not exist.", 404, param="model"), "model", "the model gpt-4 is not served"),
        ((404, '{"object":"error","message":"The model `a/b` does not exist.","code":404}'), "model", "model a/b"),
        ((404, '{"detail":"Not Found"}'), "path", "no such path"),
        (error("Invalid JSON grammar specification."), "schema", "schema"),
        (error('"auto" tool choice requires --enable-auto-tool-choice'), "tools", "parser"),
        (error("[{'type': 'json_invalid', 'loc': ('body', 10)}]"), "not_json", "no JSON"),
        (error("greater than max allowed: 20 (parameter=logprobs, value=50)"), "parameter", "parameter logprobs"),
        (error("temperature must be non-negative", param="temperature"), "parameter", "parameter temperature"),
        (error("something new"), "request", "refused"),
        ((401, '{"error":"Unauthorized"}'), "key", "API key"),
        ((413, ""), "too_large", "larger"),
        (error("the queue of the gateway is full", 429), "queue", "queue"),
        ((429, ""), "too_many", "too many"),
        (error("no backend is healthy", 503), "none_healthy", "no backend"),
        (error("qwen/0 refused the connection", 502), "refused", "refused"),
        (error("the connection to qwen/0 broke", 502), "broken", "broke"),
        ((502, "<html>502 Bad Gateway</html>"), "bad_gateway", "no usable answer"),
        (error("EngineCore encountered an issue.", 500), "engine_dead", "died"),
        ((500, "Internal Server Error"), "engine_error", "failed"),
        ((504, ""), "timeout", "time limit"),
        ((418, ""), "http_418", "HTTP 418"),
        ((None, ""), "no_answer", "no answer"),
        ((499, ""), "client_gone", "went away"),
        ((200, '{"message": "x"}'), "stream_error", "middle"),
    ],
)
def test_the_cause_of_a_failure(answer, cause, words):
    found = reply_cause.cause(*answer)
    assert (found.id, words in found.what) == (cause, True), found
    assert found.do
    assert found.id in reply_cause.ids() or found.id == "http_418"


def test_what_is_no_failure_and_what_the_gateway_has_seen_itself():
    assert reply_cause.cause(200) is None
    assert reply_cause.cause(200, truncated=True) is reply_cause.TRUNCATED
    assert reply_cause.cause(200, truncated=True, client_gone=True) is reply_cause.CLIENT_GONE


def test_a_text_of_a_client_in_braces_is_no_format():
    assert reply_cause.cause(*error("The model `{asked}` does not exist.", 404)).what == "the model {asked} is not served here"


def test_the_words_of_a_body_in_every_shape():
    bodies = ['{"error":{"message":"no"}}', '{"error":"no"}', '{"object":"error","message":"no"}', '{"detail":"no"}', "no"]
    assert [reply_cause.words(body) for body in bodies] == ["no"] * 5


def line(number=0, status=200, backend="q/0", **more):
    return {"time": f"2026-11-30T05:{number:02d}:00.000Z", "id": f"r{number}", "status": status, "backend": backend, **more}


def tally(*lines):
    found = requests.Tally()
    for one in lines:
        found.add(one)
    return found.result()


def test_failures_of_one_backend_alone_are_told_so_with_counts():
    lines = [line(n, backend=f"q/{n % 2}", stream=True) for n in range(10)] + [line(n, 500, "q/1", error="x") for n in (20, 21)]
    found = tally(*lines)
    assert "all 2 failure(s) are of backend q/1: 2 of its 7 failed, and 0 of 5 of the others" in found["compared"]
    assert not any("stream" in words for words in found["compared"])
    (group,) = found["groups"]
    assert (group["status"], group["cause"], group["count"], group["backends"]) == (500, "engine_error", 2, {"q/1": 2})
    assert (group["first"], group["last"]) == ("2026-11-30T05:20:00.000Z", "2026-11-30T05:21:00.000Z")
    assert [one["id"] for one in group["examples"]] == ["r20", "r21"]


def test_failures_on_all_sides_are_compared_without_a_conclusion():
    lines = [line(n, 500 if n % 3 == 0 else 200, f"q/{n % 2}", prompt_tokens=900 if n % 3 == 0 else 100 + n) for n in range(12)]
    compared = tally(*lines)["compared"]
    assert "failed by backend: q/0 2 of 6, q/1 2 of 6" in compared
    assert "median of the prompt tokens: failed 900 (of 4), successful 106 (of 8)" in compared
    assert not any(words.startswith("all") for words in compared)


def test_clients_that_went_away_are_a_group_but_say_nothing_about_backends():
    found = tally(line(1), line(2, client_gone=True, backend="q/1"))
    assert (found["failed"], found["groups"][0]["cause"], found["compared"]) == (1, "client_gone", [])


def test_lines_of_other_gateways_with_fewer_keys_and_other_types_are_read():
    found = tally({"status": "502"}, {"status": "200", "time": "2026-11-30T05:00:00Z"}, {}, {"status": "-"})
    assert (found["lines"], found["failed"]) == (4, 3)
    assert {(group["status"], group["cause"]) for group in found["groups"]} == {(502, "bad_gateway"), (None, "no_answer")}


def test_many_users_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(requests, "VALUES_KEPT", 3)
    compared = tally(*(line(n, 400 if n == 1 else 200, user=f"u{n}") for n in range(60)))["compared"]
    assert "all 1 failure(s) are of user u1: 1 of its 1 failed, and 0 of 59 of the others" in compared


def test_the_story_of_a_request():
    told = "\n".join(
        requests_text.story(
            line(7, 400, user="batch-17", model="m", stream=True, tries=2, queue_s=0.5, duration_s=1.25, error=error(TOO_LONG)[1])
        )
    )
    for words in (
        "2026-11-30T05:07:00.000Z, request r7, of user batch-17",
        "asked: model m, as a stream",
        "went to q/0 after 2 tries, waited 0.500 s, ended after 1.250 s",
        "answer: HTTP 400",
        "failed: the prompt is too long for max_model_len 8192",
        "nothing needs a restart",
    ):
        assert words in told
    assert "went to no backend" in "\n".join(requests_text.story({}))


def logs(home, service, *parts):
    folder = home / "services" / f"{service}.gateway" / "instance-0/logs"
    folder.mkdir(parents=True)
    for number, lines in enumerate(parts):
        path = folder / ("results.jsonl" + (f".{number}" if number else ""))
        path.write_bytes(b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in lines))


def test_the_parts_of_a_log_are_read_from_the_oldest_on_and_damage_is_counted(tmp_path):
    note = {"time": "2026-11-30T05:00:00Z", "note": "4 lines were lost: No space left on device"}
    rubbish = [b"no json\n", b"[1]\n", b"\xff\n", b'"' + b"x" * 3_000_000 + b'"\n', b"[" * 99_999 + b"\n"]
    logs(tmp_path, "q", [line(5), note, b'{"half'], [*rubbish, line(4, 500)], [line(3)])
    found = request_log.read(str(tmp_path), "q", user="", request="r4")
    assert (found["lines"], found["failed"], found["damaged"], found["problems"]) == (1, 1, 5, [])
    assert [one["id"] for one in found["found"]] == ["r4"]
    assert found["lost"] == ["2026-11-30T05:00:00Z 4 lines were lost: No space left on device"]
    assert request_log.read(str(tmp_path), "q")["first"] == "2026-11-30T05:03:00.000Z"
    assert request_log.read(str(tmp_path), "q", since="2026-11-30T05:04:30")["lines"] == 1
    assert request_log.services(str(tmp_path)) == ["q"]
    assert request_log.services(str(tmp_path), "other") == []


def test_only_the_newest_of_many_requests_are_told(tmp_path):
    logs(tmp_path, "q", [line(n % 60, user="u") for n in range(70)])
    found = request_log.read(str(tmp_path), "q", user="u")
    assert (found["lines"], len(found["found"])) == (70, 50)
    told = requests_text.report({"a": {"logs": [found], "problem": ""}}, True)
    assert "the newest 50 of 70" in told
    assert told.count("request r") == 50


def report(hosts, **args):
    variables = {"inventory_hostname": next(iter(hosts)), "ansible_play_hosts_all": list(hosts), "hostvars": hosts}
    return acted(requests_report, args, variables).run(None, variables)


def test_the_report_on_all_hosts_names_those_that_were_not_read_and_writes_a_private_file(tmp_path, capfd):
    logs(tmp_path, "q", [line(n, 500 if n else 200, error="x") if n else line() for n in range(3)])
    seen = {"modelyard_intent": {}, "requests_result": {"logs": [request_log.read(str(tmp_path), "q")]}}
    path = tmp_path / "out.json"
    result = report({"a": seen, "away": {"modelyard_intent": {"failed": True, "msg": "no route"}}}, json=str(path))
    assert (result["failed"], result["lines"], result["failed_requests"]) == (True, 3, 2)
    assert "the logs of away were not read" in result["msg"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["hosts"]["away"]["problem"] == "no route"
    shown = capfd.readouterr().out
    assert "Requests: 3 in the logs of 1 service(s) on 2 host(s), 2 failed (66.7 %); not looked at: away" in shown
    assert "a:q: 3 request(s), 2 failed" in shown
    assert "500 engine_error: the engine failed at this request" in shown


def test_a_site_without_any_result_log_is_told_so():
    result = report({"a": {"modelyard_intent": {}, "requests_result": {"logs": []}}})
    assert (result["failed"], "no service has a result log" in result["msg"]) == (True, True)
