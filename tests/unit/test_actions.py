"""What is done with each instance, and what a run about some of them does."""

from __future__ import annotations

from copy import deepcopy

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from unit import worlds

FOUR = worlds.gpu_service(
    name="four", cards=["0", "1", "2", "3"], topology={"replicas": 4, "tensor_parallel_size": 1}, listen={"base_port": 9000}
)
OTHER = worlds.gpu_service(name="other", cards=["4"], topology={"replicas": 1, "tensor_parallel_size": 1})
EVE = {"process_list": "listed"}


def host(*cards, count=5, **changes):
    special = {card["index"]: card for card in cards}
    return worlds.nvidia(*(special.get(index) or worlds.card(index) for index in range(count)), **changes)


def plan(survey, *services, **wish):
    return planner.plan(worlds.intent(*services, **wish), survey)


def deployed(*services, dead=None, **changes):
    """These services run as planned; `dead`: {service: indexes that do not}."""
    found = worlds.running(plan(host(), *services))
    for name, indexes in (dead or {}).items():
        for instance in found[name]["instances"]:
            instance["alive"] = instance["ready"] = instance["index"] not in indexes
    return {**host(**changes), "services": found}


def actions(plan, name="four"):
    (service,) = [s for s in plan["services"] if s["name"] == name]
    return [i["action"] for i in service["instances"]]


def of(plan):
    return {s["name"]: s["action"] for s in plan["services"]}


def refused(plan):
    return [item["id"] for item in plan["findings"] if item["severity"] == "refuse"]


def with_engine(service, **engine):
    return {**deepcopy(service), "engine": {**service["engine"], **engine}}


def test_a_missing_instance_is_started_without_permission_and_disturbs_nobody():
    found = plan(deployed(FOUR, OTHER, dead={"four": (2,)}), FOUR, OTHER)
    assert actions(found) == ["keep", "keep", "start", "keep"]
    assert of(found) == {"four": "start", "other": "keep"}
    assert (found["changes"], found["findings"]) == (["four"], [])
    assert found["services"][0]["differences"] == ["instance 2: not running -> running"]


def test_another_parameter_touches_those_that_run_and_not_the_one_that_is_started():
    survey = deployed(FOUR, dead={"four": (2,)})
    changed = with_engine(FOUR, max_model_len=2048)
    found = plan(survey, changed)
    assert (actions(found), of(found)) == (["refused"] * 4, {"four": "refused"})
    (item,) = [item for item in found["findings"] if item["id"] == "PF-RESTART-NEEDED"]
    assert "instance 0 --max-model-len: 4096 -> 2048" in item["what"]
    assert "instance 2" not in item["what"]
    allowed = plan(survey, changed, restart=True)
    assert (actions(allowed), of(allowed)) == (["restart", "restart", "start", "restart"], {"four": "restart"})


def test_one_instance_with_other_parameters_is_restarted_alone():
    survey = deployed(FOUR)
    survey["services"]["four"]["instances"][1]["digest"] = "by hand"
    survey["services"]["four"]["instances"][1]["launch"]["argv"] += ["--max-num-seqs", "1"]
    found = plan(survey, FOUR, restart=True)
    assert actions(found) == ["keep", "restart", "keep", "keep"]
    assert found["services"][0]["differences"] == ["instance 1 --max-num-seqs: 1 -> (not set)"]
    assert actions(plan(survey, FOUR)) == ["keep", "refused", "keep", "keep"]


@pytest.mark.parametrize("restart", [True, False])
def test_what_is_beyond_the_replicas_is_stopped_and_the_others_go_on(restart):
    fewer = worlds.merged(FOUR, {"topology": {"replicas": 2}})
    found = plan(deployed(FOUR), fewer, restart=restart)
    assert actions(found) == ["keep", "keep", *(["stop"] * 2 if restart else ["refused"] * 2)]
    assert of(found) == {"four": "restart" if restart else "refused"}
    assert refused(found) == ([] if restart else ["PF-RESTART-NEEDED"])
    assert found["services"][0]["differences"] == ["instance 2: running -> gone", "instance 3: running -> gone"]
    gone = found["services"][0]["instances"][2]
    assert (gone["name"], gone["session"], gone["port"], gone["cards"]) == ("four/2", "four-2", 9002, [[2]])


def test_what_is_beyond_the_replicas_and_does_not_run_is_nothing():
    fewer = worlds.merged(FOUR, {"topology": {"replicas": 2}})
    found = plan(deployed(FOUR, dead={"four": (2, 3)}), fewer)
    assert (actions(found), found["findings"]) == (["keep", "keep"], [])


@pytest.mark.parametrize(("before", "after", "names"), [(1, 2, ["four", "four-1"]), (2, 1, ["four-0", "four-1"])])
def test_what_runs_keeps_its_name_when_instances_come_or_go_and_a_restart_gives_it_the_new_one(before, after, names):
    was, wanted = (worlds.merged(FOUR, {"topology": {"replicas": n}, "supervisor": "systemd"}) for n in (before, after))
    survey = deployed(was)
    survey["units"] = [{"name": f"modelyard-{names[0]}.service", "state": "active", "scope": "system"}]
    found = plan(survey, wanted, restart=True)
    assert [i["session"] for i in found["services"][0]["instances"]] == names
    assert (actions(found), found["findings"]) == (["keep", "start" if after == 2 else "stop"], [])
    again = plan(survey, with_engine(wanted, max_model_len=2048), restart=True)
    assert again["services"][0]["instances"][0]["session"] == ("four-0" if after == 2 else "four")
    assert [item["id"] for item in again["findings"]] == []


def test_another_supervisor_is_a_difference():
    changed = {**deepcopy(FOUR), "supervisor": "systemd"}
    found = plan(deployed(FOUR), changed, restart=True)
    assert actions(found) == ["restart"] * 4
    assert found["services"][0]["differences"][0] == "instance 0 supervisor: plain -> systemd"
    earlier = deployed(FOUR)
    for instance in earlier["services"]["four"]["instances"]:
        instance["supervisor"] = ""  # started by a version that did not write it down
    assert actions(plan(earlier, changed)) == ["keep"] * 4


def test_a_refusal_elsewhere_starts_nothing_and_leaves_what_runs():
    survey = deployed(FOUR, dead={"four": (2,)}, lock={"run": "x", "what": "deploy", "by": "eve", "since": "now"})
    assert actions(plan(survey, FOUR)) == ["keep", "keep", "refused", "keep"]


def test_a_stranger_on_the_card_of_a_running_instance_refuses_nothing_and_on_that_of_a_missing_one_it_does():
    row = {"pid": 4711, "name": "python", "memory_mib": 9000}
    busy = worlds.card(1, processes=[row], memory_used_mib=9004)
    told = {"4711": worlds.process(4711)}
    for dead, ids in (((2,), []), ((1,), ["PF-STRANGER"])):
        services = deployed(FOUR, dead={"four": dead})["services"]
        found = plan({**host(busy, processes=told, accelerators={"nvidia": EVE}), "services": services}, FOUR)
        assert refused(found) == ids


def test_a_busy_port_matters_to_the_instance_that_is_to_be_started():
    taken = {"9002": {"service": "", "pid": 77, "user": "eve", "command": "python -m http.server"}}
    assert refused(plan(deployed(FOUR, dead={"four": (2,)}, ports=taken), FOUR)) == ["PF-PORT-BUSY"]
    assert refused(plan(deployed(FOUR, dead={"four": (1,)}, ports=taken), FOUR)) == []


def test_memory_is_counted_for_the_instances_that_are_missing():
    survey = deployed(FOUR, dead={"four": (2,)})
    survey["host"]["memory_available_mib"] = 5000 + 1023
    assert refused(plan(survey, FOUR)) == ["PF-MEMORY"]
    survey["host"]["memory_available_mib"] = 5000 + 1024
    assert refused(plan(survey, FOUR)) == []


def test_the_session_that_an_instance_would_get_must_be_free_and_its_own_unit_is_no_other_name():
    screen = {"kind": "screen", "name": "four-2", "user": "eve", "pid": 99}
    assert refused(plan(host(sessions=[screen]), FOUR)) == ["PF-NAME-USED"]
    assert refused(plan(deployed(FOUR, sessions=[screen]), FOUR)) == []
    unit = {"name": "modelyard-four-2.service", "scope": "system", "state": "active"}
    assert [item["id"] for item in plan(deployed(FOUR, units=[unit]), FOUR)["findings"]] == []
    theirs = {**unit, "name": "four.service"}
    assert refused(plan(host(units=[theirs]), FOUR)) == ["PF-NAME-USED"]


# -- a run about some instances -----------------------------------------------------------------------------------------


def test_only_one_instance_is_restarted_and_the_others_are_kept_as_they_are():
    changed = with_engine(FOUR, max_model_len=2048)
    found = plan(deployed(FOUR, OTHER), changed, with_engine(OTHER, max_model_len=1024), only={"four": [3]}, restart=True)
    assert (actions(found), actions(found, "other")) == (["keep", "keep", "keep", "restart"], ["keep"])
    assert of(found) == {"four": "restart", "other": "keep"}
    assert found["services"][0]["differences"] == ["instance 3 --max-model-len: 4096 -> 2048"]
    assert found["changes"] == ["four"]
    # Their files stay as well: a supervisor that starts one again after a crash must not bring the new parameters.
    before = plan(host(), FOUR)["services"][0]["instances"]
    for was, now in list(zip(before, found["services"][0]["instances"], strict=True))[:3]:
        assert {**now, "action": "start", "accepted": False} == was
    assert "2048" in found["services"][0]["instances"][3]["argv"]
    without = plan(deployed(FOUR, OTHER), changed, OTHER, only={"four": [3]})
    assert actions(without) == ["keep", "keep", "keep", "refused"]
    assert refused(without) == ["PF-RESTART-NEEDED"]


def test_what_does_not_run_and_is_not_named_is_left_alone():
    found = plan(deployed(FOUR, dead={"four": (1, 3)}), FOUR, OTHER, only={"four": [3]})
    assert (actions(found), actions(found, "other")) == (["keep", "leave", "keep", "start"], ["leave"])
    assert of(found) == {"four": "start", "other": "leave"}
    assert (found["changes"], found["findings"]) == (["four"], [])
    assert [service["concerned"] for service in found["services"]] == [True, False]


def test_a_service_by_its_name_means_all_of_its_instances():
    found = plan(host(), FOUR, OTHER, only={"four": []})
    assert (actions(found), of(found)) == (["start"] * 4, {"four": "start", "other": "leave"})
    fewer = worlds.merged(FOUR, {"topology": {"replicas": 3}})
    assert actions(plan(deployed(FOUR), fewer, only={"four": []}, restart=True))[-1] == "stop"
    assert actions(plan(deployed(FOUR), fewer, only={"four": [1]}, restart=True))[-1] == "keep"


WRONG = worlds.gpu_service(
    **{**OTHER, "engine": {"nope": 1}, "model": {"path": "/srv/models/none"}, "runtime_path": "/opt/none", "backend": "nvidia"}
)


def test_what_is_wrong_with_other_services_refuses_no_run_about_this_one():
    sick = host(worlds.card(4, health="needs_reset"))
    sick["services"]["other"] = {
        "instances": [],
        "leftovers": [{"pid": 9, "ppid": 1, "state": "S", "user": "ops", "comm": "VLLM::Worker_TP"}],
        "suspects": [],
        "accepted": False,
        "pids": [9],
    }
    sick["ports"] = {"8000": {"service": "", "pid": 77, "user": "eve", "command": "x"}}
    everything = plan(sick, FOUR, WRONG)
    assert set(refused(everything)) >= {"PL-ENGINE-KEY-UNKNOWN", "PF-MODEL-MISSING", "PF-LEFTOVER", "PF-CARD-NEEDS-RESET"}
    some = plan(sick, FOUR, WRONG, only={"four": []})
    assert refused(some) == []
    assert (actions(some), some["changes"]) == (["start"] * 4, ["four"])
    assert {"PL-ENGINE-KEY-UNKNOWN", "PF-MODEL-MISSING"} <= {f["id"] for f in some["findings"] if f["severity"] == "note"}
    assert [runtime["path"] for runtime in some["runtimes"]] == [worlds.RUNTIME]
    other = plan(sick, FOUR, WRONG, only={"other": []})
    assert "PF-LEFTOVER" in refused(other)


def test_what_is_wrong_with_the_host_refuses_a_run_about_one_instance_as_well():
    found = plan(host(home_problem="no right to write"), FOUR, only={"four": [0]})
    assert refused(found) == ["PF-HOME"]
    assert actions(found) == ["refused", "leave", "leave", "leave"]


def test_a_service_that_nobody_names_is_known_all_the_same():
    found = plan(deployed(FOUR, OTHER), FOUR, OTHER, only={"four": []})
    assert "PF-SERVICE-NOT-IN-INVENTORY" not in [item["id"] for item in found["findings"]]
