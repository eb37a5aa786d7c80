"""What a deploy writes down of idle cards (cards.json of the home)."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import baseline, planner
from unit import worlds

UUID_0, UUID_1 = worlds.card(0)["uuid"], worlds.card(1)["uuid"]
USED = [{"pid": 4711, "name": "python", "memory_mib": 30000}]


def card_1(**changes):
    """What is written down of the second of two cards; None for nothing."""
    survey = worlds.nvidia(worlds.card(0), worlds.card(1, **changes))
    survey["processes"] = {
        "4711": worlds.process(4711),
        "7": worlds.process(7, comm="nvidia-persiste", user="root"),
        "8": worlds.process(8, comm="Xorg", user="root"),
    }
    return baseline.recorded(survey).get(UUID_1)


def test_an_idle_card_is_written_down_with_its_memory_and_its_place():
    assert baseline.recorded(worlds.nvidia(worlds.card(0, memory_used_mib=37))) == {
        UUID_0: worlds.noted(0, "0000:01:00.0", memory_mib=37)
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"processes": USED},
        {"processes": [{"pid": 99, "name": "gone", "memory_mib": None}]},
        {"holders": [4711]},
        {"holders": [4711, 7]},
        {"holders": [99]},
        {"memory_used_mib": None},
        {"health": "unknown"},
        {"health": "lost"},
        {"health": "degraded"},
        {"index": None},
        {"uuid": "", "bus_id": ""},
    ],
    ids=str,
)
def test_of_a_card_that_is_used_or_not_known_nothing_is_written(changes):
    assert card_1(**changes) is None


@pytest.mark.parametrize("holders", [[7], [8], [7, 8]])
def test_who_only_looks_does_not_use_a_card(holders):
    assert card_1(holders=holders) == worlds.noted(1, "0000:02:00.0")


def test_a_display_that_the_tool_names_does_not_use_a_card_for_computing():
    # What it takes is known from the tool at every look and is no part of what the card holds by itself.
    drawn = card_1(holders=[8], processes=[{"pid": 8, "name": "/usr/lib/xorg/Xorg", "memory_mib": 150}], memory_used_mib=180)
    assert drawn == worlds.noted(1, "0000:02:00.0", memory_mib=30)
    # Where the tool does not say how much, it is.
    drawn = card_1(holders=[8], processes=[{"pid": 8, "name": "/usr/lib/xorg/Xorg", "memory_mib": None}], memory_used_mib=180)
    assert drawn == worlds.noted(1, "0000:02:00.0", memory_mib=180)


@pytest.mark.parametrize(("takes", "written"), [(512, 4), (513, None)])
def test_a_display_that_takes_much_is_a_user_like_any_other(takes, written):
    row = {"pid": 8, "name": "Xorg", "memory_mib": takes}
    entry = card_1(holders=[8], processes=[row], memory_used_mib=4 + takes)
    assert (entry and entry["memory_mib"]) == written


def test_what_somebody_left_on_a_card_never_becomes_its_baseline():
    assert card_1(memory_used_mib=64 + 128) == worlds.noted(1, "0000:02:00.0", memory_mib=192)
    assert card_1(memory_used_mib=64 + 129) is None
    assert card_1(memory_used_mib=30000) is None
    # nor does what a program takes that bears the name of one that only looks
    assert card_1(holders=[8], processes=[{"pid": 8, "name": "Xorg", "memory_mib": 24000}], memory_used_mib=24004) is None


@pytest.mark.parametrize(("beside", "ids"), [(30 + 128, []), (30 + 129, ["PF-MEMORY-HELD"])])
def test_the_memory_of_a_display_is_not_counted_twice(beside, ids):
    row = {"pid": 8, "name": "/usr/lib/xorg/Xorg", "memory_mib": 150}
    resting = {UUID_0: worlds.noted(0, "0000:01:00.0", memory_mib=30)}
    survey = worlds.nvidia(
        worlds.card(0, holders=[8], processes=[row], memory_used_mib=150 + beside),
        baseline=resting,
        processes={"8": worlds.process(8, comm="Xorg", user="root")},
    )
    service = worlds.gpu_service(cards=["0"], topology={"replicas": 1, "tensor_parallel_size": 1})
    plan = planner.plan(worlds.intent(service), survey)
    assert [item["id"] for item in plan["findings"]] == ids


def test_a_card_without_a_uuid_is_written_down_by_its_address():
    assert baseline.recorded(worlds.nvidia(worlds.card(0, uuid=""))) == {"0000:01:00.0": worlds.noted(0, "0000:01:00.0")}


@pytest.mark.parametrize(("process_list", "written"), [("none", 2), ("listed", 2), ("partial", 0), ("unknown", 0)])
def test_without_a_whole_list_of_processes_nothing_is_written(process_list, written):
    survey = worlds.nvidia(accelerators={"nvidia": {"process_list": process_list}})
    assert len(baseline.recorded(survey)) == written


def test_what_was_written_once_stays_and_follows_the_number_of_the_card():
    before = {
        UUID_1: worlds.noted(3, "0000:09:00.0", memory_mib=400),
        "GPU-of-a-card-that-is-gone": worlds.noted(7, "0000:0a:00.0", memory_mib=9),
    }
    after = baseline.recorded(worlds.nvidia(baseline=before))
    assert after[UUID_1] == worlds.noted(1, "0000:02:00.0", memory_mib=400)
    assert after["GPU-of-a-card-that-is-gone"] == before["GPU-of-a-card-that-is-gone"]
    assert after[UUID_0]["memory_mib"] == 4
    assert before[UUID_1]["index"] == 3, "the survey is not changed"


def test_a_card_in_use_keeps_the_memory_that_was_written_down():
    before = {UUID_1: worlds.noted(1, "0000:02:00.0", memory_mib=400)}
    survey = worlds.nvidia(worlds.card(0), worlds.card(1, processes=USED, memory_used_mib=30400), baseline=before)
    assert baseline.recorded(survey)[UUID_1]["memory_mib"] == 400


def test_an_entry_that_an_admin_wrote_gets_its_number_and_its_place_from_a_deploy():
    written = baseline.recorded(worlds.nvidia(baseline={UUID_1: {"memory_mib": 700}}))
    assert written[UUID_1] == worlds.noted(1, "0000:02:00.0", memory_mib=700)


@pytest.mark.parametrize("takes", [None, 0, 512])
def test_one_that_only_looks_and_of_which_no_amount_is_known_leaves_a_card_idle(takes):
    row = {"pid": 8, "name": "Xorg", "memory_mib": takes}
    assert card_1(holders=[8], processes=[row], memory_used_mib=4 + (takes or 0)) == worlds.noted(1, "0000:02:00.0")


@pytest.mark.parametrize(
    "entry",
    [None, 5, "text", [], {}, {"memory_mib": "many"}, {"memory_mib": float("nan")}, {"memory_mib": float("inf")}],
    ids=repr,
)
def test_what_is_no_entry_is_passed_over(entry):
    # The file lies in a folder where people work.
    survey = worlds.nvidia(baseline={UUID_1: entry})
    plan = planner.plan(worlds.intent(worlds.gpu_service()), survey)
    assert plan["findings"] == []
    assert plan["changes"] == ["qwen3-14b-32k"]


def test_on_a_host_without_accelerators_there_is_nothing_to_write():
    assert baseline.recorded(worlds.survey()) == {}
    assert planner.plan(worlds.intent(), worlds.survey())["baseline"] == {}


def test_every_kind_of_card_is_written_down_and_the_file_can_hold_it():
    survey = worlds.hygon()
    written = baseline.recorded(survey)
    assert len(written) == 8
    assert written[worlds.dcu(7)["uuid"]] == worlds.noted(7, "0000:7f:00.0", memory_mib=2, backend="hygon")
    assert json.loads(json.dumps(written)) == written
    assert baseline.recorded({**survey, "baseline": written}) == written


def test_a_second_look_at_the_same_host_writes_the_same():
    survey = worlds.nvidia()
    plan = planner.plan(worlds.intent(worlds.gpu_service()), survey)
    assert (
        planner.plan(worlds.intent(worlds.gpu_service()), {**survey, "baseline": plan["baseline"]})["baseline"]
        == plan["baseline"]
    )
