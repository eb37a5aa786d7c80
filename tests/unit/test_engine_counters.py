"""Figures of /metrics: reading them, and what they say about an engine that is silent."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_counters as counters
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.survey import engine_metrics
from hypothesis import given
from hypothesis import strategies as st

NAMES = tables.vllm("0.32.0")["metrics"]
TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a"} NaN
vllm:generation_tokens_total{engine="0"} 1.2e+03
vllm:generation_tokens_created{engine="0"} 1.7e+09
vllm:kv_cache_usage_perc 0.25 1700000000
nonsense
"""


def test_engines_behind_one_port_are_added_up_and_what_is_no_number_is_left_out():
    assert engine_metrics.read(TEXT, NAMES) == {"running": 4.0, "generation_tokens": 1200.0, "kv_usage": 0.25}


@given(st.text(max_size=300))
def test_any_text_is_read(text):
    assert isinstance(engine_metrics.read(text, NAMES), dict)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.8.5.post1", "vllm:gpu_cache_usage_perc"),
        ("0.9.2", "vllm:gpu_cache_usage_perc"),
        ("0.32.0+cpu", "vllm:kv_cache_usage_perc"),
    ],
)
def test_the_names_are_those_of_the_release(version, name):
    assert tables.vllm(version)["metrics"]["kv_usage"] == name


def test_every_release_has_all_names_and_the_field_for_schemas():
    for release in tables.releases():
        table = tables.vllm(release)
        assert set(table["metrics"]) == set(NAMES)
        assert all(table["metrics"].values())
        assert table["structured"] == "response_format"


@pytest.mark.parametrize(
    ("seen", "slots", "full"),
    [
        ({"running": 3, "waiting": 0}, 4, False),
        ({"running": 4, "waiting": 0}, 4, True),
        ({"running": 1, "waiting": 1}, 4, True),
        ({"running": 300, "waiting": 0}, None, False),
        ({}, 4, False),
    ],
)
def test_when_there_is_no_room(seen, slots, full):
    assert counters.is_full(seen, slots) is full


@given(
    st.dictionaries(
        st.sampled_from(["before", "after", "later"]), st.dictionaries(st.sampled_from(sorted(NAMES)), st.floats(0, 99))
    )
)
def test_any_figures_give_one_of_the_states(found):
    state = counters.state(found)
    assert state in (counters.LOADED, counters.HUNG, counters.SLOW, counters.IDLE, counters.UNKNOWN)
    if state == counters.HUNG:
        assert found["later"]["generation_tokens"] <= found["after"]["generation_tokens"]
