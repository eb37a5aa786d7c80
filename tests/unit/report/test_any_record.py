"""Records of any shape give a page and words: fields may be missing, empty, of another kind, or huge."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from report_page import Page, record

from modelyard.report import page, words

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def places(value, way=()):
    """The way to every value of a record."""
    found = [way] if way else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        found += places(one, (*way, key))
    return found


def put(value, way, new, remove):
    """Replace, or remove, what lies at the end of the way."""
    for key in way[:-1]:
        value = value[key]
    if remove:
        del value[way[-1]]
    else:
        value[way[-1]] = new


RUNS = {name: record(name) for name in ("accepted", "failed_schema", "busy", "unreachable")}
LOADS = {name: record(name) for name in ("load_sweep", "load_users")}


@st.composite
def damaged(draw, records):
    found = json.loads(json.dumps(records[draw(st.sampled_from(sorted(records)))]))
    for _ in range(draw(st.integers(1, 6))):
        way = draw(st.sampled_from(places(found)))
        put(found, way, draw(ANY), draw(st.booleans()))
        if not places(found):
            break
    return found


def is_whole(html):
    found = Page(html)
    assert len(found.ids) == len(set(found.ids))
    html.encode()


@settings(max_examples=60)
@given(damaged(RUNS), damaged(RUNS))
def test_a_damaged_run_gives_a_whole_page_and_words(run, previous):
    is_whole(page(run, [run, previous], [], previous))
    told = words(run)
    assert told.splitlines()[0] and all(char == "\n" or char.isprintable() for char in told)
    told.encode()


@settings(max_examples=80)
@given(damaged(LOADS))
def test_a_damaged_load_test_gives_a_whole_page(load):
    is_whole(page(RUNS["accepted"], [], [load], None))


@settings(max_examples=60)
@given(ANY, ANY, ANY, ANY)
def test_anything_gives_a_whole_page_and_words(run, history, loads, previous):
    is_whole(page(run, history, loads, previous))
    words(run).encode()
