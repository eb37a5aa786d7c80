"""What the gateway reads of replies. The shapes are those of vLLM 0.32, after its own protocol classes."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modelyard_gateway import reply_stream, thinking
from modelyard_gateway.json_windows import HEAD, TAIL
from modelyard_gateway.reply_facts import NOTHING, ReplyFacts

USAGE = {"prompt_tokens": 12, "total_tokens": 20, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 3}}
QUOTED = 'he wrote "finish_reason":"wrong", "usage":{"prompt_tokens":1} and \\"reasoning\\": "wrong" '


def read(data, status=200, kind="application/json", encoding=None, cuts=(), **more):
    reader, at = ReplyFacts(status, kind, encoding, **more), 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        reader.feed(data[at:cut])
        at = max(at, cut)
    return {**reader.finish(), "seen": reader.tokens_seen}


def choice(content="hello", index=0, finish="stop", logprobs=None, **message):
    said = {"role": "assistant", "content": content, "refusal": None, "reasoning": None, **message}
    return {"index": index, "message": said, "logprobs": logprobs, "finish_reason": finish, "stop_reason": None}


def document(*choices, **more):
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": list(choices)}
    return json.dumps({**head, "usage": USAGE, "prompt_logprobs": None, **more}, separators=(",", ":")).encode()


def event(delta=None, index=0, finish=None, **more):
    choices = [] if delta is None else [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "c", "choices": choices, **more}, separators=(",", ":")).encode() + b"\n\n"


def stream(*texts, finish="stop", usage=USAGE, end=b"data: [DONE]\n\n"):
    body = event({"role": "assistant", "content": ""}) + b"".join(event({"content": text}) for text in texts)
    body += event({"content": ""}, finish=finish) if finish else b""
    return body + (event(usage=usage) if usage else b"") + end


SSE = {"kind": "text/event-stream; charset=utf-8"}


def test_a_chat_reply():
    assert read(document(choice("Hello\n there"))) == {
        **{"finish_reason": "stop", "prompt_tokens": 12, "completion_tokens": 8, "thinking": False},
        **{"snippet": "Hello there", "error": None, "done": True, "seen": 0},
    }


def test_several_choices_a_call_of_a_tool_a_completion_and_embeddings():
    assert read(document(choice(), choice(index=1, finish="length")))["finish_reason"] == "stop,length"
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    called = read(document(choice(None, finish="tool_calls", tool_calls=[call])))
    assert (called["snippet"], called["finish_reason"]) == ('weather({"city": "Oslo"})', "tool_calls")
    text = json.dumps({"choices": [{"index": 0, "text": " world", "finish_reason": "length"}], "usage": USAGE}).encode()
    assert read(text)["snippet"] == "world"
    vectors = json.dumps({"data": [{"embedding": [0.1] * 30000}], "usage": {"prompt_tokens": 5, "completion_tokens": 0}}).encode()
    found = read(vectors)
    assert len(vectors) > HEAD + TAIL
    assert (found["prompt_tokens"], found["thinking"], found["snippet"], found["done"]) == (5, None, None, True)


def test_a_snippet_can_be_shorter_or_switched_off():
    assert read(document(choice("a b c")), snippet=3)["snippet"] == "a b"
    assert read(document(choice("a b c")), snippet=0)["snippet"] is None


@pytest.mark.parametrize("place", ["text", "logprobs"])
def test_a_huge_reply_is_read_at_its_ends_and_not_deceived_by_its_text(place):
    tokens = [{"token": "usage", "logprob": -1.0, "top_logprobs": [{"token": '"finish_reason":"x"', "bytes": [1]}]}] * 2000
    content = QUOTED * 3000 if place == "text" else QUOTED
    raw = document(choice(content, finish="length", logprobs={"content": tokens} if place == "logprobs" else None))
    assert len(raw) > HEAD + TAIL
    found = read(raw, cuts=range(0, len(raw), 997))
    assert (found["finish_reason"], found["prompt_tokens"], found["completion_tokens"]) == ("length", 12, 8)
    assert found["snippet"].startswith('he wrote "finish_reason":"wrong", "usage"')
    assert found["done"] is True
    # Of a text that does not end in the window it is not known whether a reasoning field follows.
    assert found["thinking"] is (None if place == "text" else False)
    assert read(raw[: len(raw) // 2])["done"] is False


def test_a_finish_reason_is_found_wherever_a_huge_reply_is_cut_and_is_no_other_key_that_ends_so():
    other = {'\\"finish_reason': "wrong", 'x"finish_reason': "wrong"}
    raw = document(choice("x" * HEAD * 2, finish="tool_calls"), choice(index=1, finish=None), kv_transfer_params=other)
    at = raw.index(b'"finish_reason":"tool')
    for cut in range(at - 2, at + 40):
        assert read(raw, cuts=[cut])["finish_reason"] == "tool_calls"
    assert read(raw, cuts=range(at - 2, at + 40))["finish_reason"] == "tool_calls"
    end = raw.index(b'finish_reason":"wrong')
    for cut in range(end - 3, end + 3):
        assert read(raw, cuts=[cut])["finish_reason"] == "tool_calls"


def test_usage_that_is_hidden_between_two_large_parts_is_not_known():
    found = read(document(choice("x" * HEAD * 2), prompt_logprobs=[1] * TAIL))
    assert (found["prompt_tokens"], found["finish_reason"]) == (None, "stop")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a_reasoning_field_is_a_thinking_part(field):
    assert read(document(choice("4", **{field: "2 and 2"})))["thinking"] is True
    assert read(document(choice("4", **{field: ""})))["thinking"] is False
    large = choice("4", logprobs={"content": ["x"] * HEAD}, **{field: "2 and 2"})
    assert read(document(large))["thinking"] is True
    body = event({field: "2 "}) + event({field: "and 2"}) + stream("4")
    assert read(body, **SSE)["thinking"] is True
    assert read(body, **SSE)["snippet"] == "4"
    assert read(event({field: "2 "}) + event({field: "and 2"}), **SSE)["snippet"] == "2 and 2"


@pytest.mark.parametrize(
    ("text", "whole", "partly"),
    [
        ("<think>hm</think>4", True, True),
        ("\n<think>\nhm", True, True),
        ("<think>\n\n</think>\n\n4", False, False),
        ("hm, 2 and 2</think>4", True, True),
        ("write <think> and </think>", False, None),
        ("4", False, None),
        ("", False, None),
        ("<thi", False, None),
        ("<think>", True, None),
        ("<think>\n</th", True, None),
        ("</think>4", False, False),
    ],
)
def test_thinking_in_a_text(text, whole, partly):
    assert (thinking.in_text(text, True), thinking.in_text(text, False)) == (whole, partly)


def test_a_stream():
    assert read(stream("Hel", "lo"), **SSE) == {
        **{"finish_reason": "stop", "prompt_tokens": 12, "completion_tokens": 8, "thinking": False},
        **{"snippet": "Hello", "error": None, "done": True, "seen": 6},
    }


def test_a_stream_without_usage_or_end_says_so():
    found = read(stream("a", usage=None, end=b"", finish=None), **SSE)
    assert (found["completion_tokens"], found["finish_reason"], found["done"], found["seen"]) == (None, None, False, 2)


def test_each_choice_of_a_stream_has_its_finish_reason_however_early_it_came():
    early = event({"content": "x"}, index=1, finish="length") + b"".join(event({"content": "y"}) for _ in range(2000))
    assert read(early + stream("z"), **SSE)["finish_reason"] == "stop,length"


def test_a_stream_is_not_deceived_by_its_text():
    found = read(stream(QUOTED, '\ndata: [DONE]\n\ndata: {"error": 1}', finish="length"), **SSE)
    assert (found["finish_reason"], found["error"], found["seen"], found["prompt_tokens"]) == ("length", None, 6, 12)
    assert read(stream("\ndata: [DONE]", end=b"", usage=None), **SSE)["done"] is False


def test_an_error_in_a_stream_is_kept():
    error = {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
    found = read(stream("a", finish=None, usage=None, end=event(error=error) + b"data: [DONE]\n\n"), **SSE)
    assert json.loads(found["error"]) == error
    assert found["done"] is True


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["<", "think", ">", "hm"], True),
        (["<think>", "\n\n", "</think>", "4"], False),
        (["hm", "</think>", "4"], True),
        (["x" * 40_000, *["more"] * 1000, "</think>", "4"], True),
        (["write <think>", " or </think>"], False),
    ],
)
def test_thinking_in_a_stream(texts, told):
    assert read(stream(*texts), **SSE)["thinking"] is told


def test_a_stream_with_a_line_that_is_too_long_goes_on():
    huge = event({"content": "x" * 600_000}, finish="stop")
    found = read(huge + stream("a", finish="length"), **SSE, cuts=range(0, 700_000, 65_536))
    assert (found["finish_reason"], found["seen"], found["done"]) == ("length", 6, True)


@pytest.mark.parametrize(
    ("body", "kind", "done"),
    [
        (b'{"error":{"message":"no","type":"BadRequestError","param":null,"code":400}}', "application/json", True),
        (b'{"detail":"Not Found"}', "application/json", True),
        (b'{"error":{"mess', "application/json", False),
        (b"Internal Server Error", "text/plain", None),
        (b"<html><h1>502 Bad Gateway</h1></html>", "text/html", None),
        (b"", "", None),
    ],
)
def test_the_body_of_an_error_is_kept(body, kind, done):
    assert read(body, 500, kind) == {**NOTHING, "error": body.decode(), "done": done, "seen": 0}


def test_a_long_error_is_cut_and_a_compressed_reply_is_not_read():
    assert read(b"x" * 9000, 500, error_bytes=10)["error"] == "xxxxxxxxxx ... (9000 bytes)"
    assert read(document(choice()), encoding="gzip") == {**NOTHING, "seen": 0}
    assert read(b"\x00", kind="audio/wav") == {**NOTHING, "seen": 0}


anything = st.text(alphabet=st.sampled_from('ab"\\<think>/é\n🙂:'), max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.lists(anything, max_size=6), st.lists(st.integers(0, 2500), max_size=8), st.booleans(), st.sampled_from([1, 150, 900]))
def test_the_borders_of_chunks_do_not_matter(texts, cuts, streamed, gather):
    raw = stream(*texts) if streamed else document(*(choice(text, index) for index, text in enumerate(texts)))
    more = SSE if streamed else {}
    whole = read(raw, **more)
    with mock.patch.object(reply_stream, "GATHER", gather):
        assert read(raw, cuts=cuts, **more) == whole


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([200, 500]), st.sampled_from(["text/event-stream", "application/json", ""]))
def test_rubbish_is_no_error(data, status, kind):
    assert set(read(data, status, kind)) == {*NOTHING, "seen"}
