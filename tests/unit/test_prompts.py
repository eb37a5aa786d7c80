"""Lines of files of prompts, and how they are counted."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import prompts, token_counts
from ansible_collections.modelyard.core.plugins.module_utils.plan.prompts import Damaged, Prompt
from hypothesis import given
from hypothesis import strategies as st
from modelyard_gateway import result_log

USER = {"role": "user", "content": "Say hello."}
CONTEXT = "This model's maximum context length is 8192 tokens. However, "


def line(value):
    return (json.dumps(value) + "\n").encode()


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"Say hello.\r\n", Prompt(text="Say hello.")),
        (b"9921\n", Prompt(tokens=9921)),
        (b"12 monkeys\n", Prompt(text="12 monkeys")),
        (b'"Hello," he said.\n', Prompt(text='"Hello," he said.')),
        (b"[INST] x [/INST]\n", Prompt(text="[INST] x [/INST]")),
        (line("Say hello."), Prompt(text="Say hello.")),
        (line({"text": "x"}), Prompt(text="x")),
        (line({"tokens": 7, "max_tokens": 3}), Prompt(tokens=7, answer=3)),
        (line({"prompt": "x", "max_tokens": 5}), Prompt(text="x", raw=True, answer=5)),
        (line({"prompt": [1, 2, 3]}), Prompt(tokens=3)),
        (line({"messages": [USER]}), Prompt(messages=[USER])),
        (line({"messages": [USER], "max_tokens": 9, "max_completion_tokens": 4}), Prompt(messages=[USER], answer=4)),
        (line({"custom_id": "a", "body": {"messages": [USER], "max_tokens": 9}}), Prompt(messages=[USER], answer=9)),
        (
            line({"messages": [USER], "tools": [{"type": "function"}], "chat_template_kwargs": {"enable_thinking": False}}),
            Prompt(messages=[USER], extra={"enable_thinking": False, "tools": [{"type": "function"}]}),
        ),
        (
            line({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]}),
            Prompt(messages=[{"role": "user", "content": "a"}], pictures=1),
        ),
        (line({"messages": [{"role": "assistant", "content": None}]}), Prompt(messages=[{"role": "assistant", "content": ""}])),
    ],
)
def test_what_a_line_asks_for(raw, wanted):
    assert prompts.read(raw) == [wanted]


@pytest.mark.parametrize(
    ("error", "tokens", "answer"),
    [
        (CONTEXT + "your request has 9921 input tokens.", 9921, None),
        (CONTEXT + "your prompt contains at least 8193 input tokens, which exceeds", 8193, None),
        (CONTEXT + "you requested 10433 tokens (9921 in the messages, 512 in the completion). Please reduce", 9921, 512),
        ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", 9000, None),
    ],
)
def test_a_prompt_that_was_refused_is_counted_from_the_result_log(error, tokens, answer):
    body = json.dumps({"error": {"message": error, "code": 400}})
    entry = result_log.entry(0.0, id="a", status=400, error=body)
    assert prompts.read(line(entry)) == [Prompt(tokens=tokens, answer=answer)]


def test_other_lines_of_the_result_log_are_none():
    answered = result_log.entry(0.0, status=200, prompt_tokens=40, completion_tokens=16)
    assert prompts.read(line(answered)) == [Prompt(tokens=40, answer=16)]
    assert prompts.read(line(result_log.entry(0.0, status=502, error="refused"))) == []
    assert prompts.read(line({"note": "3 lines are missing"})) == []
    assert prompts.read(b"  \n") == []


def test_several_prompts_of_a_line_are_several():
    assert [one.text for one in prompts.read(line({"prompt": ["a", "b"]}))] == ["a", "b"]


def test_with_plain_text_nothing_is_taken_for_json():
    assert prompts.read(b'{"tokens": 3}\n', plain=True) == [Prompt(text='{"tokens": 3}')]
    assert prompts.read(b"9921\n", plain=True) == [Prompt(text="9921")]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"text": "x"', "no JSON"),
        (b"\xff\xfe", "no UTF-8"),
        (b"[1]", "neither an object"),
        (b"99999999999999", "number of tokens"),
        (line({"tokens": True}), "number of tokens"),
        (line({"tokens": "7"}), "number of tokens"),
        (line({"messages": []}), "no message"),
        (line({"messages": ["x"]}), "no role"),
        (line({"messages": [{"role": "user", "content": 5}]}), "neither text nor"),
        (line({"prompt": []}), "neither text nor a list"),
        (line({"question": "x"}), "it has none of messages"),
        (b'{"a":' * 100_000, "no JSON"),
    ],
)
def test_a_damaged_line_says_why_and_nothing_of_itself(raw, why):
    with pytest.raises(Damaged, match=why):
        prompts.read(raw)


@given(st.binary(max_size=200) | st.text(max_size=60).map(lambda text: json.dumps({"prompt": text}).encode()))
def test_any_line_is_prompts_or_damaged(raw):
    try:
        found = prompts.read(raw)
    except Damaged as exc:
        secret = raw.decode("utf-8", "ignore").strip()
        assert len(secret) < 12 or secret not in str(exc)
        return
    assert all((one.tokens is None) + (one.text is None) + (one.messages is None) == 2 for one in found)


REQUESTS = st.lists(st.tuples(st.integers(0, 300_000), st.none() | st.integers(1, 9000)), max_size=60)


def counted(requests, reserve=1024, limit=8192, first=1):
    counts = token_counts.Counts(reserve, limit)
    for number, (tokens, answer) in enumerate(requests, first):
        counts.add(number, tokens, answer)
    return counts


@given(REQUESTS)
def test_refused_short_and_served_are_all_there_are(requests):
    counts = counted(requests)
    needs = [tokens + (1024 if answer is None else answer) for tokens, answer in requests]
    assert counts.refused == sum(tokens >= 8192 for tokens, _ in requests)
    assert counts.refused + counts.short == sum(
        tokens >= 8192 or need > 8192 for (tokens, _), need in zip(requests, needs, strict=True)
    )
    assert counts.longest_need == max(needs, default=0)
    assert [need for need, _ in counts.longest] == sorted(needs, reverse=True)[:10]


@given(REQUESTS, st.integers(0, 60))
def test_parts_add_up_to_the_whole(requests, cut):
    whole = counted(requests)
    added = token_counts.Counts(1024, 8192)
    for part, first in ((requests[:cut], 1), (requests[cut:], cut + 1)):
        added.merge(json.loads(json.dumps(counted(part, first=first).data())))
    assert added.data() == whole.data()


@given(st.lists(st.integers(0, 131_072), min_size=1, max_size=80))
def test_quantiles_are_those_of_the_sorted_list(lengths):
    counts = counted([(length, 1) for length in lengths])
    found = token_counts.quantiles(counts.lengths, counts.longest_prompt)
    ordered = sorted(lengths)
    assert found == {**{f"p{share}": ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 95, 99)}, "max": ordered[-1]}
    assert token_counts.longer(counts.lengths, 5000) == sum(length > 5000 for length in lengths)


def test_quantiles_of_nothing_are_nothing():
    assert token_counts.quantiles({}, 0) == {"p50": 0, "p95": 0, "p99": 0, "max": 0}


@given(st.integers(0, 10**8))
def test_a_long_length_is_kept_a_little_longer_and_never_shorter(length):
    assert length <= token_counts.rounded(length) < length + 64
    assert length > token_counts.EXACT or token_counts.rounded(length) == length


def test_the_first_damaged_lines_are_named_and_all_are_counted():
    counts = token_counts.Counts(0, None)
    for number in range(1, 31):
        counts.damage(number, "it is no JSON")
    assert (counts.damaged, counts.reasons, len(counts.damaged_lines)) == (30, {"it is no JSON": 30}, 10)
    assert counts.damaged_lines[0] == (1, "it is no JSON")
