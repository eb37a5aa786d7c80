"""What the events of a run say about each host."""

from __future__ import annotations

import json

import pytest
from unit.accept import runs

from modelyard.accept import events

CARD = {
    "index": 0,
    "name": "RTX 4090",
    "memory_used_mib": 4,
    "memory_total_mib": 49140,
    "temperature_c": 41,
    "utilization_pct": 7.0,
}


def planned(name="one", actions=("keep",), **more):
    instances = [{"index": index, "action": action, "cards": [[index]]} for index, action in enumerate(actions)]
    return {"name": name, "backend": "nvidia", "concerned": True, "instances": instances, **more}


def plan(*services, findings=()):
    survey = json.dumps({"cards": {"nvidia": [CARD]}})
    return runs.event("runner_on_ok", action=events.PLAN, services=list(services), findings=list(findings), survey_json=survey)


def probe(kind="runner_item_on_ok", service="one", **said):
    return runs.event(kind, action=events.PROBE, service=service, **said)


def hosts(*some):
    seen = events.Seen()
    for one in some:
        seen.event(one)
    return seen.hosts()


def test_a_service_that_passes():
    found = hosts(plan(planned()), probe(steps=[runs.PASS], passed=True, manifest={"schema": 2}, load={"id": "20261129T221500Z"}))
    (service,) = found["server1"]["services"]
    assert service["load"] == {"id": "20261129T221500Z"}
    assert (found["server1"]["answer"], found["server1"]["problem"]) == ("accepted", "")
    assert (service["answer"], service["manifest"], service["evidence"]) == ("accepted", {"schema": 2}, "")
    assert service["cards"] == [
        {"index": 0, "name": "RTX 4090", "memory_used_mib": 4, "memory_total_mib": 49140, "temperature_c": 41, "utilization": 7.0}
    ]


def test_a_failure_names_its_evidence_in_whichever_form_it_comes():
    said = (
        "one was not accepted: step schema failed. Evidence: /home/llm/modelyard/evidence/x-failed_schema. The service was left."
    )
    found = hosts(plan(planned()), probe("runner_item_on_failed", steps=[runs.PASS, runs.FAIL], failed=True, msg=said))
    assert found["server1"]["answer"] == "failed"
    assert found["server1"]["services"][0]["evidence"] == "/home/llm/modelyard/evidence/x-failed_schema"
    found = hosts(plan(planned()), probe("runner_item_on_failed", steps=[runs.FAIL], evidence="/evidence/y", msg="no place here"))
    assert found["server1"]["services"][0]["evidence"] == "/evidence/y"
    # The result may also come as the record that lies on the host.
    found = hosts(plan(planned()), probe(result={"schema": 1, "steps": [runs.BUSY]}))
    assert found["server1"]["services"][0]["answer"] == "busy"


def test_a_probe_that_broke_is_an_error_of_that_service_alone():
    broken = probe("runner_item_on_failed", failed=True, msg="MODULE FAILURE", module_stderr="Traceback")
    found = hosts(plan(planned(), planned("two")), broken, probe(service="two", steps=[runs.PASS]))
    assert [one["answer"] for one in found["server1"]["services"]] == ["error", "accepted"]
    assert found["server1"]["services"][0]["steps"][0]["detail"] == "MODULE FAILURE"
    assert found["server1"]["answer"] == "error"


def test_a_complaint_beside_a_ladder_that_passed_is_kept_and_costs_no_answer():
    seen = events.Seen()
    for one in (
        plan(planned()),
        probe("runner_item_on_failed", steps=[runs.PASS], failed=True, msg="the result was not written"),
    ):
        seen.event(one)
    assert seen.hosts()["server1"]["answer"] == "accepted"
    assert seen.words == ["server1: the result was not written"]


def test_what_the_plan_refuses_is_not_asked_and_so_not_accepted():
    finding = {
        "id": "PF-PORT-BUSY",
        "severity": "refuse",
        "where": "server1:one",
        "what": "the port of one/1 is in use",
        "do": "ask",
    }
    other = {"id": "PF-DISK", "severity": "refuse", "where": "server1:/", "what": "full", "do": "make room"}
    refused = planned(actions=("keep", "refused"))
    found = hosts(plan(refused, findings=[other, finding]), probe(steps=[runs.PASS]))
    steps = found["server1"]["services"][0]["steps"]
    assert [(one["id"], one["instance"], one["verdict"]) for one in steps] == [("health", 0, "pass"), ("plan", 1, "fail")]
    assert steps[1]["detail"].endswith("PF-PORT-BUSY the port of one/1 is in use")
    assert steps[1]["next"] == "ask"
    found = hosts(plan(planned(actions=("refused",)), findings=[other]))
    assert "PF-DISK full" in found["server1"]["services"][0]["steps"][0]["detail"]


@pytest.mark.parametrize(
    ("actions", "steps", "expected"),
    [
        (("keep", "refused"), [runs.PASS], [("health", 0, "pass"), ("plan", 1, "fail")]),
        (("refused", "refused"), None, [("plan", 0, "fail"), ("plan", 1, "fail")]),
    ],
)
def test_that_the_playbook_fails_over_what_the_plan_refuses_is_told_once(actions, steps, expected):
    finding = {"id": "PF-DISK", "severity": "refuse", "where": "server1:/", "what": "full", "do": "make room"}
    more = {} if steps is None else {"steps": steps}
    failed = probe("runner_item_on_failed", failed=True, refused=[1], msg="one was not accepted", **more)
    seen = events.Seen()
    for one in (plan(planned(actions=actions), findings=[finding]), failed):
        seen.event(one)
    host = seen.hosts()["server1"]
    assert [(one["id"], one["instance"], one["verdict"]) for one in host["services"][0]["steps"]] == expected
    assert (host["answer"], seen.words) == ("failed", [])


def test_what_fails_while_a_deploy_works_on_the_host_is_busy_and_no_failure():
    lock = {
        "id": "PF-LOCK-HELD",
        "severity": "refuse",
        "where": "server1:/home",
        "what": "another run holds the lock",
        "do": "wait",
    }
    found = hosts(
        plan(planned(actions=("keep", "refused")), findings=[lock]), probe(steps=[runs.PASS, {**runs.FAIL, "instance": 0}])
    )
    steps = found["server1"]["services"][0]["steps"]
    assert [(one["id"], one["verdict"], one["passed"]) for one in steps] == [
        ("health", "pass", True),
        ("schema", "busy", False),
        ("plan", "busy", False),
    ]
    assert found["server1"]["answer"] == "busy"
    assert "another run holds the lock" in steps[2]["detail"]


def test_a_service_that_nobody_asked_is_never_accepted():
    assert hosts(plan(planned()))["server1"]["answer"] == "error"
    assert hosts(plan(planned()), probe("runner_item_on_ok", skipped=True))["server1"]["answer"] == "error"


@pytest.mark.parametrize(
    ("event", "wanted", "words"),
    [
        (runs.event("runner_on_unreachable", unreachable=True, msg="ssh: no route to host"), "unreachable", "no route to host"),
        (
            runs.event(
                "runner_on_failed",
                action=events.PLAN,
                findings=[{"id": "PF-UNREACHABLE", "where": "server1", "what": "timed out", "do": "look"}],
            ),
            "unreachable",
            "PF-UNREACHABLE server1: timed out -> look",
        ),
        (
            runs.event(
                "runner_on_failed",
                action=events.INTENT,
                findings=[{"id": "IN-KEY-UNKNOWN", "where": "x", "what": "modelyard_restrat", "do": "correct"}],
            ),
            "error",
            "IN-KEY-UNKNOWN x: modelyard_restrat -> correct",
        ),
        (runs.event("runner_on_failed", action=events.PLAN, msg="Traceback"), "error", "Traceback"),
        (runs.event("runner_on_start"), "error", "the run ended before this host was looked at"),
    ],
    ids=["no connection", "survey", "inventory", "defect", "ended early"],
)
def test_a_host_that_cannot_be_asked(event, wanted, words):
    found = hosts(event)["server1"]
    assert found["answer"] == wanted
    assert words in found["problem"]
    assert found["services"] == []


def test_a_host_that_goes_away_amid_the_ladder_keeps_what_was_proven():
    gone = probe("runner_item_on_failed", service="two", unreachable=True, msg="connection lost")
    found = hosts(plan(planned(), planned("two")), probe(steps=[runs.PASS]), gone)["server1"]
    assert (found["answer"], [one["name"] for one in found["services"]]) == ("unreachable", ["one"])


def test_events_of_no_host_and_of_other_tasks_say_nothing():
    assert hosts({"event": "verbose", "event_data": {}}, {"event": "playbook_on_stats"}) == {}
    seen = events.Seen()
    seen.event({"event": "playbook_on_start", "pid": 12, "event_data": {}})
    seen.event({"event": "playbook_on_stats", "pid": 13})
    assert (seen.pid, seen.ended) == (12, True)


def test_services_that_the_run_is_not_about_are_not_judged():
    found = hosts(plan(planned(), planned("two", concerned=False)), probe(steps=[runs.PASS]))
    assert [one["name"] for one in found["server1"]["services"]] == ["one"]
