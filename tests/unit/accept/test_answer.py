"""One answer from many steps, and its exit status."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.accept import runs

from modelyard.accept import answer, command


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ([runs.PASS], "accepted"),
        ([runs.PASS, runs.SKIPPED], "accepted"),
        ([runs.PASS, runs.BUSY], "busy"),
        ([runs.BUSY, runs.FAIL], "failed"),
        ([runs.PASS, runs.FAIL, runs.SKIPPED], "failed"),
        ([runs.SKIPPED], "error"),
        ([], "error"),
        ([answer.added(answer.PROBE_STEP, 0, "the module broke")], "error"),
        ([answer.added(answer.PROBE_STEP, 0, "the module broke"), runs.FAIL], "failed"),
        ([answer.added(answer.PLAN_STEP, 0, "refused"), runs.PASS], "failed"),
        ([{**runs.PASS, "verdict": "unheard of"}], "failed"),
    ],
)
def test_the_answer_of_a_service(steps, wanted):
    assert runs.service(*steps)["answer"] == wanted


def test_a_busy_step_is_neither_passed_nor_failed_and_a_step_without_verdict_is_one_of_both():
    assert answer.step(runs.BUSY)["passed"] is False
    assert answer.step(runs.BUSY)["verdict"] == "busy"
    assert [answer.step(one)["verdict"] for one in (runs.PASS, runs.FAIL)] == ["pass", "fail"]


@given(st.lists(st.sampled_from(answer.ORDER), min_size=1))
def test_the_worst_answer_wins_in_any_order(answers):
    found = answer.worst(answers, "none")
    assert found in answers
    assert all(answer.ORDER.index(found) <= answer.ORDER.index(one) for one in answers)


def test_a_run_in_which_nothing_was_asked_has_proven_nothing():
    assert answer.of_run({}) == "error"
    assert answer.of_run({"a": runs.host(), "b": runs.host()}) == "error"
    assert answer.of_run({"a": runs.host(), "b": runs.host(runs.service(runs.PASS))}) == "accepted"
    away = runs.host(problem="no route", kind="unreachable")
    assert answer.of_run({"a": away, "b": runs.host(runs.service(runs.PASS))}) == "unreachable"
    assert answer.of_run({"a": away, "b": runs.host(runs.service(runs.FAIL))}) == "failed"
    assert answer.of_run({"a": away, "b": runs.host(runs.service(runs.BUSY))}) == "unreachable"


def test_every_answer_has_an_exit_status_of_its_own_that_is_documented():
    statuses = {**answer.EXIT, "usage": command.USAGE, "under way": command.UNDER_WAY}
    assert set(answer.EXIT) == set(answer.ORDER)
    assert all(a != b for a, b in itertools.combinations(statuses.values(), 2))
    for status in statuses.values():
        assert f"\n  {status}  " in command.EPILOG


def test_a_reason_stays_the_same_while_the_cause_does():
    one, other = ({**runs.FAIL, "seconds": seconds, "detail": f"pid {seconds}"} for seconds in (1, 2))
    assert answer.reason(runs.service(one)) == answer.reason(runs.service(other)) == "schema"
    assert answer.reason(runs.service({**runs.FAIL, "cause": "context"})) == "schema:context"
    assert answer.reason(runs.service(runs.PASS, runs.BUSY)) == ""
