"""From levels of a load test to its verdict, advice and comparison."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge.load import (
    advice,
    figures,
    record,
    report,
    server,
    standstill,
    verdict,
)
from hypothesis import given
from hypothesis import strategies as st
from unit.load_records import NO_LIMITS, SHAPE, latency, level, measured

TABLE = {
    "completed": "completed",
    "failed": "failed",
    "seconds": "duration",
    "input_tokens": "total_input_tokens",
    "output_tokens": "total_output_tokens",
    "errors": "errors",
    "ttft_ms": "p{percentile}_ttft_ms",
    "itl_ms": "p{percentile}_itl_ms",
    "e2e_ms": "p{percentile}_e2el_ms",
}
ASKED = {"kind": "concurrency", "value": 4, "requests": 10, "seconds": 0.0}


def reply(error: str = "", **changes: Any) -> dict[str, Any]:
    whole = {"error": error, "said": "", "backend": "tiny/0", "ttft_ms": 10.0, "itl_ms": [5.0, 6.0], "e2e_ms": 30.0}
    return {**whole, "input_tokens": 7, "output_tokens": 3, **changes}


# -- figures -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_a_value_that_was_there_with_so_many_at_or_below_it(values, percent):
    found = figures.percentile(sorted(values), percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values)
    assert sum(value < found for value in values) < max(1, percent / 100 * len(values))


def test_figures_of_replies_count_only_what_was_answered_whole():
    replies = [reply(), reply(backend="tiny/1"), reply("HTTP 503", said="overloaded", output_tokens=0, itl_ms=[], ttft_ms=None)]
    found = figures.of_replies(ASKED, {"seconds": 2.0, "unfinished": 1, "replies": replies})
    assert (found["requests"], found["completed"], found["failed"]) == (4, 2, 2)
    assert (found["requests_per_s"], found["output_tokens_per_s"], found["input_tokens_per_s"]) == (1.0, 3.0, 7.0)
    assert found["ttft_ms"] == {"p50": 10.0, "p95": 10.0, "p99": 10.0}
    assert found["errors"] == {"HTTP 503": 1, "not ended when the level was ended": 1}
    assert found["error_example"] == "overloaded"
    assert found["by_backend"] == {"0": 1, "1": 1}


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=40), st.integers(0, 5), st.floats(0, 100))
def test_no_request_is_lost_in_the_figures(errors, unfinished, seconds):
    replies = [reply(error) for error in errors]
    found = figures.of_replies(ASKED, {"seconds": seconds, "unfinished": unfinished, "replies": replies})
    assert found["completed"] + found["failed"] == found["requests"] == len(errors) + unfinished
    assert sum(found["errors"].values()) == found["failed"]
    json.dumps(found, allow_nan=False)


def test_many_kinds_of_errors_are_added_up():
    replies = [reply(f"error {number}") for number in range(20)] + [reply("most")] * 2
    found = figures.of_replies(ASKED, {"seconds": 1.0, "unfinished": 0, "replies": replies})
    assert (next(iter(found["errors"])), found["errors"][figures.OTHERS]) == ("most", 13)
    assert len(found["errors"]) == figures.MOST_ERRORS + 1


BENCH = {"completed": 8, "failed": 2, "duration": 4.0, "total_input_tokens": 400, "total_output_tokens": 80}
BENCH.update({f"p{p}_{name}_ms": float(p) for p in (50, 95, 99) for name in ("ttft", "itl", "e2el")})


def test_figures_of_vllm_bench_serve():
    told = {**BENCH, "errors": ["", "Traceback\n  ...\nClientConnectorError: no route", ""]}
    found = figures.of_bench(ASKED, told, TABLE)
    assert (found["requests"], found["completed"], found["failed"]) == (10, 8, 2)
    assert (found["requests_per_s"], found["output_tokens_per_s"]) == (2.0, 20.0)
    assert found["e2e_ms"] == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert found["errors"] == {"ClientConnectorError: no route": 1, "an error that vllm bench serve does not name": 1}


def test_a_release_that_does_not_count_failures_has_them_counted_for_it():
    old = {key: value for key, value in BENCH.items() if key != "failed"}
    assert figures.of_bench(ASKED, old, TABLE)["failed"] == 2


@pytest.mark.parametrize("broken", [{}, {"completed": "x", "duration": None}, {"completed": 0, "p50_ttft_ms": float("nan")}])
def test_a_result_that_is_not_whole_is_no_success(broken):
    found = figures.of_bench(ASKED, broken, TABLE)
    assert (found["completed"], found["failed"], found["requests_per_s"]) == (0, 10, 0.0)
    json.dumps(found, allow_nan=False)


# -- what the server did -------------------------------------------------------------------------------------------------


def sample(running: float, waiting: float = 0, cpu: Any = 0.5, **more: float) -> dict[str, Any]:
    engine = {"running": running, "waiting": waiting, "finished": 0.0, **more}
    return {"at": 0.0, "instances": {"0": engine, "1": dict(engine)}, "client_cpu": cpu}


def test_queues_of_all_instances_are_added_and_the_looks_before_and_after_do_not_count():
    samples = [sample(9), sample(2, 1, kv_usage=0.4), sample(4, 3, kv_usage=0.2), sample(9)]
    assert server.seen(samples) == {"running_max": 8, "waiting_max": 6, "kv_usage_max": 0.4, "preemptions": None}


def test_what_no_engine_tells_is_not_known():
    nothing = {"at": 0.0, "instances": {"0": None}, "client_cpu": None}
    none = {"running_max": None, "waiting_max": None, "kv_usage_max": None, "preemptions": None}
    assert server.seen([nothing, nothing, nothing]) == none
    assert server.seen([sample(3), sample(3)]) == none  # shorter than two looks
    assert server.client_cpu([nothing]) is None


def test_a_counter_that_began_anew_tells_nothing():
    before, after = sample(0, preemptions=5.0), sample(0, preemptions=9.0)
    after["instances"]["1"]["preemptions"] = 1.0
    assert server.grown(before, after, "preemptions") == {"0": 4}


def looks(seconds: int, of: Any, done: Any = lambda second: (0, 0)) -> str:
    """What is said when an engine is looked at each second. `of`: second -> figures of instance 0; instance 1 works."""
    still = standstill.Standstill("tiny", 10.0, 0.0)
    for second in range(seconds):
        working = {"running": 1.0, "generation_tokens": float(second)}
        said = still.look(second, {"at": second, "instances": {"0": of(second), "1": working}}, done(second))
        if said:
            return f"{second}: {said}"
    return ""


def test_an_engine_that_stands_still_with_requests_is_seen_and_an_idle_one_is_not():
    assert looks(60, lambda s: {"running": 0.0, "generation_tokens": 5.0}) == ""
    assert looks(60, lambda s: {"running": 2.0, "generation_tokens": float(s // 8)}) == ""
    hung = looks(60, lambda s: {"running": 2.0, "generation_tokens": float(min(s, 20))})
    assert hung == "31: tiny/0 has made no token and ended no request for 11 s: it hangs"
    assert "tiny/0" in looks(60, lambda s: {"running": 2.0, "generation_tokens": float(s)} if s < 20 else None)
    assert looks(60, lambda s: None) == ""  # it never told anything, and the other one works


def test_an_entry_that_lets_nothing_through_is_seen():
    idle = {"at": 0.0, "instances": {"0": {"running": 0.0, "generation_tokens": 5.0}}}
    still = standstill.Standstill("tiny", 10.0, 0.0)
    assert [still.look(second, {**idle, "at": second}, (0, 0)) for second in range(11)] == [""] * 11
    assert still.look(11, idle, (0, 0)).startswith("nothing moved for 11 s")
    still = standstill.Standstill("tiny", 10.0, 0.0)
    assert all(still.look(second, {**idle, "at": second}, (second, 0)) == "" for second in range(60))


def test_cards_have_a_median_and_a_highest():
    seen = ((10, 5, True), (90, 9, True), (71, None, True), (0, 3, False), (0, 3, False), (0, 3, False))
    samples = [{"loaded": on, "cards": [{"index": 1, "utilization": u, "memory_used_mib": m}]} for u, m, on in seen]
    assert server.cards(samples) == [{"index": 1, "utilization_median": 71, "memory_used_max_mib": 9}]
    assert server.cards([]) == []


# -- verdict -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "top"),
    [
        ([100, 200, 400], None),
        ([100, 200, 205], 2),
        ([100, 104], 1),
        ([100, 200, 150, 140], 2),
        ([100, 200, 202, 300], None),  # a dip is no end
        ([100], None),
        ([], None),
    ],
)
def test_throughput_tops_out_where_no_more_load_gives_five_percent(tokens, top):
    found = verdict.tops_out([level(value, rate) for value, rate in enumerate(tokens, 1)])
    assert (found and found["value"]) == top


@given(st.lists(st.integers(1, 10000), min_size=1, max_size=8))
def test_what_is_sustained_is_within_five_percent_of_the_best(tokens):
    levels = [level(value, rate) for value, rate in enumerate(tokens, 1)]
    best = verdict.sustained(levels)
    assert best["output_tokens_per_s"] * 1.05 >= max(tokens)
    day = verdict.per_day(best)
    assert day["output_tokens"] == int(best["output_tokens_per_s"] * 86400 * 0.75)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, []),
        ({"e2e_p95_ms": 2500}, []),
        ({"e2e_p95_ms": 800}, ["at concurrency 16 the whole answer took 2500 ms (P95), the limit is 800 ms"]),
        ({"ttft_p95_ms": 79}, ["at concurrency 16 the first token took 80 ms (P95), the limit is 79 ms"]),
        ({"requests_per_s": 8.5}, ["at concurrency 16 there were 8.0 requests/s, at least 8.5 are wanted"]),
        ({"at": 8, "requests_per_s": 4.1}, ["at concurrency 8 there were 4.0 requests/s, at least 4.1 are wanted"]),
        ({"at": 99}, ["the limits are for level 99, which was not run (levels: 8, 16, 32)"]),
    ],
)
def test_limits_are_held_against_the_sustained_level_or_the_named_one(limits, words):
    levels = [level(8, 400), level(16, 800), level(32, 810, e2e_ms=latency(4000, 9000))]
    assert verdict.complaints(levels, {**NO_LIMITS, **limits}) == words


def test_failed_requests_are_a_complaint_unless_so_many_may_fail():
    levels = [level(8, 400, failed=3, errors={"HTTP 503": 3}, error_example="overloaded")]
    (words,) = verdict.complaints(levels, NO_LIMITS)
    assert words == "at concurrency 8 3 of 100 requests failed, 0 % may: 3 x HTTP 503 (overloaded)"
    assert verdict.complaints(levels, {**NO_LIMITS, "error_rate": 0.03}) == []


def test_a_level_with_errors_sustains_nothing():
    levels = [level(8, 400), level(16, 900, failed=50, errors={"HTTP 503": 50})]
    found = record.complete(measured(levels), [], [], 0)
    assert (found["sustained"]["value"], found["tops_out_at"], found["passed"]) == (8, None, True)
    assert found["advice"][0]["knob"] == "errors"


def test_nothing_answered_is_no_pass():
    nothing = level(8, 0, failed=100, errors={"connection refused": 100}, e2e_ms=figures.percentiles([]))
    found = record.complete(measured([nothing]), [], [], 0)
    assert (found["passed"], found["sustained"], found["per_day"]["requests"]) == (False, None, 0)
    assert "not one of 100 requests was answered: 100 x connection refused" in found["complaints"][0]
    assert "none: at no level" in report.report(found, "server1")
    assert record.complete(measured([]), [], [], 0)["complaints"] == ["no level was run"]


# -- advice ------------------------------------------------------------------------------------------------------------


def busy(running: Any = 8, waiting: Any = 24, kv: Any = 0.3, preemptions: Any = 0) -> dict[str, Any]:
    return {"running_max": running, "waiting_max": waiting, "kv_usage_max": kv, "preemptions": preemptions}


def cards(percent: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "utilization_median": percent, "memory_used_max_mib": 1}]


FULL = {"server": busy(), "cards": cards(97)}
#: (what is changed at every level, slots, limit of the gateway, the knob, a part of the words)
ADVICE = [
    ({**FULL, "failed": 2, "errors": {"HTTP 503": 2}}, 8, 0, "errors", "2 of 100 requests failed (2 x HTTP 503)"),
    ({**FULL, "client_cpu": 0.97}, 8, 0, "client", "0.97 of one core"),
    ({**FULL, "by_backend": {"0": 90, "1": 10}}, 8, 0, "gateway", "0: 90, 1: 10"),
    ({"server": busy(4, 0)}, 8, 2, "gateway.per_backend_limit", "lets 4 requests through, 8 slots are there"),
    ({"server": busy(preemptions=7)}, 8, 0, "kv_cache", "7 requests were computed again"),
    ({"server": busy(kv=0.97)}, 8, 0, "kv_cache", "97 % full"),
    ({"server": busy(), "cards": cards(71)}, 8, 0, "max_num_seqs", "the cards were busy 71 % of the time"),
    ({"server": busy(), "cards": []}, 8, 0, "max_num_seqs", "How busy the cards were is not known"),
    (FULL, 8, 0, "replicas", "the cards were busy 97 % of the time"),
    (
        {**FULL, "seconds": 2.4, "requests_per_s": 21.6},
        8,
        0,
        "load_test_requests",
        "took 2.4 s, and figures of less than 5 s scatter: -e load_test_requests=440",
    ),
    ({"server": busy(3, 0)}, 8, 0, "entry", "32 clients asked, 8 slots are there, and at most 3 were taken"),
]


@pytest.mark.parametrize(("changes", "slots", "limit", "knob", "words"), ADVICE)
def test_the_figures_give_one_knob_with_its_reason(changes, slots, limit, knob, words):
    levels = [level(8, 400, **changes), level(32, 405, **changes)]
    (item,) = advice.advise(measured(levels, slots=slots), limit)
    assert item["knob"] == knob
    assert words in item["words"]


def test_what_waits_in_the_engines_is_not_held_back_before_them():
    levels = [level(8, 400), level(32, 405, server=busy(6, 12), cards=cards(97))]
    assert advice.advise(measured(levels, slots=8), 0) == []


def test_every_rule_can_hold():
    rising = advice.advise(measured([level(1, 100), level(2, 200)], slots=8), 0)
    assert "still rises at concurrency 2" in rising[0]["words"]
    assert {rule.knob for rule in advice.RULES} == {case[3] for case in ADVICE} | {"load"}
    assert all(rule.because for rule in advice.RULES)


def test_without_figures_there_is_no_advice():
    unknown = {"server": busy(None, None, None, None), "cards": [], "client_cpu": None, "by_backend": {}}
    assert advice.advise(measured([level(8, 400, **unknown)], slots=None), 0) == []
    assert advice.advise(measured([]), 0) == []


@given(
    st.lists(
        st.builds(
            level,
            st.integers(1, 64),
            st.integers(1, 5000),
            failed=st.integers(0, 100),
            server=st.builds(busy, *(st.none() | st.integers(0, 99) for _ in range(2)), st.none() | st.floats(0, 1)),
            cards=st.builds(cards, st.none() | st.integers(0, 100)),
            client_cpu=st.none() | st.floats(0, 2),
            by_backend=st.dictionaries(st.sampled_from("0123"), st.integers(0, 100)),
            errors=st.just({"HTTP 500": 1}),
        ),
        max_size=5,
    ),
    st.none() | st.integers(1, 64),
    st.integers(0, 9),
)
def test_whatever_was_measured_there_is_a_record_and_a_report(levels, slots, limit):
    found = record.complete(measured(levels, slots=slots), [], [], limit)
    assert found["passed"] is (found["complaints"] == [])
    assert len(found["advice"]) <= 1
    text = report.report(found, "server1")
    assert text.startswith(f"Load test of tiny on server1: {'passed' if found['passed'] else 'FAILED'}")
    json.dumps(found, allow_nan=False)


# -- comparison --------------------------------------------------------------------------------------------------------


def passed(id: str, tokens: float, **changes: Any) -> dict[str, Any]:
    return record.complete(measured([level(8, tokens)], id=id, **changes), [], [], 0)


def test_the_last_run_of_the_same_shape_that_passed_is_compared():
    earlier = [
        passed("good", 400),
        passed("failed", 900, limits={**NO_LIMITS, "e2e_p95_ms": 1}),
        passed("other shape", 900, shape={**SHAPE, "output_tokens": 7}),
        passed("other entry", 900, entry={"kind": "instance", "host": "h", "port": 1}),
        {"schema": 1, "shape": SHAPE},
        {"schema": 9},
        "no record",
    ]
    new = record.complete(measured([level(8, 388, e2e_ms=latency(2000, 2750))], id="new"), [], earlier, 0)
    assert new["compared_with"]["id"] == "good"
    words = new["compared_with"]["words"]
    assert words[:2] == ["throughput in requests/s -3 %", "throughput in tokens/s -3 %"]
    assert "P95 of the whole answer at concurrency 8 +10 %" in words
    assert "P95 of the first token at concurrency 8 unchanged" in words


def test_versions_and_parameters_that_changed_in_between_are_named():
    old = passed("old", 400, runtime={"vllm": "0.31.0", "torch": "2.13.0"}, parameters={"engine.max_num_seqs": "4"})
    new = {"runtime": {"vllm": "0.32.0", "torch": "2.13.0"}, "parameters": {"engine.max_num_seqs": "8", "engine.dtype": "auto"}}
    found = record.complete(measured([level(8, 500)], parameters_digest="new", **new), [], [old], 0)
    said = [word for word in found["compared_with"]["words"] if "->" in word]
    assert said == ["vllm: 0.31.0 -> 0.32.0", "engine.dtype: not set -> auto", "engine.max_num_seqs: 4 -> 8"]
    other = passed("old", 400, tool={"name": "vllm bench serve", "version": "0.32.0"})
    words = record.complete(measured([level(8, 500)]), [], [other], 0)["compared_with"]["words"]
    assert words[-1] == "load tool: vllm bench serve 0.32.0 -> modelyard 0.1.0"
    same = record.complete(measured([level(8, 500)], parameters_digest="new"), [], [passed("old", 400)], 0)
    assert same["compared_with"]["words"][-1].startswith("the command line or the environment")


def test_a_run_that_cannot_be_compared_says_so():
    assert record.complete(measured([level(8, 400)]), [], [], 0)["compared_with"] is None


# -- words -------------------------------------------------------------------------------------------------------------


def test_the_report_tells_clients_from_slots_and_the_top_from_a_day():
    levels = [level(8, 400), level(16, 800, server=busy(8, 8)), level(32, 810, server=busy(8, 24))]
    text = " ".join(
        report.report(record.complete(measured(levels), ["tiny/1 ended while it was tested"], [], 0), "server1").split()
    )
    assert "8 slots (2 instances of 4); at concurrency 32 at most 8 ran and 24 waited in the engines" in text
    assert "tops out at concurrency 16 with 8.00 requests/s, 800 tokens/s; at 0.75 of that 518,400 requests" in text
    assert "not met tiny/1 ended while it was tested" in text


def test_progress_is_one_line():
    seen = {"level": 2, "of": 5, "kind": "concurrency", "value": 16, "done": 40, "requests": 64, "failed": 1, "seconds": 31.0}
    line = report.progress("a", {**seen, "rate": 7.7, "running": 4, "waiting": 12})
    assert line == "  [  31 s] a: concurrency 16 (2 of 5): 40 of 64 requests, 1 failed, 7.7/s, 4 running, 12 waiting"
    quiet = report.progress("a", {**seen, "done": 0, "failed": 0, "rate": 0.0, "running": None, "waiting": None})
    assert quiet.endswith("the generator starts")
