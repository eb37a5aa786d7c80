"""Patterns of requests, and how they are made smaller. Pure: no engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelyard_lab import pattern, reduce
from modelyard_lab.pattern import Wish

WISHES = st.builds(
    Wish,
    at_ms=st.floats(0, 1000),
    prompt=st.integers(10, 300),
    output=st.integers(1, 300),
    shared=st.integers(0, 10),
    schema=st.booleans(),
    cancel_after=st.none() | st.integers(0, 50),
)


def test_all_that_is_wrong_is_said_at_once() -> None:
    entries = [{"prompt": 0}, {"prompt": 4, "shared": 5}, {"tokens": 3}, {"cancel_after": -1}, {"prompt": 5}]
    with pytest.raises(ValueError, match="request 1: prompt and output are numbers of tokens, 1 or more; request 2: ") as raised:
        pattern.wishes(entries)
    assert "shared is a part of the prompt: 0 to 4; request 3: got an unexpected keyword argument 'tokens'" in str(raised.value)
    assert "request 4: at_ms and cancel_after are 0 or more" in str(raised.value)
    assert "request 5" not in str(raised.value)


@given(st.lists(WISHES, min_size=1, max_size=20))
def test_plain_data_keeps_all_of_it_and_brings_it_into_order(wishes: list[Wish]) -> None:
    ordered = sorted(wishes, key=lambda wish: wish.at_ms)
    assert pattern.wishes(pattern.plain(wishes)) == ordered


@given(st.lists(WISHES, min_size=1, max_size=20), st.integers(1, 1000))
def test_another_day_is_like_this_one_and_always_the_same(wishes: list[Wish], seed: int) -> None:
    other = pattern.varied(wishes, seed, 1000)
    assert other == pattern.varied(wishes, seed, 1000)
    assert pattern.wishes(pattern.plain(other)) == other, "it is a pattern itself"
    assert len(other) == len(wishes)
    assert [w.schema for w in sorted(other, key=lambda w: w.schema)] == sorted(w.schema for w in wishes)
    assert 0.75 <= sum(w.output for w in other) / sum(w.output for w in wishes) <= 1.3 or sum(w.output for w in wishes) < 20
    assert pattern.varied(wishes, 0, 1000) == wishes


@given(st.lists(WISHES, min_size=1, max_size=20), st.integers(1, 1000), st.integers(0, 40))
def test_no_day_brings_a_request_that_the_service_would_refuse(wishes: list[Wish], seed: int, room: int) -> None:
    limit = pattern.longest(wishes) + room
    other = pattern.varied(wishes, seed, limit)
    assert pattern.longest(other) <= limit
    assert pattern.wishes(pattern.plain(other)) == other, "it is a pattern itself"
    assert sum(w.prompt for w in other) >= 0.75 * sum(w.prompt for w in wishes), "cut no shorter than chance makes them"
    assert sum(w.output for w in other) >= 0.75 * sum(w.output for w in wishes) or sum(w.output for w in wishes) < 20


@given(st.lists(WISHES, min_size=3, max_size=25), st.data())
def test_what_a_fault_needs_is_found_and_nothing_else_is_kept(wishes: list[Wish], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(wishes)))
    wishes = [*wishes[:place], Wish(prompt=40, output=333, shared=5, schema=True, cancel_after=7), *wishes[place:]]

    def shows(some: list[Wish]) -> bool:
        """Two requests: one with a schema that goes away, and a long prompt beside it."""
        left = [wish for wish in some if wish.schema and wish.cancel_after is not None and wish.output > 100]
        return bool(left) and len(some) > 1 and max(wish.prompt for wish in some) >= 10

    small = sorted(reduce.smallest(wishes, shows), key=lambda wish: wish.schema)
    # The long prompt may be that of either.
    for prompts in ((10, 1), (1, 10)):
        if [wish.prompt for wish in small] == list(prompts):
            first, second = prompts
            assert small == [Wish(prompt=first, output=1), Wish(prompt=second, output=101, schema=True, cancel_after=0)]
            return
    pytest.fail(f"more than is needed: {small}")


def test_who_has_no_time_left_keeps_what_was_found() -> None:
    wishes = [Wish(output=n) for n in range(1, 9)]
    assert reduce.smallest(wishes, lambda some: False) == wishes
