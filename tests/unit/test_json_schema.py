from __future__ import annotations

import jsonschema
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance, json_schema
from hypothesis import example, given
from hypothesis import strategies as st

GOOD = {"answer": "Paris", "count": 1, "kind": "place"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "more"]), inner, max_size=4),
)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "answer": values,
        "count": st.integers(-2, 101) | st.floats(-1, 101) | values,
        "kind": st.sampled_from(["place", "number", "other", "Place"]) | values,
        "more": values,
    },
)


@given(values | near_misses)
@example(GOOD)
@example({})
@example({**GOOD, "count": 1.0})
@example({**GOOD, "count": True})
@example({**GOOD, "answer": "x" * 17})
@example({**GOOD, "extra": 1})
def test_it_accepts_exactly_what_the_library_accepts(value):
    library = jsonschema.Draft202012Validator(acceptance.SCHEMA).is_valid(value)
    assert (json_schema.errors(value, acceptance.SCHEMA) == []) is library


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, ["$: answer is missing", "$: count is missing", "$: kind is missing"]),
        ({**GOOD, "count": "1"}, ["$.count: '1' is not of type integer"]),
        ({**GOOD, "count": 100}, ["$.count: 100 is greater than 99"]),
        ({**GOOD, "kind": "city"}, ["$.kind: 'city' is not one of ['place', 'number', 'other']"]),
        ({**GOOD, "more": 1}, ["$: more is not allowed"]),
        ({**GOOD, "answer": "x" * 17}, ["$.answer: longer than 16 characters"]),
        (["a"], ["$: ['a'] is not of type object"]),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(value, said):
    assert json_schema.errors(value, acceptance.SCHEMA) == said


def test_a_keyword_that_is_not_known_is_never_ignored():
    with pytest.raises(ValueError, match="the keyword contains is not known here"):
        json_schema.errors(["x"], {"type": "array", "contains": {"type": "string"}})
