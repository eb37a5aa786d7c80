"""What the gateway reads of a request's body, however it is cut and however large it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modelyard_gateway.json_windows import HEAD, TAIL, Ends, entries
from modelyard_gateway.request_facts import WANTED, RequestFacts

NOTHING = {"user": None, "model": None, "stream": None, "max_tokens": None}


def facts(body, cuts=(), content_type="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader, at = RequestFacts(content_type), 0
    for cut in [*sorted(cuts), len(data)]:
        reader.feed(data[at:cut])
        at = max(at, cut)
    return reader.finish()


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], **more}


def test_a_small_body_tells_all():
    body = chat("hi", model="m", user="u-1", stream=True, max_tokens=7)
    assert facts(body) == {"user": "u-1", "model": "m", "stream": True, "max_tokens": 7}
    assert facts({**body, "max_completion_tokens": 9})["max_tokens"] == 9


def test_a_body_that_does_not_mention_stream_wants_none():
    assert facts(chat("hi"))["stream"] is False


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"no json", b'{"user": "x"', b"\xff\xfe", b'"user"', b"[" * 100_000, b'{"a":' * 50_000]
)
def test_what_is_no_request_tells_nothing(body):
    assert facts(body) == NOTHING


def test_a_form_and_values_of_a_wrong_type_tell_nothing():
    assert facts(chat("x", user="u"), content_type="multipart/form-data; boundary=b") == NOTHING
    assert facts({"user": 5, "model": ["m"], "stream": "yes", "max_tokens": True}) == NOTHING


@pytest.mark.parametrize("order", ["before", "after", "both"])
def test_a_large_body_is_read_at_its_ends(order):
    known = {"model": "m", "user": "u-1", "stream": True, "max_tokens": 3}
    long = chat('she said "user": "wrong", \\"model\\": "wrong" \\' * 9000)
    body = {**known, **long} if order == "before" else {**long, **known}
    if order == "both":
        body = {"model": "m", "user": "u-1", **long, "stream": True, "max_tokens": 3}
    assert len(json.dumps(body)) > HEAD + TAIL
    assert facts(body) == known


def test_what_stands_in_the_middle_of_a_large_body_is_not_known():
    long = ["x" * HEAD]
    assert facts({"a": long, "user": "hidden", "b": long, "model": "m"}) == {**NOTHING, "model": "m"}


def test_a_key_inside_of_something_else_is_not_taken():
    tool = {"function": {"parameters": {"properties": {"user": {"model": "wrong"}, "model": 1}}, "user": "wrong", "stream": True}}
    for body in ({"tools": [tool], **chat("x" * HEAD * 2)}, {**chat("x" * HEAD * 2), "tools": [tool]}):
        assert facts(body) == NOTHING
    assert facts({"metadata": {"user": "wrong"}, **chat("x"), "user": "right"})["user"] == "right"


def test_the_last_of_two_equal_keys_counts_as_it_does_for_the_engine():
    assert facts(b'{"user":"a","m":["' + b"x" * HEAD * 2 + b'"],"user":"b","user":"c"}')["user"] == "c"


def test_a_name_has_a_bounded_length_and_a_huge_one_is_not_read_at_the_ends():
    assert len(facts({"user": "u" * 5000})["user"]) == 200
    assert facts({**chat("x" * HEAD * 2), "user": "u" * 5000, "model": "m"}) == {**NOTHING, "model": "m"}


texts = st.text(alphabet=st.sampled_from('ab"\\{}[]:,é\n u'), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.sampled_from(["user", "model"]), inner, max_size=4),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from([*WANTED, "messages", "tools"]) | texts, values, max_size=8)


@settings(max_examples=120, deadline=None)
@given(bodies, st.data())
def test_the_ends_never_tell_anything_else_than_the_whole(body, data):
    """Also where the windows cut strings, escapes, numbers or characters in two."""
    raw = json.dumps(body, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([None, 1]))).encode()
    head = data.draw(st.integers(1, len(raw)))
    tail = data.draw(st.integers(1, len(raw)))
    ends = Ends(head, tail)
    ends.feed(raw)
    found, whole = entries(ends.head(), ends.tail(), dict.fromkeys(WANTED, 10**6))
    assert {key: found[key] for key in found} == {key: body[key] for key in found}
    if whole:
        assert set(found) == set(body) & set(WANTED)


@settings(max_examples=100, deadline=None)
@given(bodies, st.lists(st.integers(0, 400), max_size=6))
def test_the_borders_of_chunks_do_not_matter(body, cuts):
    assert facts(body, [min(cut, len(json.dumps(body))) for cut in cuts]) == facts(body)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=70), max_size=60), st.integers(1, 100), st.integers(1, 100))
def test_the_ends_are_the_ends(pieces, head, tail):
    ends, data = Ends(head, tail), b"".join(pieces)
    for piece in pieces * 20:
        ends.feed(piece)
    data *= 20
    assert (ends.head(), ends.tail(), ends.size) == (data[:head], data[head:][-tail:], len(data))
    assert ends.whole() is (len(data) <= head)
    assert len(ends._last) <= 257
