"""Through the gateway against direct: what of two ways' times is a gateway's fault."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import entry
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

SERVICE = {**worlds.service(), "gateway": {"kind": "modelyard", "host": "0.0.0.0", "port": 8000, "keys_file": ""}}


def stream(way, ttft=0.2, gaps=(20.0,) * 31, **more):
    base = {"way": way, "status": 200, "error": "", "body": None, "backend": "tiny-qwen3/0", "seconds": 1.0, "whole": True}
    return {**base, "ttft_s": ttft, "gaps_ms": list(gaps), "tokens": len(gaps) + 1, **more}


def seen(*pairs, **more):
    found = [{"through": through, "direct": direct} for through, direct in pairs]
    return {"why": "", "refused": [], "asked": 6, "pairs": found, "others": 0.0, "crowd": 1.5, "seconds": 1.0, **more}


def judged(found, service=SERVICE):
    return entry.gateway(service, {"index": 0}, found)


def three(through, direct):
    return seen(*[(stream("through", **through), stream("direct", **direct))] * 3)


CLUMPS = (0.1, 0.1, 0.1, 80.0) * 8


@pytest.mark.parametrize(
    ("through", "direct", "cause"),
    [
        ({}, {}, ""),
        ({"ttft": 0.35}, {}, ""),
        ({"ttft": 0.45}, {}, "late"),
        ({"ttft": 2.9, "gaps": CLUMPS}, {}, "clumped"),
        ({"gaps": CLUMPS}, {}, "clumped"),
        ({"ttft": 2.9, "gaps": [0.1] * 31}, {}, "clumped"),
        # A machine without a free processor, both ways: some tokens are read two at a time, and nobody waits for them.
        ({"gaps": (0.0, 0.0, 0.0, 10.8) * 8}, {"gaps": (0.1, 2.7, 2.8, 5.1) * 8}, ""),
        ({"gaps": [40.0] * 31}, {}, "slow"),
        ({"gaps": [33.0] * 31}, {}, ""),
        # Faster than clumps can be seen in.
        ({"gaps": [0.1] * 31}, {"gaps": [1.5] * 31}, ""),
        ({"gaps": []}, {"gaps": []}, ""),
    ],
)
def test_times_of_the_two_ways(through, direct, cause):
    found = judged(three(through, direct))
    assert found.cause == cause
    assert found.word == ("fail" if cause else "pass")
    assert "(3 pairs)" in (found.complaint or found.seen)


def test_times_beside_requests_of_others_prove_nothing():
    found = judged({**three({"gaps": CLUMPS}, {}), "others": 3.0})
    assert (found.word, found.cause) == ("busy", "loaded")
    assert judged({**three({}, {}), "others": 3.0}).word == "pass"


def test_times_on_a_host_without_a_free_processor_prove_nothing():
    found = judged({**three({"gaps": CLUMPS}, {}), "crowd": 7.5})
    assert (found.word, found.cause, found.restart) == ("busy", "loaded", False)
    assert "7.5 programs wanted each processor of the host" in found.complaint
    assert judged({**three({}, {}), "crowd": 7.5}).word == "pass"


@pytest.mark.parametrize(
    ("found", "word", "cause", "words"),
    [
        (seen(why="the service has no gateway"), "skipped", "", "no gateway"),
        (seen(), "skipped", "", "sent none of 6 requests"),
        (
            seen(refused=[stream("through", status=0, error="refused")]),
            "fail",
            "refused",
            "through the gateway: connection refused",
        ),
        (seen(refused=[stream("through", status=503, body="no backend is healthy")]), "fail", "none_healthy", "no backend"),
        (seen(refused=[stream("through", status=429, body="queue")]), "busy", "queue", "queue"),
        (seen(refused=[stream("direct", status=500, body="x")]), "fail", "engine_error", "asked directly: HTTP 500"),
        (seen((stream("through", whole=False), stream("direct"))), "fail", "truncated", "without [DONE]"),
        (seen(refused=[stream("through", status=200, error="timeout")]), "fail", "timeout", "no answer within 1 s"),
    ],
)
def test_what_is_no_matter_of_times(found, word, cause, words):
    got = judged(found)
    assert (got.word, got.cause) == (word, cause)
    assert words in (got.complaint or got.seen)


def test_a_gateway_that_wants_keys_of_clients_is_left_out_with_a_word():
    refused = seen(refused=[stream("through", status=401, body="no")])
    service = {**SERVICE, "gateway": {**SERVICE["gateway"], "keys_file": "/k"}}
    assert judged(refused, service).word == "skipped"
    assert judged(refused).cause == "key"


@given(st.floats(0.001, 5), st.lists(st.floats(0, 500), max_size=40))
def test_a_gateway_that_adds_nothing_is_never_blamed(ttft, gaps):
    assert judged(three({"ttft": ttft, "gaps": gaps}, {"ttft": ttft, "gaps": gaps})).word == "pass"


@given(st.floats(2.0, 200), st.integers(3, 10))
def test_tokens_that_come_in_bundles_are_seen_when_one_waits_for_them(gap, bundle):
    clumped = [0.05 if n % bundle else gap * bundle for n in range(31)]
    waits = gap * bundle > gap * 1.5 + 15
    assert (judged(three({"gaps": clumped}, {"gaps": [gap] * 31})).cause == "clumped") is waits
