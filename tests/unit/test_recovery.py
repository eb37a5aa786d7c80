"""After a person's intervention: which cards must be back at their baseline, and what is refused."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, recovery
from unit import worlds
from unit.test_filters import call

TWO = {"topology": {"replicas": 2, "tensor_parallel_size": 1}}


def found(survey, wish=None, **intent):
    plan = planner.plan(worlds.intent(wish or worlds.gpu_service(), **intent), survey)
    return recovery.findings(plan, survey)


def ids(*world, **more):
    return [item["id"] for item in found(*world, **more)]


def held(**changes):
    """Two cards, the second changed."""
    survey = worlds.nvidia(worlds.card(0), worlds.card(1, **changes))
    survey["processes"]["4711"] = worlds.process(4711)
    return survey


def test_idle_cards_are_at_their_baseline():
    assert found(worlds.nvidia()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_used_mib": 30004}, "30004 MiB are in use (idle is 64 MiB, assumed"),
        ({"memory_used_mib": None}, "how much of its memory is in use is not known"),
        ({"holders": [4711]}, "still on it: pid 4711 of user eve"),
        ({"health": "needs_reset"}, "its health is needs_reset"),
    ],
)
def test_a_card_that_is_not_back_is_refused_with_the_choices_in_order(changes, words):
    (card,) = [item for item in found(held(**changes)) if item["id"] == "RC-BASELINE"]
    assert card["where"] == "box:card 1 (0000:02:00.0)"
    assert words in card["what"]
    assert "-e confirm_gpu_reset=box:1" in card["do"]
    assert card["do"].index("end what holds it") < card["do"].index("confirm_gpu_reset") < card["do"].index("; reboot")


def test_what_was_written_down_at_a_deploy_is_the_baseline():
    survey = held(memory_used_mib=600)
    assert "RC-BASELINE" in ids(survey)
    survey["baseline"] = {worlds.card(1)["uuid"]: worlds.noted(1, "0000:02:00.0", memory_mib=590)}
    assert ids(survey) == []


def test_a_display_belongs_to_an_idle_card():
    survey = held(memory_used_mib=304, processes=[{"pid": 4711, "name": "Xorg", "memory_mib": 300}], holders=[4711])
    survey["processes"]["4711"].update(comm="Xorg", user="root")
    survey["accelerators"]["nvidia"]["process_list"] = "listed"
    assert ids(survey) == []


def test_no_switch_makes_a_recovery_go_on():
    switches = {"PF-MEMORY-HELD": "off", "PF-STRANGER": "note", "PF-CARD-NEEDS-RESET": "off"}
    assert ids(held(memory_used_mib=30004), checks=switches) == ["PF-MEMORY-FREE", "RC-BASELINE"]


def test_all_findings_come_at_once_with_those_of_the_plan():
    survey = worlds.nvidia(worlds.card(0, memory_used_mib=30004), worlds.card(1, health="needs_reset"))
    survey["host"]["shm_free_mib"] = 1
    assert set(ids(survey)) == {"PF-CARD-NEEDS-RESET", "PF-MEMORY-HELD", "PF-SHM", "RC-BASELINE"}
    assert ids(survey).count("RC-BASELINE") == 2


def test_notes_and_warnings_of_the_plan_stop_nothing():
    survey = worlds.nvidia(limits={"nofile": [256, 256]})
    plan = planner.plan(worlds.intent(worlds.gpu_service()), survey)
    assert plan["findings"] != []
    assert recovery.findings(plan, survey) == []


def test_leftovers_are_refused_even_where_the_plan_was_told_to_ignore_them():
    survey = worlds.nvidia()
    left = {"pid": 9, "comm": "VLLM::Worker", "state": "S", "ppid": 1, "user": "llm"}
    survey["services"]["qwen3-14b-32k"] = {"instances": [], "leftovers": [left], "suspects": [], "accepted": False, "pids": [9]}
    assert ids(survey, checks={"PF-LEFTOVER": "off"}) == ["RC-BASELINE"]


def test_cards_of_instances_that_run_need_not_be_idle_and_those_of_the_others_do():
    wish = worlds.gpu_service(**TWO)
    survey = worlds.kept(wish, seen=worlds.nvidia())
    survey["cards"]["nvidia"][0].update(memory_used_mib=29000)
    survey["cards"]["nvidia"][1].update(memory_used_mib=29000)
    assert ids(survey, wish) == []
    survey["services"]["qwen3-14b-32k"]["instances"][1]["alive"] = False
    plan = planner.plan(worlds.intent(wish, restart=True), survey)
    assert [card["index"] for _, card in recovery.wanted(plan, survey)] == [1]
    assert [i["where"] for i in recovery.findings(plan, survey) if i["id"] == "RC-BASELINE"] == ["box:card 1 (0000:02:00.0)"]


def test_a_service_on_cores_has_no_baseline():
    assert found(worlds.survey(), worlds.service()) == []


def test_other_cards_than_the_wanted_ones_are_nobodys_business():
    survey = worlds.nvidia(worlds.card(0), worlds.card(1), worlds.card(2, memory_used_mib=40000))
    assert ids(survey) == []


def test_services_whose_cards_can_be_tested():
    wish = worlds.gpu_service()
    plan = planner.plan(worlds.intent(wish), worlds.nvidia())
    assert recovery.to_test(plan, worlds.nvidia()) == [wish["name"]]
    plan["services"][0]["runtime"]["present"] = False
    assert recovery.to_test(plan, worlds.nvidia()) == []
    running = worlds.kept(wish, seen=worlds.nvidia())
    assert recovery.to_test(planner.plan(worlds.intent(wish), running), running) == []


# -- the filter ---------------------------------------------------------------------------------------------------------------


def shown(survey, form, wish=None):
    plan = planner.plan(worlds.intent(wish or worlds.gpu_service()), survey)
    return call("modelyard_recovery", {**plan, "survey_json": json.dumps(survey)}, form)


def test_a_passed_baseline_in_words():
    lines = shown(worlds.nvidia(), "report").splitlines()
    assert lines[0] == "Baseline of the cards on box: passed"
    assert lines[2].split() == ["0", "0000:01:00.0", "4", "MiB", "64", "MiB", "(assumed)", "pass"]
    assert shown(worlds.nvidia(), "refusal") == ""


def test_a_refused_baseline_in_words():
    survey = held(memory_used_mib=30004)
    assert "\n  1     0000:02:00.0  30004 MiB  64 MiB (assumed)  not back\n" in shown(survey, "report")
    assert "  refuse  RC-BASELINE  box:card 1 (0000:02:00.0)\n" in shown(survey, "report")
    assert shown(survey, "refusal").startswith("The recovery of box was refused: PF-MEMORY-HELD, RC-BASELINE.")


def test_where_nothing_has_to_be_free_that_is_said():
    assert "no card has to be free" in shown(worlds.survey(), "report", worlds.service())


def test_a_form_that_is_none_is_refused():
    with pytest.raises(Exception, match="there are report, refusal and services"):
        shown(worlds.nvidia(), "nonsense")
