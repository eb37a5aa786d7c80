from __future__ import annotations

import jsonschema
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance, json_schema
from hypothesis import example, given, settings
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


# -- schemas as people write them -----------------------------------------------------------------------------------

TYPES = st.sampled_from(sorted(json_schema.TYPES))
PARTS = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
    "minimum": st.integers(-3, 3),
    "maximum": st.integers(-3, 3),
    "exclusiveMinimum": st.integers(-3, 3),
    "exclusiveMaximum": st.integers(-3, 3),
    "minLength": st.integers(0, 3),
    "maxLength": st.integers(0, 3),
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(0, 2),
    "uniqueItems": st.booleans(),
    "pattern": st.sampled_from(["^a", "b$", "[0-9]+", "."]),
    "enum": st.lists(st.sampled_from([0, 1, True, False, None, "a", [1], {"a": 1}]), min_size=1, max_size=3),
    "const": st.sampled_from([0, 1, True, 1.0, "a", [True], {"a": 0}]),
    "required": st.lists(st.sampled_from("ab"), unique=True),
    "title": st.just("a title"),
}


def grown(inner):
    places = st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    several = st.lists(inner, min_size=1, max_size=3)
    more = {"properties": places, "additionalProperties": inner, "items": inner}
    return st.fixed_dictionaries({}, optional={**PARTS, **more, "anyOf": several, "oneOf": several, "allOf": several})


SCHEMAS = st.recursive(st.booleans() | st.fixed_dictionaries({}, optional=PARTS), grown, max_leaves=6)
SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 4) | st.sampled_from([0.5, 1.0, -2.0]) | st.text("ab1", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=600)
@given(SCHEMAS, SMALL)
@example({"enum": [1]}, True)
@example({"const": {"a": [0]}}, {"a": [False]})
@example({"uniqueItems": True}, [1, True])
@example({"uniqueItems": True}, [1, 1.0])
@example({"properties": {"a": True}, "additionalProperties": False}, {"b": 1})
def test_any_schema_of_these_words_is_read_as_the_library_reads_it(schema, value):
    assert json_schema.problems(schema) == []
    library = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (json_schema.errors(value, schema) == []) is library


PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"Child": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Child"}}}}},
    "title": "Person",
    "anyOf": [{"$ref": "#/$defs/Child"}, {"type": "null"}],
}


@pytest.mark.parametrize(
    ("value", "fits"), [(None, True), ({"children": [{"children": []}]}, True), ({"children": [1]}, False), ([], False)]
)
def test_a_schema_with_references_as_libraries_write_them(value, fits):
    assert (json_schema.errors(value, PERSON) == []) is fits
    assert jsonschema.Draft202012Validator(PERSON).is_valid(value) is fits


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "text"}, "$: there is no type 'text'"),
        ({"type": ["string", 1]}, "there is no type 1"),
        ({"properties": {"a": {"format": "date"}}}, "$.a: the keyword format is not known here"),
        ({"patternProperties": {}}, "the keyword patternProperties is not known here"),
        ({"pattern": "("}, "the pattern '(' cannot be read"),
        ({"$ref": "https://example.org/x"}, "is not a place of this schema"),
        ({"$ref": "#/$defs/a"}, "is not a place of this schema"),
        ({"anyOf": []}, "anyOf is no list of schemas"),
        ({"required": "a"}, "required is no list of names"),
        ({"enum": "a"}, "enum is no list"),
        ({"minimum": "1"}, "minimum is no number"),
        ({"properties": []}, "properties holds no schemas by name"),
        ({"items": 3}, "$.items: 3 is no schema"),
        (3, "$: 3 is no schema"),
    ],
)
def test_what_cannot_be_checked_is_named_with_its_place(schema, words):
    assert any(words in line for line in json_schema.problems(schema)), json_schema.problems(schema)
    with pytest.raises(ValueError):
        json_schema.errors({}, schema)


def test_a_schema_that_refers_to_itself_ends():
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert json_schema.errors(1, schema) == ["$: nested too deeply to be checked"]


@given(SMALL)
def test_any_value_as_a_schema_is_judged_and_breaks_nothing(value):
    assert isinstance(json_schema.problems(value), list)
