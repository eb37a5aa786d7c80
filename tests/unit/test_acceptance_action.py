"""The action service_probe: whom it asks, what it fails with, whom it lets in."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.modelyard.core.plugins.action import service_probe, service_roll
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.plan import acceptance_text
from unit import worlds
from unit.check_cases import acted
from unit.replies import SERVICE


def found(steps, passed=True):
    """What the module service_probe says."""
    told = {"schema": 1, "at": 1.0, "service": "two", "passed": passed, "depth": "full", "asked": [0], "steps": steps}
    failed = any(step["verdict"] == "fail" for step in steps)
    return {
        "acceptance": told,
        "result": "/r",
        "evidence": "/e" if failed else "",
        "problems": [],
        "manifest": None,
        "load": None,
    }


def two(**more):
    service = worlds.service(name="two", **more)
    service["instances"] = [{"index": i, "action": "keep", "accepted": False, "port": 8000 + i} for i in range(3)]
    return service


@pytest.mark.parametrize(("about", "asked"), [({}, [0, 1, 2]), ({"two": [1]}, [1]), ({"two": []}, [0, 1, 2]), ({"x": []}, [])])
def test_an_acceptance_of_some_instances_asks_no_others(about, asked, monkeypatch):
    service = two()
    service["instances"][0]["accepted"] = True
    seen = []

    def answered(action, name, args, variables):
        seen.extend(i["index"] for i in args["service"]["instances"])
        return found([])

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": service, "steps": [], "always": True, "only": about}
    assert not acted(service_probe, args, {}).run(None, {}).get("failed")
    assert seen == asked


LEFT = {"id": "PF-LEFTOVER", "severity": "refuse", "where": "host-a:two", "what": "parts of two live on", "do": "teardown"}
OTHER = {"id": "PF-DISK", "severity": "refuse", "where": "host-a:/", "what": "full", "do": "make room"}
NOT_ASKED = (
    "two was not accepted: instance 1 was not asked, because the plan refuses it: PF-LEFTOVER parts of two live on -> teardown. "
    "The service was left as it is."
)


@pytest.mark.parametrize(
    ("actions", "always", "asked", "msg"),
    [
        (["keep", "refused", "keep"], True, [0, 2], NOT_ASKED),
        (["stop", "refused", "leave"], True, [], NOT_ASKED),
        (["keep", "refused", "keep"], False, [0, 2], None),
        (["stop", "stop", "leave"], True, [], None),
    ],
)
def test_what_the_plan_refuses_is_not_asked_and_no_run_passes_over_it(actions, always, asked, msg, monkeypatch):
    """An engine whose API server was killed is refused by the plan: an acceptance that says nothing of it would call it well."""
    service = two()
    for instance, action in zip(service["instances"], actions, strict=True):
        instance["action"] = action
    seen = []

    def answered(action, name, args, variables):
        seen.extend(i["index"] for i in args["service"]["instances"])
        return found([])

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": service, "steps": [], "always": always, "only": {}, "findings": [OTHER, LEFT]}
    result = acted(service_probe, args, {}).run(None, {})
    assert (seen, result.get("msg"), bool(result.get("failed"))) == (asked, msg, msg is not None)
    assert result["refused"] == ([1] if msg else [])


def test_without_a_finding_of_its_own_all_that_refuse_are_told():
    assert "instance 0, 3 were not asked, because the plan refuses it: PF-DISK full -> make room." in acceptance_text.refused(
        "two", [0, 3], [OTHER]
    )


def walked(index, failed="", ids=None, word="fail"):
    more = {"seconds": 0.1, "detail": "", "cause": "", "next": "look", "restart": False}
    steps = [one.id for one in acceptance.ladder(SERVICE, ids or [])]
    return [
        {"instance": index, "id": id, "passed": id != failed, "verdict": word if id == failed else "pass", **more} for id in steps
    ]


def test_only_the_whole_ladder_proves_an_instance():
    steps = [
        *walked(0),
        *walked(1, failed="chat"),
        *walked(2, ids=["health"]),
        *walked(3),
        *walked(4, failed="chat", word="busy"),
    ]
    assert acceptance.proven(SERVICE, steps) == [0, 3]
    assert acceptance.proven(SERVICE, walked(0)[:-1]) == []
    assert acceptance.proven(SERVICE, []) == []
    assert acceptance.proven(worlds.service(acceptance={"also": ["completions"]}), walked(0)) == []


def test_what_could_not_be_judged_is_no_failure():
    assert acceptance.failing(walked(0, failed="chat", word="busy")) == []
    assert [step["id"] for step in acceptance.failing(walked(0, failed="chat"))] == ["chat"]


GATEWAY = {"kind": "nginx", "host": "0.0.0.0", "port": 1}


@pytest.mark.parametrize(
    ("more", "gateway", "told"),
    [({"admit": True}, GATEWAY, [[0, 2]]), ({}, GATEWAY, []), ({"admit": True}, {}, [])],
)
def test_what_is_proven_comes_in_at_the_gateway_and_nothing_else(more, gateway, told, monkeypatch):
    service = {**two(), "gateway": gateway}
    seen = []

    def answered(action, name, args, variables):
        if name == "gateway_control":
            seen.append(args["in"])
            return {"changed": True, "actions": []}
        return found([*walked(0), *walked(1, failed="schema"), *walked(2)], passed=False)

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": service, "steps": [], "only": {}, **more}
    result = acted(service_probe, args, {}).run(None, {})
    assert result["failed"]
    assert result["msg"].startswith("two was not accepted: step schema failed on instance 1")
    assert "Next: look. A restart would not help. Evidence: /e. The service was left as it is." in result["msg"]
    assert (result["evidence"], result["depth"], result["busy"]) == ("/e", "full", False)
    assert seen == told


def test_a_busy_service_is_no_failure_and_is_not_let_in(monkeypatch):
    seen = []

    def answered(action, name, args, variables):
        if name == "gateway_control":
            seen.append(args["in"])
            return {"changed": False, "actions": []}
        return found(walked(0, failed="chat", word="busy"), passed=False)

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": {**two(), "gateway": GATEWAY}, "steps": [], "only": {}, "admit": True}
    result = acted(service_probe, args, {}).run(None, {})
    assert not result.get("failed")
    assert (result["busy"], result["passed"], seen) == (True, False, [[]])


def test_a_gateway_that_cannot_be_told_hides_no_failure(monkeypatch):
    failed = ""

    def answered(action, name, args, variables):
        if name == "gateway_control":
            raise AnsibleActionFail("the gateway of two: refused")
        return found(walked(0, failed=failed), passed=not failed)

    monkeypatch.setattr(service_probe.call, "module", answered)
    args = {"home": "/h", "service": {**two(), "gateway": GATEWAY}, "steps": [], "only": {}, "admit": True}
    late = "two: what has been proven gets no requests yet: the gateway of two: refused. " + service_probe.LATER
    assert acted(service_probe, dict(args), {}).run(None, {})["msg"] == late
    failed = "chat"
    both = acted(service_probe, dict(args), {}).run(None, {})["msg"]
    assert both.startswith("two was not accepted: step chat failed")
    assert both.endswith(late)


def test_a_result_that_could_not_be_written_down_is_a_failure_of_its_own(monkeypatch):
    full = {**found(walked(0)), "problems": ["[Errno 28] No space left on device: '/h/x'"]}
    monkeypatch.setattr(service_probe.call, "module", lambda *_: full)
    args = {"home": "/h", "service": two(), "steps": [], "only": {}}
    result = acted(service_probe, args, {}).run(None, {})
    assert result["msg"] == "two: not written down: [Errno 28] No space left on device: '/h/x'"


def test_a_rolling_restart_stops_at_an_instance_that_could_not_be_proven(monkeypatch):
    touched = []

    def module(action, name, args, variables):
        touched.extend(args["indexes"])
        return {"actions": []}

    def action(caller, name, args, variables):
        if name == "service_probe":
            assert args["gateway_comes_after"] is True
            return {"steps": [], "passed": False, "busy": True}
        return {}

    monkeypatch.setattr(service_roll.call, "module", module)
    monkeypatch.setattr(service_roll.call, "action", action)
    batches = [[{"name": f"q/{i}", "index": i, "digest": "d", "texts": []}] for i in (0, 1)]
    service = {"name": "q", "start": {}, "instances": [{"index": 0}, {"index": 1}]}
    args = {"home": "/h", "runtimes_dir": "", "service": service, "batches": batches, "timeout_s": 1, "grace_s": 1}
    result = acted(service_roll, args, {}).run(None, {})
    assert (touched, result["restarted"], result["untouched"]) == ([0], [], ["q/1"])
    assert "q/0 runs, but it is at work for others already and could not be proven" in result["msg"]
