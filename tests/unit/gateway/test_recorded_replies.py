"""What a real engine answered, against everything that reads answers: the gateway's facts, and the causes of failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import httptools
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import reply_cause, requests
from hypothesis import given, settings
from hypothesis import strategies as st
from modelyard_gateway.reply_facts import ReplyFacts
from modelyard_gateway.request_facts import RequestFacts

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "replies-0.32.0-cpu"
NAMES = sorted(path.stem for path in FOLDER.glob("*.http"))
ASKED = json.loads((FOLDER / "requests.json").read_text(encoding="utf-8"))

#: (status, finish_reason, prompt tokens, completion tokens, thinking, beginning of the snippet)
FACTS: dict[str, tuple[Any, ...]] = {
    "chat": (200, "length", 19, 8, False, None),
    "chat-stream": (200, "length", None, None, False, None),
    "chat-stream-usage": (200, "length", 19, 8, False, None),
    "chat-n2": (200, "length,length", 19, 16, False, "\x10"),
    "chat-n2-stream": (200, "length,length", 19, 16, False, "\x10"),
    "chat-stop": (200, "stop", 19, 1, False, None),
    "chat-schema": (200, "stop", 19, 20, False, '{"kind":"place","count":'),
    "chat-schema-stream": (200, "stop", 19, 20, False, '{"kind":"place","count":'),
    "chat-logprobs": (200, "length", 19, 8, False, None),
    "chat-logprobs-stream": (200, "length", 19, 8, False, None),
    "chat-tool": (200, "stop", 19, 54, False, "weather("),
    "chat-tool-stream": (200, "tool_calls", 19, 54, False, "weather("),
    "chat-think": (200, "stop", 19, 30, True, "<think>dddddddd</think>dddddddd"),
    "chat-think-stream": (200, "stop", 19, 30, True, "<think>dddddddd</think>dddddddd"),
    "completion": (200, "length", 3, 8, False, "........"),
    "completion-stream": (200, "length", None, None, False, "........"),
    "completion-stream-usage": (200, "length", 3, 8, False, "........"),
    "completion-think": (200, "stop", 3, 24, True, "<think>cccccccc</think>"),
    "completion-logprobs": (200, "length", 3, 8, False, "........"),
    "reasoning": (200, "stop", 19, 30, True, "dddddddd"),
    "reasoning-stream": (200, "stop", 19, 30, True, "dddddddd"),
    "reasoning-unfinished": (200, "length", 19, 8, True, None),
    "reasoning-unfinished-stream": (200, "length", 19, 8, True, None),
    "models": (200, None, None, None, None, None),
    "client-gone": (200, None, None, None, None, None),
    "engine-stopped": (200, "abort", 19, 32, False, None),
}
#: (status, id of the cause, its words)
CAUSES = {
    "error-context": (400, "context", "the prompt is too long for max_model_len 4096"),
    "error-context-stream": (400, "context", "the prompt is too long for max_model_len 4096"),
    "error-max-tokens": (400, "max_tokens", "max_tokens asks for 5000 tokens, max_model_len is 4096"),
    "error-parameter": (400, "parameter", "the parameter temperature is wrong"),
    "error-parameter-type": (400, "parameter", "the parameter body.max_tokens is wrong"),
    "error-stop": (400, "parameter", "the parameter body.stop is wrong"),
    "error-logprobs": (400, "parameter", "the parameter logprobs is wrong"),
    "error-schema": (400, "schema", "the engine cannot hold an answer to this schema"),
    "error-no-messages": (400, "parameter", "the parameter body.messages is wrong"),
    "error-no-json": (400, "not_json", "the body is no JSON"),
    "error-model": (404, "model", "the model another is not served here"),
    "engine-killed": (500, "engine_dead", "the engine behind the API has died"),
    "engine-killed-stream": (200, "stream_error", "the engine reported an error in the middle of the answer"),
    "error-path": (404, "path", "there is no such path or model"),
}


class Reply(NamedTuple):
    """A recorded reply, without its framing."""

    status: int
    headers: dict[str, str]
    parts: list[bytes]
    whole: bool

    def facts(self, parts: list[bytes] | None = None) -> dict[str, Any]:
        """As the gateway has them."""
        read = ReplyFacts(self.status, self.headers.get("content-type"), self.headers.get("content-encoding"))
        for part in self.parts if parts is None else parts:
            read.feed(part)
        return read.finish()


class Reader:
    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, data: bytes) -> None:
        self.parts.append(data)

    def on_message_complete(self) -> None:
        self.whole = True


def recorded(name: str) -> Reply:
    reader = Reader()
    parser = httptools.HttpResponseParser(reader)
    parser.feed_data((FOLDER / f"{name}.http").read_bytes())
    return Reply(parser.get_status_code(), reader.headers, reader.parts, reader.whole)


def test_every_recording_is_judged_and_has_its_request():
    assert sorted([*FACTS, *CAUSES]) == NAMES == sorted(ASKED)


@pytest.mark.parametrize("name", FACTS)
def test_the_facts_of_an_answer(name):
    reply = recorded(name)
    found = reply.facts()
    status, reason, prompt, completion, thinking, snippet = FACTS[name]
    assert (reply.status, found["finish_reason"], found["thinking"]) == (status, reason, thinking)
    assert (found["prompt_tokens"], found["completion_tokens"]) == (prompt, completion)
    assert found["snippet"] is None if snippet is None else found["snippet"].startswith(snippet)
    assert found["error"] is None
    assert found["done"] is reply.whole is (name != "client-gone")


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_of_a_refusal(name):
    reply = recorded(name)
    found = reply.facts()
    status, cause, words = CAUSES[name]
    assert (reply.status, found["done"]) == (status, True)
    told = reply_cause.cause(status, found["error"])
    fault = "server" if name.startswith("engine-") else "client"
    assert told is not None and (told.id, told.what, told.fault) == (cause, words, fault)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_the_facts_are_the_same_however_a_reply_is_cut(name, data):
    reply = recorded(name)
    body = b"".join(reply.parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    parts = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)])]
    assert reply.facts(parts) == reply.facts()


def test_a_stop_of_the_engine_counts_as_a_failure():
    found = recorded("engine-stopped").facts()
    told = requests.cause({"status": 200, **found})
    assert told is reply_cause.ABORTED
    assert requests.cause({"status": 200, **recorded("chat").facts()}) is None


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(ASKED[name]["body"], dict)])
def test_the_facts_of_a_request(name):
    body = ASKED[name]["body"]
    read = RequestFacts("application/json")
    read.feed(json.dumps(body).encode())
    found = read.finish()
    assert (found["model"], found["user"]) == (body.get("model"), body.get("user"))
    assert found["stream"] is body.get("stream", False)
