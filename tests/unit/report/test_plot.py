from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_page import Page, record

from modelyard.report import axis, load, plot

POSITIVE = st.floats(1e-6, 1e9)


@given(POSITIVE, st.integers(2, 8))
def test_ticks_are_round_and_reach_the_highest_value(high, most):
    found = axis.ticks(high, most)
    assert found[0] == 0 and found[-1] >= high * (1 - 1e-6)
    assert found == sorted(set(found)) and 2 <= len(found) <= most + 1
    step = found[1]
    assert float(f"{step:.0e}") == pytest.approx(step) and f"{step:.0e}"[0] in "125"


@pytest.mark.parametrize(
    ("high", "found"), [(37, [0, 10, 20, 30, 40]), (1338, [0, 500, 1000, 1500]), (5, [0, 1, 2, 3, 4, 5]), (0, [0, 1])]
)
def test_ticks_of_some_values(high, found):
    assert axis.ticks(high) == found


@given(POSITIVE, st.floats(1, 1e9))
def test_logarithmic_ticks_enclose_the_values(low, times):
    found = axis.log_ticks(low, low * times)
    assert found[0] <= low * (1 + 1e-6) and found[-1] >= low * times * (1 - 1e-6)
    assert found == sorted(set(found)) and len(found) <= 9


def test_logarithmic_ticks_of_some_values():
    assert axis.log_ticks(8, 64) == [5, 10, 20, 50, 100]
    assert axis.log_ticks(61, 5300) == [30, 100, 300, 1000, 3000, 10000]


@given(st.lists(st.floats(0, 100), max_size=6), st.floats(1, 15))
def test_labels_that_are_spread_keep_their_order_and_distance(places, gap):
    moved = axis.spread(places, gap, 0, 100)
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in moved)
    order = sorted(range(len(places)), key=lambda index: places[index])
    assert all(moved[b] - moved[a] >= gap - 1e-6 for a, b in zip(order, order[1:]))


def test_labels_with_room_stay_where_they_are():
    assert axis.spread([10, 80, 40], 12, 0, 100) == [10, 80, 40]


@given(st.lists(st.floats(0, 300), min_size=1, max_size=20), st.floats(1, 50))
def test_labels_in_a_row_have_room_and_the_last_is_there(places, gap):
    kept = [places[index] for index in axis.apart(places, gap)]
    assert max(places) in kept
    assert all(abs(a - b) >= gap for i, a in enumerate(kept) for b in kept[i + 1 :])


LEVELS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e9)), min_size=2, max_size=8, unique_by=lambda point: point[0])


@given(LEVELS, st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1e6), st.booleans())
def test_everything_drawn_lies_in_the_box(points, limit, slots, several):
    points = sorted(points)
    lines = [plot.Series("p50", "p50", points)]
    lines += [plot.Series("p99", "p99", [(x, y * 1.5) for x, y in points])] if several else []
    made = plot.Plot(
        "A <title>", "clients", lines, None if limit is None else (limit, "limit"), slots, (points[-1][0], "tops out")
    )
    found = Page(str(plot.svg(made, "x")))
    circles = [(float(own["cx"]), float(own["cy"])) for tag, own in found.elements if tag == "circle"]
    assert len(circles) == len(points) * len(lines) + 1  # and the ring
    ways = [own["d"] for tag, own in found.elements if tag == "path"]
    corners = [tuple(map(float, pair.split())) for way in ways for pair in re.split("[ML]", way) if pair]
    for x, y in circles + corners:
        assert plot.LEFT <= x <= plot.RIGHT and 0 <= y <= plot.BOTTOM + 4
    for tag, own in found.elements:
        if tag == "text":
            assert 0 <= float(own["x"]) <= plot.WIDTH and 0 <= float(own["y"]) <= plot.HEIGHT


def test_points_go_to_the_right_and_higher_values_are_higher():
    made = plot.Plot("t", "clients", [plot.Series("", "p95", [(8, 1.0), (16, 2.0), (64, 9.0)])])
    across, up, found = plot.scales(made)
    assert across(8) < across(16) < across(64) and up(1) > up(2) > up(9)
    assert across(16) - across(8) == pytest.approx((across(64) - across(16)) / 2)  # logarithmic
    assert found == [0, 2, 4, 6, 8, 10]


def test_values_that_lie_far_apart_get_a_logarithmic_axis():
    made = plot.Plot("t", "clients", [plot.Series("", "p95", [(8, 10.0), (16, 900.0)])])
    assert plot.scales(made)[1].log
    with_zero = plot.Plot("t", "clients", [plot.Series("", "p95", [(8, 0.0), (16, 900.0)])])
    assert not plot.scales(with_zero)[1].log


def test_the_plots_of_a_sweep_name_slots_limits_and_the_level_where_it_tops_out():
    found = load.load(record("load_sweep"))
    assert [one.title for one in found.plots] == [
        "Output tokens per second",
        "Requests per second",
        "Time to the first token, ms",
        "Time of a whole request, ms",
    ]
    texts = [Page(str(plot.svg(one, "x"))).texts("text") for one in found.plots]
    assert all({"8", "16", "32", "64", "32 slots", "requests at once from clients"} <= set(words) for words in texts)
    assert ["tops out" in words for words in texts] == [True, True, False, False]
    assert "at least 30" in texts[1] and "P95 limit 500 ms" in texts[2] and texts[3][-3:] == ["p50", "p95", "p99"]


def test_one_level_gives_no_plot():
    assert load.load(record("load_users")).plots == []


def test_long_times_are_drawn_in_seconds():
    changed = record("load_sweep")
    changed["levels"][4]["e2e_ms"]["p99"] = 42_000
    last = load.load(changed).plots[3]
    assert last.title == "Time of a whole request, s" and last.limit == (1.5, "P95 limit 1.5 s")
    assert last.series[2].points[-1] == (64, 42.0)


def test_figures_beyond_a_limit_are_marked_and_count_where_the_limits_are_judged():
    found = load.load(record("load_sweep")).levels
    assert [level.beyond for level in found] == [[], [], [], ["ttft_p95"], ["e2e_p95", "ttft_p95", "failed"]]
    assert [level.is_judged for level in found] == [False, False, True, False, False]
    assert found[2].marks == ["sustained", "tops out"]


@pytest.mark.parametrize(
    ("changed", "judged"),
    [
        ({"limits": {"at": 48, "ttft_p95_ms": 500}}, [48]),
        ({"limits": {"at": None, "ttft_p95_ms": None}}, []),
        ({"limits": {}}, []),
        ({"sustained": None}, []),
    ],
)
def test_which_level_is_judged(changed, judged):
    found = load.load({**record("load_sweep"), **changed}).levels
    assert [level.value for level in found if level.is_judged] == judged


def test_throughput_below_its_limit_counts_where_it_is_judged():
    changed = {**record("load_sweep"), "limits": {"requests_per_s": 36}}
    assert [level.beyond for level in load.load(changed).levels] == [[], [], ["rate"], [], []]


def test_advice_names_its_knob_once():
    advice = [{"knob": "client", "words": "the generator was the limit"}, {"knob": "max_num_seqs", "words": "raise max_num_seqs"}]
    found = load.load({**record("load_sweep"), "advice": advice})
    assert found.advice == ["client: the generator was the limit", "raise max_num_seqs"]


def test_the_shape_without_what_is_not_set():
    shape = dict(load.load(record("load_sweep")).facts)["shape"]
    assert shape == "212 tokens in, 40 tokens out, no answer ends earlier"


def test_a_rate_is_not_compared_with_slots():
    changed = record("load_sweep")
    for level in changed["levels"]:
        level["kind"] = "rate"
    found = load.load(changed)
    assert found.across[0] == "requests arriving per second" and all(one.slots is None for one in found.plots)
