"""What people read about an acceptance."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import acceptance_text, meaning, text
from unit import worlds


def step(id="chat", instance=0, verdict="pass", **more):
    passed = verdict in ("pass", "skipped")
    base = {"id": id, "instance": instance, "passed": passed, "verdict": verdict, "seconds": 0.1, "detail": "seen", "cause": ""}
    return {**base, "next": "" if passed else "look at its log", "restart": False, **more}


def test_a_line_for_each_step_and_what_to_do_below_what_does_not_hold():
    found = {"service": "two", "steps": [step(), step("memory", verdict="skipped"), step("schema", verdict="busy")]}
    assert acceptance_text.lines(found) == [
        "pass  two/0 chat: seen",
        "skip  two/0 memory: seen",
        "BUSY  two/0 schema: seen",
        "      -> look at its log",
    ]


def test_a_failure_says_whether_a_restart_is_of_use_and_where_the_evidence_is():
    failing = step("schema", 3, "fail", detail="no JSON.", restart=True)
    assert acceptance_text.failure("two", failing, "/e", "not written down: x") == (
        "two was not accepted: step schema failed on instance 3: no JSON. Next: look at its log. "
        "A restart of the instance may help after that. Evidence: /e (not written down: x). The service was left as it is."
    )


def test_instances_that_were_left_out_are_not_counted_among_those_that_passed():
    steps = [step("gateway", index, "skipped" if index < 3 else "pass") for index in range(6)]
    assert text.acceptance([*steps, step("gateway", 6, "busy")]) == [
        "  step     instance  verdict  seconds  what was seen",
        "  gateway  0-2       skip     0.10     seen",
        "  gateway  3-5       pass     0.10     seen",
        "  gateway  6         BUSY     0.10     seen",
    ]


SCHEMA = {"name": "x", "schema": {"type": "object"}, "prompt": "p", "max_tokens": 512}


@pytest.mark.parametrize(
    ("schemas", "found"),
    [
        ([], []),
        ([SCHEMA], []),
        ([{**SCHEMA, "schema": {"contains": {}}}], ["$: the keyword contains is not known here"]),
        ([{**SCHEMA, "schema": {"const": {1, 2}}}], ["it is no JSON: Object of type set is not JSON serializable"]),
        ([SCHEMA, SCHEMA], ["the name is empty, or used twice"] * 2),
        ([{**SCHEMA, "max_tokens": 0}], ["0 is below 1"]),
    ],
)
def test_schemas_of_the_inventory_are_judged_with_the_inventory(schemas, found):
    service = worlds.service(acceptance={"schemas": schemas})
    assert [item["what"] for item in meaning.findings([service])] == found
    assert {item["id"] for item in meaning.findings([service])} <= {"IN-VALUE"}


def test_limits_of_the_acceptance_are_limits():
    service = worlds.service(acceptance={"serial_requests": -1, "top_logprobs": 0, "request_timeout_s": 0, "busy_wait_s": -1})
    assert len(meaning.findings([service])) == 4
