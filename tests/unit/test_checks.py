"""The checks of a host, kind by kind: what is found, what is not, and what must never be said."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import findings, planner, tables, text
from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import processes as surveyed
from hypothesis import given
from hypothesis import strategies as st
from unit import check_cases, fake_proc, worlds
from unit.check_cases import (
    ENDED,
    EVE,
    HALF_ENDED,
    HUNG,
    ONE_RANK,
    RESTING,
    UUID_1,
    card,
    disk,
    event,
    found,
    kind,
    of_gpus,
    on_card_1,
    proxy,
    seen,
    segment,
    session,
    shell,
    told,
    visible,
)

ON_BOTH, ON_CARD_0 = worlds.gpu_service(), worlds.gpu_service(cards=["0"], topology=ONE_RANK)
ON_CPU = worlds.service()


def ids(items):
    return [item["id"] for item in items]


def about(items, id):
    """What is said by the only finding of that id."""
    (item,) = [item for item in items if item["id"] == id]
    return item["what"]


# -- a host that is well ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "service"),
    [(worlds.survey, worlds.service), (worlds.nvidia, worlds.gpu_service), (worlds.hygon, worlds.dcu_service)],
    ids=["cpu", "nvidia", "hygon"],
)
def test_a_host_that_is_well_has_no_finding(world, service):
    assert found(world(), service()) == []
    assert found(world()) == []
    assert found(worlds.kept(service(), seen=world()), service()) == []


def test_a_service_that_runs_on_its_cards_is_no_finding():
    survey = worlds.kept(ON_BOTH, seen=worlds.nvidia(), pids=[500, 501, 502])
    for index, entry in enumerate(survey["cards"]["nvidia"]):
        pid = 501 + index
        entry.update(
            processes=[{"pid": pid, "name": "VLLM::Worker_TP", "memory_mib": 30000}], memory_used_mib=30004, holders=[pid]
        )
    survey["processes"] = told(*(worlds.process(pid, user="ops", comm="VLLM::Worker_TP") for pid in (500, 501, 502)))
    survey["accelerators"]["nvidia"].update(process_list="listed", shared_holders=[500, 501, 502])
    assert found(survey, ON_BOTH) == []
    allowed = found(survey, worlds.merged(ON_BOTH, {"engine": {"max_model_len": 2048}}), restart=True)
    assert allowed == []


# -- who uses a card, and memory that nobody holds --------------------------------------------------------------------

DOCKED = worlds.process(4711, container="3f4e5d6c7b8a9f4e5d6c")
GONE = [{"pid": 99, "name": "python", "memory_mib": 30000}]
GONE_UNKNOWN = [{"pid": 99, "name": "python", "memory_mib": None}]


def holding(process, used=4, **changes):
    """Card 1 is held by a process that the tool does not name, with `used` MiB in use."""
    return worlds.merged(card(holders=[process["pid"]], memory_used_mib=used, **changes), {"processes": told(process)})


# what is on card 1; ids when a service is to be started there, when none wants it, when one runs there, without services
USES = {
    "a stranger that the tool names": (
        on_card_1(EVE),
        *(["PF-STRANGER"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"]),
    ),
    "one whose memory the tool does not know": (
        on_card_1(EVE, memory_mib=None),
        *(["PF-STRANGER"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"]),
    ),
    "one in another container": (
        on_card_1(DOCKED),
        *(["PF-STRANGER"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"]),
    ),
    "a holder of the file, and no memory": (holding(EVE), ["PF-HOLDER"], [], [], ["PF-HOLDER"]),
    "a holder of the file, and memory": (holding(EVE, used=30004), ["PF-STRANGER"], [], [], None),
    "memory without anybody": (card(memory_used_mib=30004), ["PF-MEMORY-HELD"], [], [], ["PF-MEMORY-HELD"]),
    "memory of a process that is gone": (
        card(processes=GONE, memory_used_mib=30004),
        *(["PF-MEMORY-HELD"], [], [], ["PF-MEMORY-HELD"]),
    ),
    "a process that is gone, and no memory": (card(processes=GONE), [], [], [], []),
    "memory that is not known": (card(memory_used_mib=None), [], [], [], []),
    "memory of a card that does not answer": (
        card(memory_used_mib=30004, health="lost"),
        *(["PF-CARD-LOST"], ["PF-CARD-OTHER"], ["PF-CARD-LOST"], ["PF-CARD-LOST"]),
    ),
    "busy without a process": (
        card(utilization_pct=95.0),
        *(["PF-BUSY-WITHOUT-PROCESS"], [], [], ["PF-BUSY-WITHOUT-PROCESS"]),
    ),
    "busy with memory in use": (
        card(utilization_pct=100.0, memory_used_mib=30004),
        *(["PF-MEMORY-HELD"], [], [], ["PF-MEMORY-HELD"]),
    ),
    "busy with a process": (
        worlds.merged(on_card_1(EVE), {"accelerators": {}, "cards": {}}),
        *(["PF-STRANGER"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"], ["PF-CARD-IN-USE"]),
    ),
    "a little busy": (card(utilization_pct=94.9), [], [], [], []),
}


@pytest.mark.parametrize(("survey", "wanted", "unwanted", "kept", "nobody"), USES.values(), ids=USES)
def test_who_is_on_a_card_is_judged_by_what_is_wanted_of_it(survey, wanted, unwanted, kept, nobody):
    running = {**survey, "services": worlds.kept(ON_BOTH, seen=worlds.nvidia())["services"]}
    assert ids(found(survey, ON_BOTH)) == wanted
    assert ids(found(survey, ON_CARD_0)) == unwanted
    assert ids(found(running, ON_BOTH)) == kept
    if nobody is not None:
        assert ids(found(survey)) == nobody


def test_on_a_host_of_which_nothing_is_wanted_users_are_noted_and_not_refused():
    for survey in (on_card_1(EVE), holding(EVE, used=30004), holding(EVE)):
        assert [item["severity"] for item in found(survey)] == ["note"]


def test_memory_of_a_process_that_is_gone_counts_also_when_the_tool_does_not_know_how_much():
    # hy-smi does not say how much a process on several cards has on each.
    survey = card(processes=GONE_UNKNOWN, memory_used_mib=30004)
    assert ids(of_gpus(survey)) == ["PF-MEMORY-HELD"]
    assert "pid 99" in about(of_gpus(survey), "PF-MEMORY-HELD")


def test_a_holder_on_a_card_whose_memory_is_not_known_is_said():
    survey = holding(EVE, used=None)
    (item,) = of_gpus(survey)
    assert item["id"] in ("PF-HOLDER", "PF-STRANGER")
    assert "pid 4711 of user eve" in item["what"]


def ours(action_survey, holders, **seen):
    """Our service runs on both cards, but the tool lists no processes, as in a container; `holders` have card 1 open."""
    survey = {**action_survey, "services": worlds.kept(ON_BOTH, seen=worlds.nvidia(), pids=[500, 501], **seen)["services"]}
    for entry in survey["cards"]["nvidia"]:
        entry.update(memory_used_mib=30004, holders=holders)
    return worlds.merged(survey, {"processes": told(*(worlds.process(pid, user="ops") for pid in holders))})


def test_the_memory_of_the_very_service_that_is_restarted_is_not_held_by_nobody():
    changed = worlds.merged(ON_BOTH, {"engine": {"max_model_len": 2048}})
    assert found(ours(worlds.nvidia(), [500, 501]), changed, restart=True) == []
    assert ids(found(ours(worlds.nvidia(), [500, 501]), changed)) == ["PF-RESTART-NEEDED"]


def test_the_memory_of_a_leftover_of_ours_is_not_held_by_nobody():
    left = {"pid": 501, "ppid": 1, "state": "S", "user": "ops", "comm": "VLLM::Worker_TP"}
    survey = ours(worlds.nvidia(), [501], dead=(0,), leftovers=[left])
    assert ids(found(survey, ON_BOTH)) == ["PF-LEFTOVER"]


@pytest.mark.parametrize(("cards", "expected"), [(["0"], ["PF-STUCK-ELSEWHERE"]), (["1"], ["PF-NEEDS-ADMIN", "PF-STUCK"])])
def test_what_was_handed_over_to_an_admin_costs_the_cards_that_it_is_on_and_no_others(cards, expected):
    wish = worlds.gpu_service(cards=cards, topology={"replicas": 1, "tensor_parallel_size": 1})
    left = {"pid": 77, "ppid": 60, "state": "D", "user": "ops", "comm": "VLLM::Worker_TP"}
    seen = worlds.merged(worlds.nvidia(), {"processes": told(worlds.process(77, state="D", stack=["uvm_spin_loop"]))})
    seen["cards"]["nvidia"][1].update(memory_used_mib=30004, holders=[77])
    service = {**check_cases.handed_over(left=[77])["services"]["gone"], "leftovers": [left], "pids": [77]}
    seen.update(services={wish["name"]: service}, stuck=[77])
    assert sorted({finding["id"] for finding in found(seen, wish)} - {"PF-STRANGER", "PF-MEMORY-HELD"}) == expected
    service["needs_admin"]["left"] = []  # the same without a word to an admin
    assert {"PF-LEFTOVER", "PF-STUCK"} <= {finding["id"] for finding in found(seen, wish)}


def test_what_is_known_of_a_user_is_said():
    survey = on_card_1(worlds.process(4711, unit="jupyter.service", container="3f4e5d6c7b8a9f4e5d6c"), memory_mib=None)
    assert about(of_gpus(survey), "PF-STRANGER") == (
        "pid 4711 of user eve (python train.py; unit jupyter.service; container 3f4e5d6c7b8a) uses an unknown amount"
    )


def test_several_users_of_a_card_stand_in_one_finding():
    survey = on_card_1(EVE, worlds.process(4712, user="bob", command=""), memory_mib=8000)
    assert about(of_gpus(survey), "PF-STRANGER") == (
        "pid 4711 of user eve (python train.py) uses 8000 MiB; pid 4712 of user bob ([python]) uses 8000 MiB"
    )


def test_a_user_and_a_holder_of_further_memory_are_both_named():
    survey = on_card_1(EVE, memory_mib=8000)
    survey = worlds.merged(survey, {"processes": told(EVE, worlds.process(4712))})
    survey["cards"]["nvidia"][1].update(memory_used_mib=20000, holders=[4711, 4712])
    strangers = [item["what"] for item in of_gpus(survey) if item["id"] == "PF-STRANGER"]
    assert strangers[0] == "pid 4711 of user eve (python train.py) uses 8000 MiB"
    assert strangers[1].startswith("20000 MiB of 49140 MiB are in use, 8000 of it by processes that are known")
    assert strangers[1].endswith("These have the card open: pid 4712 of user eve (python train.py)")
    assert len(strangers) == 2


# In a container the tool prints numbers of the machine outside, which may be those of somebody else here.
INSIDE = {"platform": {"container": "docker"}}


def about_cards(items):
    return [item for item in items if item["where"].startswith("box:card")]


def test_in_a_container_a_number_that_the_tool_prints_is_nobody_here():
    (item,) = about_cards(of_gpus(worlds.merged(on_card_1(EVE), INSIDE)))
    assert item["id"] == "PF-MEMORY-HELD"
    assert "; the tool still names pid 4711. Its owner may be there and not to be seen: " in item["what"]
    assert "eve" not in item["what"]
    assert "0 of it by processes that are known" in item["what"]


def test_in_a_container_who_has_the_cards_file_open_is_the_one_that_the_tool_names():
    survey = worlds.merged(on_card_1(EVE), INSIDE)
    survey["cards"]["nvidia"][1]["holders"] = [4711]
    assert [(item["id"], item["what"]) for item in about_cards(of_gpus(survey))] == [
        ("PF-STRANGER", "pid 4711 of user eve (python train.py) uses 30000 MiB")
    ]


@pytest.mark.parametrize("container", ["", "docker"])
def test_in_a_container_a_number_of_ours_is_not_ours_by_that(container):
    # The service runs on card 0; the other one is to be started on card 1, where the tool prints a number that is ours here.
    other = worlds.gpu_service(name="bge-m3", cards=["1"], topology=ONE_RANK, listen={"base_port": 9000})
    survey = on_card_1(worlds.process(500, user="ops"))
    survey["platform"]["container"] = container
    survey["services"] = worlds.kept(ON_CARD_0, seen=worlds.nvidia(), pids=[500])["services"]
    assert ids(about_cards(found(survey, ON_CARD_0, other))) == (["PF-MEMORY-HELD"] if container else [])
    # nor when that service is to be restarted on both cards
    survey["services"] = worlds.kept(ON_BOTH, seen=worlds.nvidia(), pids=[500])["services"]
    changed = worlds.merged(ON_BOTH, {"engine": {"max_model_len": 2048}})
    assert ids(about_cards(found(survey, changed, restart=True))) == (["PF-MEMORY-HELD"] if container else [])


def test_in_a_container_a_number_makes_no_zombie_that_holds_something():
    survey = worlds.merged(on_card_1(ENDED, zombies=[372858]), INSIDE)
    assert ids(of_gpus(survey)) == ["PF-MEMORY-HELD", "PF-PLATFORM", "PF-ZOMBIE"]
    survey["cards"]["nvidia"][1]["holders"] = [372858]
    assert ids(of_gpus(survey))[0] == "PF-ZOMBIE-HOLDS"


def test_in_a_container_a_number_makes_no_process_that_hangs_on_a_card():
    row = [{"pid": 77, "name": "python", "memory_mib": 10}]
    survey = worlds.merged(card(processes=row), {"processes": told(HUNG), "stuck": [77], **INSIDE})
    assert "PF-STUCK" not in ids(of_gpus(survey))


def test_the_table_of_cards_gives_nobody_here_a_number_from_outside_of_the_container():
    plan = planner.plan(worlds.intent(ON_BOTH), worlds.merged(on_card_1(EVE), INSIDE))
    assert "eve" not in text.plan(plan)


BESIDE = worlds.gpu_service(name="bge-m3", cards=["1"], topology=ONE_RANK, listen={"base_port": 9000})


def all_cards_open(used):
    """Our service runs on card 0 and has the files of both cards open; the tool names nobody, as in a container."""
    survey = worlds.kept(ON_CARD_0, seen=worlds.nvidia(), pids=[500])
    for entry in survey["cards"]["nvidia"]:
        entry.update(holders=[500], memory_used_mib=30004 if entry["index"] == 0 else used)
    return worlds.merged(survey, {"processes": told(worlds.process(500, user="ops"))})


def test_a_service_of_ours_on_another_card_explains_no_memory():
    assert found(all_cards_open(4), ON_CARD_0, BESIDE) == []
    assert ids(found(all_cards_open(30004), ON_CARD_0, BESIDE)) == ["PF-MEMORY-HELD"]


def test_that_nobody_living_holds_memory_is_not_said_of_a_card_that_a_service_of_ours_has_open():
    # What follows it is the advice to reset the card, under that service.
    (item,) = found(all_cards_open(30004), ON_CARD_0, BESIDE)
    assert "No living process" not in item["what"]


@pytest.mark.parametrize(("named", "holds"), [(True, False), (True, True), (False, True)])
def test_a_service_that_the_inventory_does_not_name_does_not_hide_that_a_card_is_full(named, holds):
    # It goes on while the new engine starts, and that one fails for lack of memory.
    process = worlds.process(500, user="ops")
    survey = on_card_1(process) if named else worlds.merged(card(memory_used_mib=30004), {"processes": told(process)})
    survey["cards"]["nvidia"][1]["holders"] = [500] if holds else []
    survey["services"] = {"old-one": {"instances": [], "leftovers": [], "suspects": [], "accepted": False, "pids": [500]}}
    assert [item["id"] for item in of_gpus(survey) if item["severity"] == "refuse"] != []


DRAWS = worlds.process(8, comm="Xorg", user="root", command="/usr/lib/xorg/Xorg")


def drawn(used, holders=(8,)):
    """A display on card 1 of which the tool does not say how much it takes."""
    rows = [{"pid": 8, "name": "/usr/lib/xorg/Xorg", "memory_mib": None}]
    return worlds.merged(card(processes=rows, holders=[*holders], memory_used_mib=used), {"processes": told(DRAWS)})


def test_a_display_whose_memory_is_not_known_takes_little():
    assert of_gpus(drawn(64 + 128)) == []


def test_a_full_card_with_a_display_on_it_is_told_of_and_the_display_may_be_the_reason():
    (item,) = of_gpus(drawn(30004))
    assert (item["id"], item["severity"]) == ("PF-MEMORY-HELD", "refuse")
    assert item["what"].endswith(
        ". Its owner may be there and not to be seen: who only looks, or works on other cards, can hold memory, too: pid 8 of "
        "user root (/usr/lib/xorg/Xorg)"
    )


def test_that_nobody_living_holds_memory_is_not_said_where_the_tool_names_somebody_without_an_amount():
    (item,) = of_gpus(drawn(30004, holders=()))
    assert "No living process" not in item["what"]


@pytest.mark.parametrize(
    ("baseline", "used", "held"),
    [
        ({}, 64 + 128, False),
        ({}, 64 + 129, True),
        ({UUID_1: RESTING}, 400 + 128, False),
        ({UUID_1: RESTING}, 400 + 129, True),
        ({UUID_1: RESTING}, 4, False),
        ({UUID_1: {**RESTING, "memory_mib": None}}, 64 + 129, True),
        ({worlds.card(0)["uuid"]: {**RESTING, "index": 0}}, 64 + 129, True),
    ],
)
def test_memory_is_missed_beyond_a_tolerance_over_what_an_idle_card_holds(baseline, used, held):
    survey = worlds.merged(card(memory_used_mib=used), {"baseline": baseline})
    assert ids(of_gpus(survey)) == (["PF-MEMORY-HELD"] if held else [])


def test_the_baseline_of_a_card_without_a_uuid_is_known_by_its_address():
    survey = worlds.merged(card(uuid="", memory_used_mib=500), {"baseline": {"0000:02:00.0": RESTING}})
    assert of_gpus(survey) == []


def test_what_living_processes_use_is_not_missed():
    survey = on_card_1(EVE, memory_mib=8000)
    survey["cards"]["nvidia"][1]["memory_used_mib"] = 8000 + 64 + 128
    assert ids(of_gpus(survey)) == ["PF-STRANGER"]
    survey["cards"]["nvidia"][1]["memory_used_mib"] += 1
    assert ids(of_gpus(survey)) == ["PF-STRANGER", "PF-MEMORY-HELD"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"not_readable": ["open files of 9 processes of 2 other users", "the shell's settings in /root/.bashrc"]},
            "open files of 9 processes of 2 other users",
        ),
        ({"platform": {"container": "docker"}}, "processes outside of this container"),
        (
            {
                "platform": {"container": "docker"},
                "not_readable": ["processes outside of this container: it has process numbers of its own"],
            },
            "processes outside of this container: it has process numbers of its own",
        ),
        ({"accelerators": {"nvidia": {"process_list": "partial"}}}, "the tool's list of processes is partial"),
    ],
)
def test_why_a_holder_may_not_be_seen_is_said(changes, reason):
    what = about(of_gpus(worlds.merged(card(memory_used_mib=30004), changes)), "PF-MEMORY-HELD")
    assert what.endswith(f". Its owner may be there and not to be seen: {reason}")
    assert "No living process" not in what


def test_who_has_the_file_of_all_dcus_open_may_be_the_one_who_holds_memory():
    survey = worlds.hygon(*(worlds.dcu(index, memory_used_mib=30000 if index == 3 else 2) for index in range(8)))
    survey["accelerators"]["hygon"]["shared_holders"] = [4711]
    survey["processes"] = told(EVE)
    what = about(found(survey, worlds.dcu_service()), "PF-MEMORY-HELD")
    assert what.endswith("has the common device file open: pid 4711 of user eve (python train.py)")


def test_a_process_of_which_the_card_is_not_known_is_named():
    unplaced = [{"pid": 4711, "name": "python", "memory_mib": 100}, {"pid": 500, "name": "python", "memory_mib": 100}]
    survey = worlds.kept(ON_BOTH, seen=worlds.nvidia(), pids=[500])
    survey["accelerators"]["nvidia"].update(process_list="partial", unplaced_processes=unplaced)
    survey["processes"] = told(EVE, worlds.process(500, user="ops"))
    assert about(found(survey, ON_BOTH), "PF-CARD-USERS-UNKNOWN") == (
        "who uses the cards is not known whole: the tool's list of processes is partial; on some card: pid 4711 of user eve "
        "(python train.py)"
    )


@pytest.mark.parametrize("busy", [(), (2,), (2, 3)])
def test_cards_that_nobody_uses_are_offered_instead(busy):
    rows = [{"pid": 4711, "name": "python", "memory_mib": 9000}]
    used = {"processes": rows, "memory_used_mib": 9004}
    cards = [worlds.card(index, **(used if index == 0 or index in busy else {})) for index in range(4)]
    survey = worlds.nvidia(*cards, processes=told(EVE), accelerators={"nvidia": {"process_list": "listed"}})
    (item,) = [item for item in found(survey, ON_BOTH) if item["id"] == "PF-STRANGER"]
    free = [str(index) for index in (2, 3) if index not in busy]
    other = f"another card (idle: {', '.join(free)})" if free else "another card"
    assert item["do"] == f"ask that user, or take {other}; the process is left alone"


BYSTANDERS = [(backend, name) for backend in ("nvidia", "hygon", "amd") for name in tables.backend(backend)["bystanders"]]


@pytest.mark.parametrize(("backend", "name"), BYSTANDERS)
def test_who_only_looks_at_cards_or_draws_a_picture_is_never_reported_as_a_holder(backend, name):
    assert name == name[:15], "the kernel cuts names to 15 characters"
    title = "K100_AI" if backend == "hygon" else "NVIDIA GeForce RTX 4090"
    idle = worlds.card(0, holders=[7], name=title)
    survey = worlds.nvidia(idle, worlds.card(1, name=title), processes=told(worlds.process(7, comm=name, user="root")))
    if backend != "nvidia":
        survey["cards"][backend] = survey["cards"].pop("nvidia")
        survey["accelerators"][backend] = survey["accelerators"].pop("nvidia")
    assert found(survey, worlds.gpu_service(backend=backend)) == []


@pytest.mark.parametrize("name", ["nvtop", "Xorg"])
def test_one_of_them_that_takes_a_cards_memory_is_reported_all_the_same(name):
    # The name proves nothing; and a monitor has kept 24 GB of a card until it was ended (see backends.yml).
    survey = on_card_1(worlds.process(4711, comm=name, command=name), memory_mib=24000)
    (item,) = [item for item in of_gpus(survey) if item["severity"] == "refuse"]
    assert "4711" in item["what"]


@pytest.mark.parametrize("name", ["Xorg", "gnome-shell", "Xwayland"])
@pytest.mark.parametrize(("takes", "wanted"), [(150, []), (512, []), (513, ["PF-STRANGER"])])
def test_a_display_that_the_tool_names_is_no_stranger_unless_it_takes_much(name, takes, wanted):
    # nvidia-smi -q -x lists what draws on a card beside what computes there.
    survey = on_card_1(worlds.process(2034, comm=name, user="root", command=f"/usr/lib/{name}"), memory_mib=takes)
    assert ids(of_gpus(survey)) == wanted


@pytest.mark.parametrize(
    ("state", "process_list", "ids_wanted"),
    [
        ("ok", "none", []),
        ("ok", "listed", []),
        ("ok", "partial", ["PF-CARD-USERS-UNKNOWN"]),
        ("ok", "unknown", ["PF-CARD-USERS-UNKNOWN"]),
        ("failed", "unknown", ["PF-TOOL-OUTPUT", "PF-CARD-USERS-UNKNOWN"]),
        ("unreadable", "unknown", ["PF-TOOL-OUTPUT", "PF-CARD-USERS-UNKNOWN"]),
        ("hangs", "unknown", ["PF-TOOL-HANGS"]),
        ("missing", "unknown", ["PF-TOOL-MISSING"]),
    ],
)
def test_a_list_of_processes_that_is_not_whole_is_said_once_and_not_beside_its_cause(state, process_list, ids_wanted):
    survey = seen(process_list=process_list, tool={"state": state, "path": "/usr/bin/nvidia-smi"})
    assert ids(of_gpus(survey)) == ids_wanted
    assert ids(found(survey)) == ids_wanted


def test_a_list_of_processes_that_nobody_needs_may_be_unknown():
    assert found(seen(process_list="unknown"), ON_CPU) == []
    running = {**seen(process_list="unknown"), "services": worlds.kept(ON_BOTH, seen=worlds.nvidia())["services"]}
    assert ids(found(running, ON_BOTH)) == ["PF-CARD-USERS-UNKNOWN"]


# -- tools and drivers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loaded", "library", "on_disk", "answers", "wanted"),
    [
        ("580.95.05", "580.95.05", "580.95.05", True, []),
        ("580.95.05", "580.95.05", "580.95.05", False, []),
        ("580.178.04", "580.178", "580.178.04", False, []),
        ("580.178", "580.178.04", "580.178.04", False, []),
        ("580.178.04", "580.178.05", "", False, ["PF-DRIVER-MISMATCH"]),
        ("580.178.04", "580.17", "", False, ["PF-DRIVER-MISMATCH"]),
        # A tool that answers has found its library: the one that was seen on disk is another one.
        ("580.178.04", "580.178.05", "", True, []),
        ("580.178.04", "580.178.05", "580.178.05", True, ["PF-DRIVER-PENDING"]),
        ("580.178.04", "", "", False, []),
        ("", "580.178.04", "580.178.04", True, []),
        ("", "", "", True, []),
        ("580.95.05", "580.95.05", "580.178.04", True, ["PF-DRIVER-PENDING"]),
        ("580.95.05", "580.178.04", "580.178.04", False, ["PF-DRIVER-MISMATCH"]),
        ("6.2.26-V1.5.0", "", "6.2.26-V1.5.0", True, []),
        ("6.2.26-V1.5.0", "", "6.3.8-V1.9.2", True, ["PF-DRIVER-PENDING"]),
        ("580", "580", "580", False, []),
        ("580", "570", "", False, ["PF-DRIVER-MISMATCH"]),
    ],
)
def test_versions_are_compared_as_far_as_both_are_printed(loaded, library, on_disk, answers, wanted):
    survey = seen(
        driver={"loaded": loaded, "library": library, "on_disk": on_disk}, tool={"state": "ok" if answers else "failed"}
    )
    assert [id for id in ids(of_gpus(survey)) if id.startswith("PF-DRIVER")] == wanted


@pytest.mark.parametrize(
    ("errors", "driver", "what"),
    [
        (["version_mismatch"], {"loaded": "", "library": ""}, "the kernel runs an unknown version, the library is another one"),
        (["version_mismatch"], {"loaded": "580.95.05", "library": ""}, "the kernel runs 580.95.05, the library is another one"),
    ],
)
def test_a_mismatch_that_the_tool_reports_counts_without_versions(errors, driver, what):
    survey = seen(errors=[kind(name) for name in errors], driver=driver, tool={"state": "failed", "said": "mismatch"})
    assert [(item["id"], item["what"]) for item in of_gpus(survey)] == [("PF-DRIVER-MISMATCH", what)]


def test_a_driver_that_is_not_loaded_is_not_reported_as_a_broken_tool_as_well():
    survey = seen(
        tool={"state": "failed", "said": "NVIDIA-SMI has failed"},
        errors=[kind("driver_not_loaded")],
        driver={"loaded": "", "library": "580.95.05", "on_disk": "580.178.04"},
        process_list="none",
    )
    assert ids(of_gpus(survey)) == ["PF-DRIVER-NOT-LOADED"]


def test_cards_without_any_driver_say_both_what_is_missing():
    survey = seen(tool={"path": "", "state": "missing"}, driver={"loaded": "", "library": "", "on_disk": ""})
    for function in survey["accelerators"]["nvidia"]["on_bus"]:
        function["driver"] = "nouveau"
    assert ids(of_gpus(survey)) == ["PF-TOOL-MISSING", "PF-DRIVER-NOT-LOADED"]


def test_a_driver_of_the_kernel_itself_that_has_no_version_counts_as_loaded():
    # amdgpu of the kernel has no /sys/module/amdgpu/version; the bus says which driver a card has.
    cards = [worlds.card(0, uuid="0x1", name="AMD Instinct MI100")]
    amd = worlds.nvidia(*cards)["accelerators"]["nvidia"]
    amd["on_bus"][0].update(vendor="1002", driver="amdgpu")
    amd.update(tool={"path": "", "state": "missing", "seconds": 0.0, "said": ""}, driver=dict.fromkeys(amd["driver"], ""))
    survey = worlds.survey(cards={"amd": cards}, accelerators={"amd": amd})
    assert ids(found(survey, worlds.gpu_service(backend="amd", cards=["0"], topology=ONE_RANK))) == ["PF-TOOL-MISSING"]


SICK = {
    "no tool": seen(tool={"path": "", "state": "missing"}, driver={"loaded": "", "library": "", "on_disk": ""}),
    "a tool that hangs": seen(tool={"state": "hangs", "seconds": 20.0}),
    "a tool that fails": seen(tool={"state": "failed", "said": "?"}),
    "no driver": seen(tool={"state": "failed"}, errors=[kind("driver_not_loaded")], driver={"loaded": ""}),
    "another library": seen(tool={"state": "failed"}, errors=[kind("version_mismatch")]),
    "a lost card without a number": card(index=None, health="lost"),
    "a card that nothing is known of": card(index=None, health="unknown"),
}


@pytest.mark.parametrize("survey", SICK.values(), ids=SICK)
def test_cards_of_a_kind_that_no_service_wants_refuse_nothing(survey):
    # A laptop with a card and no driver for it serves on its CPU.
    assert [item["id"] for item in found(survey, ON_CPU) if item["severity"] == "refuse"] == []


@pytest.mark.parametrize("survey", [*SICK.values(), card(health="error", mig=True, memory_used_mib=30000)], ids=[*SICK, "a card"])
def test_what_is_wrong_with_one_kind_of_cards_is_only_noted_for_a_service_on_another(survey):
    noted_only = found(worlds.with_dcus(survey), worlds.dcu_service())
    assert set(ids(noted_only)) <= {"PF-CARD-OTHER"}
    assert found(worlds.with_dcus(worlds.nvidia()), worlds.dcu_service()) == []


def test_files_and_lines_of_the_kernel_about_another_kind_of_cards_are_no_finding():
    survey = card(device_files=[worlds.device_file("/dev/nvidia1", state="denied")])
    survey["kernel_log"]["events"] = [event("about an NVIDIA card")]
    assert found(worlds.with_dcus(survey), worlds.dcu_service()) == []


@pytest.mark.parametrize("survey", SICK.values(), ids=SICK)
def test_without_services_all_that_is_wrong_with_the_cards_is_said(survey):
    wrong = found(survey)
    assert {item["severity"] for item in wrong} & {"refuse", "warn"}
    assert set(ids(wrong)) <= set(ids(of_gpus(survey)))


def test_the_trace_of_a_driver_without_cards_is_nothing_where_nobody_wants_them():
    survey = seen(on_bus=[], tool={"path": "", "state": "missing"}, driver={"loaded": ""})
    survey["cards"]["nvidia"] = []
    assert found(survey, ON_CPU) == []


def test_a_host_without_a_trace_of_the_wanted_cards_says_just_that():
    assert ids(found(worlds.survey(), ON_BOTH)) == ["PL-BACKEND"]


@pytest.mark.parametrize("wish", [(), (ON_CPU,)], ids=["no service", "a service on the CPU"])
def test_the_graphics_unit_of_a_cpu_needs_no_tool(wish):
    assert found(worlds.with_graphics(worlds.survey()), *wish) == []


@pytest.mark.parametrize("wish", [(), (ON_BOTH,)], ids=["no service", "a service on the other cards"])
@pytest.mark.parametrize("state", ["denied", "missing"])
def test_the_graphics_unit_of_a_cpu_is_no_card(wish, state):
    survey = worlds.with_graphics(worlds.nvidia(), device_files=[worlds.device_file("/dev/dri/renderD128", state=state)])
    assert found(survey, *wish, cards_expected={"count": 2, "name": "RTX 4090"}) == []
    plan = planner.plan({**worlds.intent(), "services": list(wish)}, survey)
    assert [row["backend"] for row in plan["cards"]] == ["nvidia", "nvidia"]
    assert text.card_summary(plan["cards"]) == "2 x NVIDIA GeForce RTX 4090"
    (count,) = found(survey, *wish, cards_expected={"count": 3})
    assert count["what"] == "3 card(s) expected, 2 answer and 2 are on the bus"


def test_a_service_that_wants_the_cards_of_amd_is_told_that_their_tool_is_missing():
    wrong = found(worlds.with_graphics(worlds.nvidia()), worlds.gpu_service(backend="amd", topology=ONE_RANK))
    assert ids(wrong) == ["PL-CARDS", "PF-TOOL-MISSING"]


def test_a_driver_that_is_loaded_without_a_card_and_a_tool_is_no_graphics_unit():
    survey = seen(on_bus=[], tool={"path": "", "state": "missing"}, driver={"loaded": "580.95.05", "library": ""})
    survey["cards"]["nvidia"] = []
    assert about(found(survey), "PF-TOOL-MISSING") == "the driver of nvidia is loaded, but nvidia-smi was not found"


def test_with_all_switches_off_no_engine_is_started_without_its_cards():
    # The tool does not answer, so it is not known which cards there are; without its list an engine would take any.
    cards = [worlds.card(number, index=None, health="unknown") for number in range(2)]
    survey = worlds.nvidia(*cards, accelerators={"nvidia": {"tool": {"state": "failed", "said": "?"}}})
    off = {id: "off" for id in findings.CATALOGUE if findings.has_switch(id)}
    for service in (ON_BOTH, ON_CARD_0):
        plan = planner.plan(worlds.intent(service, checks=off), survey)
        assert plan["changes"] == []
        assert [(item["id"], item["what"]) for item in plan["findings"]] == [
            ("PL-CARDS", "which cards box has is not known: nvidia-smi does not tell")
        ]


def test_in_the_windows_subsystem_there_is_no_bus_and_no_device_file_to_miss():
    survey = seen(on_bus=[], driver={"loaded": "", "on_disk": "", "library": ""})
    survey["platform"]["wsl"] = True
    survey["accelerators"]["nvidia"]["shared_files"] = [worlds.device_file("/dev/nvidiactl", state="missing")]
    for entry in survey["cards"]["nvidia"]:
        entry.update(device_files=[], minor=None)
    assert ids(of_gpus(survey)) == ["PF-PLATFORM"]
    assert about(of_gpus(survey), "PF-PLATFORM").startswith("this host is WSL: ")


# -- the cards themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("health", ["lost", "needs_reset", "error", "degraded", "unknown"])
def test_a_sick_card_matters_to_whom_wants_it_and_is_noted_otherwise(health):
    survey = card(health=health, memory_used_mib=None)
    (wanted,) = of_gpus(survey)
    (other,) = found(survey, ON_CARD_0)
    (unclaimed,) = found(survey)
    assert wanted == unclaimed
    assert wanted["id"] not in ("PF-CARD-OTHER",)
    assert (other["id"], other["severity"]) == ("PF-CARD-OTHER", "note")
    assert other["what"] == f"no service wants this card; {wanted['what']}"


LOST = card(index=None, uuid="", name="", health="lost", memory_used_mib=None)
AT_ITS_ADDRESS = {"GPU-1": worlds.noted(1, "0000:02:00.0")}


@pytest.mark.parametrize(
    ("survey", "baseline", "cards", "id"),
    [
        # Nothing is known of it: it may be the one that is asked for and is not to be seen.
        (LOST, {}, ["1"], "PF-CARD-LOST"),
        (LOST, {}, ["all"], "PF-CARD-OTHER"),  # one card is enough, and the other one is well
        (LOST, {}, ["0"], "PF-CARD-OTHER"),
        (LOST, {"GPU-0": worlds.noted(0, "0000:01:00.0")}, ["1"], "PF-CARD-LOST"),
        (LOST, {"GPU-1": {"memory_mib": 4, "bus_id": "0000:02:00.0"}}, ["1"], "PF-CARD-LOST"),
        # A deploy has seen it: by its address, or by its uuid where it still tells that.
        (LOST, AT_ITS_ADDRESS, ["0"], "PF-CARD-OTHER"),
        (LOST, AT_ITS_ADDRESS, ["1"], "PF-CARD-LOST"),
        (LOST, AT_ITS_ADDRESS, ["all"], "PF-CARD-OTHER"),
        (LOST, {"GPU-1": worlds.noted(4, "0000:02:00.0")}, ["1"], "PF-CARD-OTHER"),
        (card(index=None, bus_id="", health="lost"), {UUID_1: worlds.noted(4, "0000:09:00.0")}, ["1"], "PF-CARD-OTHER"),
        (card(index=None, bus_id="", health="lost"), {UUID_1: worlds.noted(1, "0000:09:00.0")}, ["1"], "PF-CARD-LOST"),
        # What is known of it by nothing is not taken for what is written down without an address.
        (card(index=None, uuid="", bus_id="", health="lost"), {"GPU-4": worlds.noted(4, "")}, ["1"], "PF-CARD-LOST"),
    ],
)
def test_a_lost_card_without_a_number_concerns_those_who_ask_for_it_or_for_one_that_is_not_to_be_seen(
    survey, baseline, cards, id
):
    wrong = found(worlds.merged(survey, {"baseline": baseline}), worlds.gpu_service(cards=cards, topology=ONE_RANK))
    (item,) = [item for item in wrong if "it does not answer any more" in item["what"] and item["id"] != "PL-CARDS"]
    assert item["id"] == id


def test_a_lost_card_whose_number_another_has_now_concerns_who_asks_for_that_number():
    cards = [worlds.card(0), worlds.card(1, index=None, uuid="", health="lost"), worlds.card(2, index=1)]
    survey = worlds.nvidia(*cards, baseline=AT_ITS_ADDRESS)
    assert ids(found(survey, worlds.gpu_service(cards=["1"], topology=ONE_RANK))) == ["PF-CARD-LOST"]
    assert ids(found(survey, ON_CARD_0)) == ["PF-CARD-OTHER"]


def test_the_kernels_lines_about_a_lost_card_that_a_service_asks_for_are_shown():
    # They are the best witness, and it is just the card that fell off the bus which has no number any more.
    survey = worlds.merged(LOST, {"kernel_log": {"events": [event("fallen off the bus")]}})
    for service in (ON_BOTH, worlds.gpu_service(cards=["1"], topology=ONE_RANK)):
        assert "PF-CARD-LOG" in ids(found(survey, service))
    assert "PF-CARD-LOG" not in ids(found(survey, ON_CARD_0))


def test_a_card_on_the_bus_that_the_tool_does_not_show_is_named_by_its_address():
    survey = card(index=None, uuid="", name="", health="unknown", memory_used_mib=None, memory_total_mib=None)
    (shown,) = [item for item in of_gpus(survey) if item["where"] == "box:card (0000:02:00.0)"]
    assert shown["id"] == "PF-CARD-UNKNOWN"
    assert "findings about the vendor's tool" not in shown["do"], "the tool answers: there are none"


@pytest.mark.parametrize("state", ["failed", "unreadable", "hangs", "missing"])
def test_that_nothing_is_known_of_a_card_is_not_said_where_its_tool_does_not_answer(state):
    survey = worlds.nvidia(
        *(worlds.card(index, index=None, health="unknown", memory_used_mib=None) for index in range(2)),
        accelerators={"nvidia": {"tool": {"state": state, "path": "" if state == "missing" else "/usr/bin/nvidia-smi"}}},
    )
    for wrong in (of_gpus(survey), found(survey)):
        assert [item["id"] for item in wrong if item["id"].startswith("PF-CARD")] == []


def test_a_tool_of_other_cards_that_does_not_answer_hides_no_card_of_which_nothing_is_known():
    unknown = card(health="unknown", memory_used_mib=None)
    assert ids(of_gpus(unknown)) == ["PF-CARD-UNKNOWN"]
    assert ids(of_gpus(worlds.with_graphics(unknown))) == ["PF-CARD-UNKNOWN"]


@pytest.mark.parametrize(
    ("survey", "count", "what"),
    [
        (worlds.nvidia(), 2, None),
        (worlds.nvidia(), None, None),
        (worlds.nvidia(), 0, "0 card(s) expected, 2 answer and 2 are on the bus"),
        (
            card(health="lost"),
            2,
            "2 card(s) expected, 1 answer and 2 are on the bus (no answer from card 1 (0000:02:00.0))",
        ),
        (
            card(index=None, health="unknown"),
            2,
            "2 card(s) expected, 1 answer and 2 are on the bus (no answer from card (0000:02:00.0))",
        ),
        (card(health="degraded"), 2, None),
        (worlds.survey(), 8, "8 card(s) expected, 0 answer and 0 are on the bus"),
        (worlds.survey(), 0, None),
        (worlds.hygon(), 8, None),
    ],
)
def test_the_expected_number_of_cards_is_that_of_cards_that_answer(survey, count, what):
    wrong = [item["what"] for item in found(survey, cards_expected={"count": count}) if item["id"] == "PF-CARD-COUNT"]
    assert wrong == ([] if what is None else [what])


@pytest.mark.parametrize(
    ("names", "expected", "shown"),
    [
        (["NVIDIA GeForce RTX 4090"] * 2, "RTX 4090", None),
        (["NVIDIA GeForce RTX 4090"] * 2, "rtx 4090", None),
        (["NVIDIA GeForce RTX 4090"] * 2, "", None),
        (["NVIDIA GeForce RTX 4090", "Tesla T4"], "RTX 4090", "1: Tesla T4"),
        (["", "Tesla T4"], "RTX 4090", "1: Tesla T4"),
        (["", "NVIDIA GeForce RTX 4090"], "RTX 4090", None),  # that nothing is known of a card is another finding
    ],
)
def test_every_card_that_answers_must_have_the_expected_name(names, expected, shown):
    survey = worlds.nvidia(*(worlds.card(index, name=name) for index, name in enumerate(names)))
    wrong = [item["what"] for item in found(survey, cards_expected={"name": expected})]
    assert wrong == ([] if shown is None else [f"cards whose name holds {expected!r} expected; found {shown}"])


def noted(*indexes):
    """A baseline in which the cards had these numbers."""
    cards = [worlds.card(here) for here in range(len(indexes))]
    return {entry["uuid"]: worlds.noted(before, entry["bus_id"]) for entry, before in zip(cards, indexes, strict=True)}


@pytest.mark.parametrize(
    ("baseline", "survey", "moved"),
    [
        (noted(0, 1), worlds.nvidia(), False),
        (noted(1, 0), worlds.nvidia(), True),
        (noted(3), worlds.nvidia(), True),
        ({}, worlds.nvidia(), False),
        ({"GPU-of-a-card-that-was-taken-out": {"memory_mib": 4, "index": 0}}, worlds.nvidia(), False),
        ({UUID_1: {"memory_mib": 4}}, worlds.nvidia(), False),
        (noted(0, 0), card(index=None, health="lost"), False),
        ({"0000:02:00.0": {"memory_mib": 4, "index": 0}}, card(uuid=""), True),
    ],
)
def test_other_numbers_than_at_the_last_deploy_are_refused(baseline, survey, moved):
    wrong = found(worlds.merged(survey, {"baseline": baseline}), ON_CARD_0)
    assert ("PF-CARD-ORDER" in ids(wrong)) is moved


def test_an_order_that_was_confirmed_once_is_not_refused_again():
    # What the finding tells the admin to do must work, also while a card is in use.
    survey = worlds.merged(on_card_1(EVE), {"baseline": noted(1, 0)})
    allowed = planner.plan(worlds.intent(ON_CARD_0, checks={"PF-CARD-ORDER": "note"}), survey)
    assert allowed["changes"] == [ON_CARD_0["name"]]
    again = found({**survey, "baseline": allowed["baseline"]}, ON_CARD_0)
    assert "PF-CARD-ORDER" not in ids(again)


FOUR = [worlds.card(index) for index in range(4)]


@pytest.mark.parametrize(
    ("cards", "id"),
    [
        (["0"], "PF-CARD-OTHER"),
        (["0", "1"], "PF-CARD-OTHER"),
        (["0", "2"], "PF-CARD-ORDER"),
        (["3"], "PF-CARD-ORDER"),
        (["all"], "PF-CARD-OTHER"),  # takes 0, or 0 and 1
    ],
)
def test_other_numbers_refuse_those_services_that_have_one_of_them(cards, id):
    # 2 and 3 have changed places
    survey = worlds.nvidia(*FOUR, baseline=noted(0, 1, 3, 2))
    service = worlds.gpu_service(cards=cards, topology={"tensor_parallel_size": min(len(cards), 2)})
    (item,) = found(survey, service)
    assert (item["id"], item["where"]) == (id, "box:nvidia")
    assert item["what"].startswith("the numbers of the cards are not those of the last deploy: 3 is now 2 (GPU-00000002-")
    assert ids(found(survey)) == ["PF-CARD-ORDER"]


def test_other_numbers_refuse_also_who_asks_for_one_that_no_card_has_any_more():
    # Card 1 is gone, and the last one has moved up: whoever is told to name a card that is there would take another one.
    survey = worlds.nvidia(worlds.card(0), worlds.card(2, index=1), baseline=noted(0, 1, 2))
    wrong = found(survey, worlds.gpu_service(cards=["2"], topology=ONE_RANK))
    assert "PF-CARD-ORDER" in ids(wrong)


def test_other_numbers_of_another_kind_of_cards_are_only_noted():
    survey = worlds.with_dcus(worlds.nvidia(baseline=noted(1, 0)))
    assert ids(found(survey, worlds.dcu_service())) == ["PF-CARD-OTHER"]


GONE_CARD = {"GPU-gone": worlds.noted(2, "0000:41:00.0")}
# as people write them (docs/checks.md)
GONE_BY_HAND = {"GPU-gone": {"memory_mib": 4, "index": 2, "bus_id": "0000:41:00.0"}}


@pytest.mark.parametrize(
    ("survey", "baseline", "gone"),
    [
        (worlds.nvidia(), GONE_CARD, True),
        (worlds.nvidia(), {}, False),
        # another card in the same slot was put there on purpose
        (worlds.nvidia(), {"GPU-old": worlds.noted(1, "0000:02:00.0")}, False),
        (worlds.nvidia(), GONE_BY_HAND, True),
        (worlds.nvidia(), {"GPU-old": {"memory_mib": 4}}, True),
        (worlds.nvidia(), {"0000:41:00.0": worlds.noted(1, "0000:41:00.0")}, True),
        # it is there, but does not say its uuid any more
        (card(index=None, uuid="", health="lost"), {UUID_1: worlds.noted(1, "0000:02:00.0")}, False),
        # the tool has not answered: nobody knows
        (seen(tool={"state": "hangs"}), GONE_CARD, False),
        (seen(tool={"state": "failed"}), GONE_CARD, False),
        (seen(tool={"state": "hangs"}), GONE_BY_HAND, False),
        (card(uuid=""), {UUID_1: {"memory_mib": 700}}, True),
        (
            worlds.merged(card(uuid=""), {"accelerators": {"nvidia": {"tool": {"state": "failed"}}}}),
            {UUID_1: {"memory_mib": 700}},
            False,
        ),
        # the tool of other cards has not answered, or there is none because nobody needs it
        (worlds.with_graphics(worlds.nvidia()), GONE_CARD, True),
        (worlds.with_graphics(worlds.nvidia()), GONE_BY_HAND, True),
    ],
)
def test_a_card_that_a_deploy_has_seen_and_that_is_not_there_any_more_is_missed(survey, baseline, gone):
    more = worlds.gpu_service(cards=["all"], topology={"tensor_parallel_size": 3})
    assert ("PF-CARD-GONE" in ids(found(worlds.merged(survey, {"baseline": baseline}), more))) is gone


@pytest.mark.parametrize(
    ("cards", "id"),
    [(["all"], "PF-CARD-OTHER"), (["0", "1"], "PF-CARD-OTHER"), (["0"], "PF-CARD-OTHER"), (["1", "2"], "PF-CARD-GONE")],
)
def test_a_card_that_is_gone_refuses_those_services_that_ask_for_it(cards, id):
    (item,) = [i for i in found(worlds.nvidia(baseline=GONE_CARD), worlds.gpu_service(cards=cards)) if i["where"] == "box:cards"]
    assert item["id"] == id
    assert item["what"] == "card 2 (GPU-gone, 0000:41:00.0), which a deploy has seen here, is not there any more"


def test_each_card_that_is_gone_is_a_finding_for_whom_asks_for_it():
    survey = worlds.nvidia(baseline={**GONE_CARD, "GPU-too": worlds.noted(3, "0000:42:00.0"), "GPU-bare": {"memory_mib": 4}})
    wrong = found(survey, worlds.gpu_service(cards=["0", "3"], topology=ONE_RANK))
    assert [(item["id"], item["what"].partition(", which")[0]) for item in wrong if item["where"] == "box:cards"] == [
        ("PF-CARD-GONE", "card 3 (GPU-too, 0000:42:00.0)"),
        ("PF-CARD-OTHER", "card 2 (GPU-gone, 0000:41:00.0)"),
        ("PF-CARD-OTHER", "card ? (GPU-bare, unknown address)"),
    ]


def test_a_card_that_is_gone_concerns_only_services_on_its_kind():
    assert found(worlds.with_dcus(worlds.nvidia(baseline=GONE_CARD)), worlds.dcu_service()) == []


@pytest.mark.parametrize("baseline", [GONE_CARD, GONE_BY_HAND], ids=["by a deploy", "by hand"])
def test_a_service_on_the_cpu_asks_for_no_card_that_is_gone(baseline):
    # Its `all` means cores.
    beside = worlds.service(name="bge-m3", topology=ONE_RANK, listen={"base_port": 9000})
    assert ids(found(worlds.nvidia(baseline=baseline), ON_CARD_0, beside)) == ["PF-CARD-OTHER"]


def test_a_card_that_is_gone_is_missed_where_nothing_is_wanted_of_the_host():
    assert ids(found(worlds.nvidia(baseline=GONE_CARD))) == ["PF-CARD-GONE"]


def test_a_card_that_is_gone_is_missed_by_no_service_on_the_cpu():
    assert [item["id"] for item in found(worlds.survey(baseline=GONE_CARD), ON_CPU) if item["severity"] == "refuse"] == []


def denied(path, group):
    return worlds.device_file(path, state="denied", group=group, mode="0660")


@pytest.mark.parametrize(
    ("files", "what", "do"),
    [
        (
            [denied("/dev/dri/card2", "video"), denied("/dev/dri/renderD129", "render")],
            "user ops may not open /dev/dri/renderD129 (root:render 0660)",  # an engine does not need card2
            "an admin adds ops to the group render; log in again afterwards",
        ),
        (
            [denied("/dev/dri/renderD129", "root")],
            "user ops may not open /dev/dri/renderD129 (root:root 0660)",
            "an admin gives this user the right to read and write them",
        ),
        (
            [denied("/dev/dri/renderD129", "render"), denied("/dev/dri/renderD130", "video")],
            "user ops may not open /dev/dri/renderD129 (root:render 0660), /dev/dri/renderD130 (root:video 0660)",
            "an admin adds ops to the group render and video; log in again afterwards",
        ),
        (
            [{**denied("/dev/dri/renderD129", "video"), "mode": "0600"}],
            "user ops may not open /dev/dri/renderD129 (root:video 0600)",
            "an admin gives this user the right to read and write them",
        ),
    ],
)
def test_files_that_may_not_be_opened_are_named_with_the_groups_that_may(files, what, do):
    survey = worlds.hygon(*(worlds.dcu(index, device_files=files if index == 1 else []) for index in range(8)))
    (item,) = found(survey, worlds.dcu_service())
    assert (item["id"], item["where"], item["what"], item["do"]) == ("PF-DEVICE-DENIED", "box:hygon", what, do)
    assert found(survey, worlds.dcu_service(cards=["0"], topology={"replicas": 1})) == []


def test_files_common_to_all_cards_matter_only_where_a_card_is_wanted():
    survey = seen(shared_files=[denied("/dev/nvidiactl", "video")])
    assert ids(of_gpus(survey)) == ["PF-DEVICE-DENIED"]
    assert found(survey, ON_CPU) == []
    assert ids(found(survey)) == ["PF-DEVICE-DENIED"]


@pytest.mark.parametrize(
    ("backend", "path"), [("nvidia", "/dev/nvidia-uvm"), ("hygon", "/dev/mkfd")], ids=["before the first use", "older drivers"]
)
def test_a_file_that_may_be_missing_on_a_healthy_host_is_no_finding(backend, path):
    survey = worlds.nvidia() if backend == "nvidia" else worlds.hygon()
    for file in survey["accelerators"][backend]["shared_files"]:
        file["state"] = "missing" if file["path"] == path else "ok"
    assert found(survey, ON_BOTH if backend == "nvidia" else worlds.dcu_service()) == []


@pytest.mark.parametrize("mode", ["", "Default", "Exclusive_Process", "Exclusive_Thread"])
def test_a_mode_in_which_one_process_may_compute_is_no_finding(mode):
    assert of_gpus(card(compute_mode=mode)) == []


def test_a_card_that_no_service_wants_may_be_split_up_or_prohibited():
    for changes in ({"mig": True}, {"compute_mode": "Prohibited"}):
        assert ids(found(card(**changes), ON_CARD_0)) == ["PF-CARD-OTHER"]


def test_a_prohibited_card_without_a_number_is_named_by_something_that_the_tool_knows():
    (item,) = [item for item in found(card(index=None, compute_mode="Prohibited")) if item["id"] == "PF-CARD-MODE"]
    assert "None" not in item["do"]


def test_a_split_card_that_is_prohibited_as_well_is_one_finding():
    assert ids(of_gpus(card(mig=True, compute_mode="Prohibited"))) == ["PF-CARD-MODE"]


def test_cards_that_are_missing_do_not_hide_what_is_wrong_with_the_others():
    # Findings of one look come together: an admin who gives the service another card would find the next refusal.
    survey = worlds.nvidia(worlds.card(0, health="needs_reset", processes=[{"pid": 4711, "name": "p", "memory_mib": 9000}]))
    survey = worlds.merged(survey, {"processes": told(EVE)})
    wrong = found(survey, worlds.gpu_service(cards=["0", "1"]))
    assert {"PL-CARDS", "PF-CARD-NEEDS-RESET", "PF-STRANGER"} <= set(ids(wrong))
    assert not [item for item in wrong if "no service wants this card" in item["what"]]


@pytest.mark.parametrize(
    ("count", "shown"),
    [(1, "line 0"), (3, "line 0 | line 1 | line 2"), (5, "line 2 | line 3 | line 4 (and 2 more)")],
)
def test_of_the_kernels_lines_about_cards_the_last_three_are_shown(count, shown):
    events = [event(f"line {number}") for number in range(count)]
    assert about(of_gpus(worlds.nvidia(kernel_log={"events": [*events, events[0]]})), "PF-CARD-LOG") == f"since the boot: {shown}"


@pytest.mark.parametrize("name", ["oom_kill", "hung_task", "segfault"])
def test_a_line_about_the_end_of_a_process_is_none_about_a_card(name):
    assert ids(found(worlds.survey(kernel_log={"events": [event("line", kind=name, bus_id="", xid=None)]}), ON_CPU)) == [
        "PF-HOST-LOG"
    ]


@pytest.mark.parametrize(
    ("xid", "id"), [(13, "PF-HOST-LOG"), (31, "PF-HOST-LOG"), (43, "PF-HOST-LOG"), (45, "PF-HOST-LOG"), (48, "PF-CARD-LOG")]
)
def test_an_xid_that_a_program_causes_is_a_note(xid, id):
    assert ids(of_gpus(worlds.nvidia(kernel_log={"events": [event("line", xid=xid)]}))) == [id]


def test_lines_about_cards_that_no_service_wants_are_left_out():
    survey = worlds.nvidia(kernel_log={"events": [event("about card 1"), event("about some card", bus_id="")]})
    assert about(found(survey, ON_CARD_0), "PF-CARD-LOG") == "since the boot: about some card"
    assert about(of_gpus(survey), "PF-CARD-LOG") == "since the boot: about card 1 | about some card"
    assert about(found(survey), "PF-CARD-LOG") == "since the boot: about card 1 | about some card"


# -- what a stop has handed over to an admin --------------------------------------------------------------------------


def waiting(survey, *services):
    """Severities of what is found about a stop that waits for an admin."""
    found = check_cases.found(survey, *services)
    return [f["severity"] for f in found if f["id"] in ("PF-NEEDS-ADMIN", "PF-ADMIN-DONE")]


@pytest.mark.parametrize(
    ("changes", "left", "severity"),
    [
        ({}, [], "note"),
        ({"memory_used_mib": 132}, [], "note"),  # as noisy as an idle card may be
        ({"memory_used_mib": 133}, [], "refuse"),
        ({}, [77], "refuse"),
        ({"memory_used_mib": None}, [], "refuse"),
        ({"health": "lost"}, [], "refuse"),
    ],
)
def test_it_is_over_when_the_host_shows_it(changes, left, severity):
    survey = worlds.merged(check_cases.card(**changes), check_cases.handed_over(left))
    assert waiting(survey, worlds.gpu_service()) == [severity]


def test_memory_that_somebody_else_uses_now_is_not_what_was_left():
    survey = worlds.merged(check_cases.on_card_1(worlds.process(800)), check_cases.handed_over())
    assert waiting(survey, worlds.gpu_service()) == ["note"]


def test_a_card_that_is_missing_has_not_given_its_memory_back():
    survey = worlds.merged(worlds.nvidia(worlds.card(0)), check_cases.handed_over())
    assert waiting(survey) == ["refuse"]


def test_what_is_planned_on_other_cards_goes_on():
    survey = worlds.merged(check_cases.card(memory_used_mib=30004), check_cases.handed_over())
    one = {"replicas": 1, "tensor_parallel_size": 1}
    assert waiting(survey, worlds.gpu_service(cards=["0"], topology=one)) == []
    assert waiting(survey, worlds.gpu_service(cards=["1"], topology=one)) == ["refuse"]
    assert waiting(survey) == ["refuse"]


def test_without_cards_it_stands_in_the_way_of_its_own_service():
    handed = check_cases.handed_over([77], cards="no list")
    assert waiting(worlds.survey(**handed), worlds.service(name="gone")) == ["refuse"]
    assert waiting(worlds.survey(**handed), worlds.service()) == []


# -- processes that have half ended or hang ---------------------------------------------------------------------------


def test_harmless_zombies_are_one_note_with_the_first_five_and_their_parents():
    parent = worlds.process(50, comm="sh", command="sh run.sh", user="bob")
    dead = [
        worlds.process(pid, ppid=50 if pid < 12 else 1, state="Z", comm="sh", threads=[], command="") for pid in range(10, 17)
    ]
    (item,) = found(worlds.survey(zombies=[*range(10, 17), 99], processes=told(parent, *dead)), ON_CPU)
    assert item["id"] == "PF-ZOMBIE"
    assert item["what"] == (
        "ended, and not yet read by their parents, without anything that a service needs: "
        "10 sh (eve, parent 50 (sh run.sh of bob)); 11 sh (eve, parent 50 (sh run.sh of bob)); "
        "12 sh (eve, parent 1 (systemd)); 13 sh (eve, parent 1 (systemd)); 14 sh (eve, parent 1 (systemd)) and 2 more"
    )


def test_a_dead_process_that_the_tool_names_is_no_stranger():
    for ended in (ENDED, HALF_ENDED):
        assert ids(of_gpus(on_card_1(ended, zombies=[372858]))) == ["PF-ZOMBIE-HOLDS"]


def test_a_zombie_whose_memory_is_not_known_holds_some():
    wrong = of_gpus(on_card_1(ENDED, memory_mib=None, zombies=[372858]))
    assert "it holds an unknown number of MiB on card 1" in about(wrong, "PF-ZOMBIE-HOLDS")


def test_a_zombie_with_a_living_thread_holds_a_card_also_when_the_tool_does_not_name_it():
    ended = {**HALF_ENDED, "comm": "python", "devices": ["/dev/nvidia1"]}
    survey = worlds.merged(card(holders=[372858]), {"zombies": [372858], "processes": told(ended)})
    assert about(of_gpus(survey), "PF-ZOMBIE-HOLDS") == (
        "pid 372858 of user ops ([python]) has ended, but thread 372901 of it lives on (state D), it has /dev/nvidia1 open; "
        "parent 1 (systemd)"
    )


def test_a_zombie_on_a_card_that_no_service_wants_refuses_nothing():
    # whatever its name says
    for ended in (ENDED, HALF_ENDED, {**ENDED, "comm": "python"}):
        for service in (ON_CARD_0, ON_CPU):
            (item,) = found(on_card_1(ended, zombies=[372858]), service)
            assert (item["id"], item["severity"]) == ("PF-ZOMBIE", "note")
            assert "it holds 30000 MiB on card 1" in item["what"]


@pytest.mark.parametrize("service", [ON_CARD_0, ON_CPU], ids=["another card", "the CPU"])
@pytest.mark.parametrize(
    ("ended", "rows"),
    [
        ({**ENDED, "devices": ["/dev/nvidia1"]}, []),
        (ENDED, [{"pid": 372858, "name": "python", "memory_mib": 30000}]),
        ({**HALF_ENDED, "threads": [{"tid": 372901, "state": "D", "comm": "python"}], "stack": ["nvidia_ioctl"]}, []),
    ],
    ids=["a file", "memory", "a thread in the driver"],
)
def test_a_zombie_of_ours_that_holds_something_is_refused_wherever_it_is(ended, rows, service):
    survey = worlds.merged(card(processes=rows, memory_used_mib=30004), {"zombies": [372858], "processes": told(ended)})
    survey["services"] = {"gone-one": {"instances": [], "leftovers": [], "suspects": [], "accepted": False, "pids": [372858]}}
    assert "PF-ZOMBIE-HOLDS" in ids(found(survey, service))
    survey["services"]["gone-one"]["pids"] = []
    assert "PF-ZOMBIE-HOLDS" not in ids(found(survey, service))


@pytest.mark.parametrize("state", ["Z", "S"])
def test_a_zombie_of_ours_that_holds_nothing_is_only_noted(state):
    ended = {**ENDED, "threads": [{"tid": 372901, "state": state, "comm": "python"}]}
    survey = worlds.kept(ON_CARD_0, seen=worlds.nvidia(), pids=[500, 372858])
    assert ids(found(worlds.merged(survey, {"zombies": [372858], "processes": told(ended)}), ON_CARD_0)) == ["PF-ZOMBIE"]


@pytest.mark.parametrize("name", ["VLLM::Worker_TP", "VLLM::EngineCor", "python"])
def test_the_name_of_an_engine_makes_no_zombie_that_holds_something(name):
    ended = {**HALF_ENDED, "comm": name}
    for service in (ON_BOTH, ON_CPU):
        (item,) = found(worlds.nvidia(zombies=[372858], processes=told(ended)), service)
        assert item["id"] == "PF-ZOMBIE"


@pytest.mark.parametrize(
    ("ended", "parent_first"),
    [(ENDED, False), (HALF_ENDED, False), ({**ENDED, "ppid": 50}, True), ({**HALF_ENDED, "ppid": 50}, False)],
)
def test_ending_the_parent_is_advised_only_where_it_helps(ended, parent_first):
    (item,) = of_gpus(on_card_1(ended, zombies=[372858]))
    assert item["do"].startswith("its parent must read its end: ask the owner of 50") is parent_first


def test_a_program_whose_first_thread_has_ended_is_no_zombie_that_holds_something():
    # pthread_exit in main() is allowed: the rest goes on, and any signal ends it.
    alive = [{"tid": 51, "state": "S", "comm": "node"}, {"tid": 50, "state": "Z", "comm": "node"}]
    survey = worlds.survey(zombies=[50], processes=told(worlds.process(50, state="Z", comm="node", threads=alive)))
    assert [item["id"] for item in found(survey, ON_CPU) if item["severity"] == "refuse"] == []


@pytest.mark.parametrize(
    ("process", "survey", "id"),
    [
        (HUNG, card(holders=[77]), "PF-STUCK"),
        (HUNG, card(processes=[{"pid": 77, "name": "python", "memory_mib": 10}]), "PF-STUCK"),
        (worlds.process(77, state="D", stack=None), worlds.nvidia(), "PF-STUCK-ELSEWHERE"),
        # the name of an engine alone says nothing: it may be on other cards, or be a colleague's
        ({**HUNG, "comm": "VLLM::EngineCor"}, worlds.nvidia(), "PF-STUCK-ELSEWHERE"),
        (worlds.process(77, state="D", stack=[], comm="VLLM::EngineCor"), worlds.nvidia(), "PF-STUCK-ELSEWHERE"),
        (worlds.process(77, state="D", stack=None), card(holders=[77]), "PF-STUCK-ELSEWHERE"),
        (worlds.process(77, state="D", stack=["nfs_wait"]), worlds.nvidia(), "PF-STUCK-ELSEWHERE"),
    ],
)
def test_a_stuck_process_near_the_cards_is_refused_and_others_are_warned_of(process, survey, id):
    survey = worlds.merged(survey, {"processes": told(process), "stuck": [77]})
    assert id in ids(of_gpus(survey))
    assert len({"PF-STUCK", "PF-STUCK-ELSEWHERE"} & set(ids(of_gpus(survey)))) == 1


def test_a_stuck_process_of_a_service_of_ours_is_refused():
    survey = worlds.kept(ON_BOTH, seen=worlds.nvidia(), pids=[500])
    survey = worlds.merged(survey, {"processes": told({**HUNG, "pid": 500, "user": "ops"}), "stuck": [500, 9]})
    assert ids(found(survey, ON_BOTH)) == ["PF-STUCK"]


def test_a_process_that_hangs_in_a_cards_driver_is_not_said_to_wait_for_a_disk():
    inside = {**HUNG, "devices": ["/dev/nvidia1", "/dev/nvidiactl"]}
    on_the_other = worlds.merged(card(holders=[77]), {"processes": told(inside), "stuck": [77]})
    tool = {**HUNG, "comm": "nvidia-smi", "devices": ["/dev/nvidiactl"]}
    on_none = worlds.merged(worlds.nvidia(), {"processes": told(tool), "stuck": [77]})
    on_none["accelerators"]["nvidia"]["shared_holders"] = [77]
    for survey in (on_the_other, on_none):
        (item,) = [item for item in found(survey, ON_CARD_0) if item["id"].startswith("PF-STUCK")]
        assert "disk" not in item["do"]


@pytest.mark.parametrize(
    ("leader", "threads"),
    [
        ("S", {78: ("R", ["nvidia_ioctl"])}),
        ("S", {78: ("D", ["os_acquire_rwlock_write"])}),
        # others are at work at the same time
        ("S", {78: ("R", []), 79: ("R", ["uvm_spin_loop"])}),
        ("S", {78: ("D", ["io_schedule"]), 79: ("R", ["uvm_spin_loop"])}),
        ("R", {78: ("D", ["nvidia_ioctl"])}),
        ("R", {78: ("R", ["nvidia_ioctl"])}),
    ],
    ids=str,
)
def test_a_thread_that_hangs_in_the_driver_is_found_whatever_the_others_do(tmp_path, leader, threads):
    fake_proc.add(tmp_path, 77, state=leader)
    tasks = {77: (leader, []), **threads}
    for tid, (state, functions) in tasks.items():
        fake_proc.add(tmp_path / "77" / "task", tid, state=state)
        for folder in [tmp_path / "77" / "task" / str(tid), *([tmp_path / "77"] if tid == 77 else [])]:
            (folder / "stack").write_text("".join(f"[<0>] {name}+0x1/0x2\n" for name in functions))
    table = proc.processes(tmp_path)
    hung = surveyed.stuck(table, lambda: None, watched=[77], proc_root=tmp_path)
    seen_process = surveyed.describe(table[77], opened.handles(table, tmp_path), set(), hung=hung, proc_root=tmp_path)
    assert hung == [77]
    survey = worlds.merged(card(holders=[77]), {"processes": told(seen_process), "stuck": hung})
    assert "PF-STUCK" in ids(of_gpus(survey))


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("qwen3-14b-32k", "PF-NAME-USED"),
        # written otherwise, by people or by tmux, which makes an underscore of a dot
        ("QWEN3-14B-32K", "PF-NAME-USED"),
        ("qwen3_14b.32k", "PF-NAME-USED"),
        ("qwen3-14b-32k-old", "PF-NAME-SIMILAR"),
        ("old_qwen3_14b_32k", "PF-NAME-SIMILAR"),
        ("qwen3-14b", "PF-NAME-SIMILAR"),
        ("my-vllm", "PF-NAME-SIMILAR"),
        ("VLLM", "PF-NAME-SIMILAR"),
        ("bge-m3", ""),
        ("", ""),
        ("1", ""),  # tmux counts sessions that nobody named
        ("k", ""),
    ],
)
def test_a_session_of_the_same_name_is_refused_and_a_similar_one_is_noted(name, id):
    assert ids(of_gpus(worlds.nvidia(sessions=[session(name)]))) == ([id] if id else [])


def test_a_session_of_a_service_of_ours_is_none_of_somebody_else():
    survey = worlds.kept(ON_BOTH, seen=worlds.nvidia(), pids=[500, 600])
    assert found({**survey, "sessions": [session("qwen3-14b-32k")]}, ON_BOTH) == []


def unit(name, **changes):
    return {"name": name, "state": "active", "scope": "user", **changes}


@pytest.mark.parametrize(
    ("name", "id", "what"),
    [
        ("qwen3-14b-32k.service", "PF-NAME-USED", "the name is taken: user unit qwen3-14b-32k.service (active)"),
        ("qwen3-14b-32k.scope", "PF-NAME-USED", "the name is taken: user unit qwen3-14b-32k.scope (active)"),
        (
            "run-qwen3-14b-32k.service",
            "PF-NAME-SIMILAR",
            "similar names are there: user unit run-qwen3-14b-32k.service (active)",
        ),
    ],
)
def test_a_unit_of_the_same_name_is_refused_and_a_similar_one_is_noted(name, id, what):
    assert about(of_gpus(worlds.nvidia(units=[unit(name)])), id) == what


def test_names_are_judged_for_each_service_alone():
    # The survey lists the units that are similar to any wanted service.
    one, two = (
        worlds.service(cards=["0"], topology=ONE_RANK),
        worlds.service(name="bge-m3", cards=["1"], topology=ONE_RANK, listen={"base_port": 9000}),
    )
    survey = worlds.survey(units=[unit("bge-m3.service"), unit("bge-m3-old.service")], sessions=[session("tiny-qwen3-old")])
    assert [(item["id"], item["where"], item["what"].partition(": ")[2]) for item in found(survey, one, two)] == [
        ("PF-NAME-USED", "box:bge-m3", "user unit bge-m3.service (active)"),
        ("PF-NAME-SIMILAR", "box:tiny-qwen3", "screen session tiny-qwen3-old of user eve (pid 600)"),
        ("PF-NAME-SIMILAR", "box:bge-m3", "user unit bge-m3-old.service (active)"),
    ]


# -- the host ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        ({}, None),
        ({"nofile": [256, -1], "nproc": [-1, -1]}, None),
        ({"nofile": [256, 4096], "nproc": [256, 2048]}, None),
        ({"nofile": [1024, 4095]}, "open files at most 4095 (wanted: 4096)"),
        ({"nproc": [0, 0]}, "processes and threads at most 0 (wanted: 2048)"),
        ({"pids_max": 5000, "pids_current": 2952}, None),
        ({"pids_max": 5000, "pids_current": 2953}, "2953 of 5000 processes and threads of the control group are used"),
        ({"pids_max": None, "pids_current": 60000}, None),
        ({"pids_max": 5000, "pids_current": None}, None),
    ],
)
def test_a_limit_counts_by_what_this_user_can_raise_it_to(limits, what):
    wrong = found(worlds.survey(limits=limits), ON_CPU)
    assert [item["what"] for item in wrong] == ([] if what is None else [what])


def test_a_low_limit_whose_use_is_not_known_says_so():
    (item,) = found(worlds.survey(limits={"pids_max": 1000, "pids_current": None}), ON_CPU)
    assert item["id"] == "PF-LIMITS"
    assert "None" not in item["what"]
    assert "1000" in item["what"]


@pytest.mark.parametrize(
    ("available", "limit", "what"),
    [
        (48000, None, None),
        (48000, 48000, None),
        (
            48000,
            4000,
            "about 7348 MiB of main memory are needed for tiny-qwen3, 4000 MiB are free of 64000 (the control group allows 4000)",
        ),
        (4000, 48000, "about 7348 MiB of main memory are needed for tiny-qwen3, 4000 MiB are free of 64000"),
    ],
)
def test_the_memory_of_the_control_group_bounds_that_of_the_host(available, limit, what, figures):
    survey = worlds.survey(host={"memory_available_mib": available}, limits={"cgroup_memory_max_mib": limit})
    assert [item["what"] for item in found(survey, ON_CPU)] == ([] if what is None else [what])


@pytest.mark.parametrize(
    ("segments", "what"),
    [
        ([segment("psm_1", 63.9)], None),
        ([segment("psm_1", 64)], "1 segments of engines (64 MiB, of eve) that no process holds, for example psm_1"),
        ([segment("psm_1", 9000, holders=[12])], None),
        ([segment("psm_1", 9000, holders=None)], None),
        (
            [segment("psm_1", 100), segment("psm_2", 9000, holders=None), segment("psm_3", 9000, holders=[1])],
            "1 segments of engines (100 MiB, of eve) that no process holds, for example psm_1; of 1 more it cannot be told who "
            "holds them",
        ),
        (
            [segment(f"psm_{number}", 30, user="eve" if number % 2 else "bob") for number in range(5)],
            "5 segments of engines (150 MiB, of bob, eve) that no process holds, for example psm_0, psm_1, psm_2",
        ),
    ],
)
def test_stale_segments_are_those_that_surely_nobody_holds(segments, what):
    wrong = found(worlds.survey(shm={"segments": segments}), ON_CPU)
    assert [item["what"] for item in wrong] == ([] if what is None else [what])
    assert ids(wrong) == ([] if what is None else ["PF-SHM-STALE"])


@pytest.mark.parametrize(
    ("proxies", "places"),
    [
        ([], []),
        ([proxy(answers=True, why="")], []),
        ([proxy(answers=None, why="not asked: only a running shell knows the whole value", host="", port=0)], []),
        ([proxy(), proxy(source="/etc/environment"), proxy(variable="https_proxy")], ["box:127.0.0.1:7890"]),
        ([proxy(), proxy(host="proxy.example", port=3128)], ["box:127.0.0.1:7890", "box:proxy.example:3128"]),
    ],
)
def test_proxies_that_do_not_answer_are_told_by_address(proxies, places):
    wrong = found(worlds.survey(environment=shell(proxies=proxies)), ON_CPU)
    assert [(item["id"], item["where"]) for item in wrong] == [("PF-PROXY-DEAD", place) for place in places]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("", "CUDA_VISIBLE_DEVICES is set, but empty: it hides every card (/home/ops/.bashrc)"),
        ("0,1", "CUDA_VISIBLE_DEVICES=0,1 (/home/ops/.bashrc)"),
    ],
)
def test_a_list_of_visible_cards_in_a_shell_is_shown(value, what):
    survey = worlds.nvidia(environment=shell(visibility=[visible(value), visible(value, source="/etc/environment")]))
    assert [item["what"] for item in of_gpus(survey)] == [what, what.replace("/home/ops/.bashrc", "/etc/environment")]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"free_mib": 1024, "free_inodes": 1000}, []),
        ({"free_mib": 1023}, ["PF-DISK-LOW"]),
        ({"free_inodes": 999}, ["PF-DISK-LOW"]),
        ({"free_inodes": None}, []),
        ({"read_only": True}, ["PF-DISK-LOW"]),
        ({"free_mib": 0, "free_inodes": 0, "read_only": True}, ["PF-DISK-LOW"]),
        # of a disk that does not answer (survey/disks.py)
        (
            {"free_mib": None, "total_mib": None, "free_inodes": None, "read_only": None, "problem": "/nfs: Stale file handle"},
            ["PF-DISK-LOW"],
        ),
        ({"free_mib": None, "total_mib": None, "free_inodes": None, "read_only": None}, []),
    ],
)
def test_room_on_a_disk(changes, wanted):
    assert ids(found(worlds.survey(disks=[disk(**changes)]), ON_CPU)) == wanted


@pytest.mark.parametrize("reaps", [True, None])
def test_a_first_process_that_may_read_the_ends_of_orphans_is_no_finding(reaps):
    assert found(worlds.survey(platform={"pid1": "sleep", "pid1_reaps": reaps}), ON_CPU) == []


# -- several at once --------------------------------------------------------------------------------------------------


def test_several_faults_on_several_cards_come_together_refusals_first():
    survey = worlds.nvidia(
        worlds.card(0, health="needs_reset", compute_mode="Prohibited"),
        worlds.card(1, processes=[{"pid": 4711, "name": "python", "memory_mib": 9000}], memory_used_mib=20000),
        worlds.card(2, health="degraded", memory_used_mib=500),
        worlds.card(3, health="error"),
        accelerators={"nvidia": {"process_list": "partial", "driver": {"on_disk": "580.178.04"}}},
        processes=told(EVE, worlds.process(9, state="Z", comm="sh", threads=[])),
        zombies=[9],
        sessions=[session("vllm")],
        disks=[disk(free_mib=1)],
        models={worlds.MODEL: worlds.listing(exists=False)},
        limits={"nofile": [1, 1]},
    )
    wrong = found(survey, worlds.gpu_service(cards=["0", "1", "2"], topology={"replicas": 3, "tensor_parallel_size": 1}))
    assert ids(wrong) == [
        *("PF-MODEL-MISSING", "PF-CARD-NEEDS-RESET", "PF-CARD-MODE", "PF-STRANGER", "PF-MEMORY-HELD", "PF-MEMORY-HELD"),
        *("PF-DISK-LOW", "PF-LIMITS", "PF-DRIVER-PENDING", "PF-CARD-DEGRADED", "PF-CARD-USERS-UNKNOWN"),
        *("PF-CARD-OTHER", "PF-ZOMBIE", "PF-NAME-SIMILAR"),
    ]
    assert [item["where"] for item in wrong if item["id"] == "PF-MEMORY-HELD"] == [
        "box:card 1 (0000:02:00.0)",
        "box:card 2 (0000:03:00.0)",
    ]


def test_the_same_fault_on_many_cards_is_one_finding_a_card():
    survey = worlds.hygon(*(worlds.dcu(index, health="lost") for index in range(8)))
    wrong = found(survey, worlds.dcu_service())
    assert ids(wrong) == ["PF-CARD-LOST"] * 8
    assert len({item["where"] for item in wrong}) == 8
    assert len(findings.grouped(wrong)) == 1


# -- switches ---------------------------------------------------------------------------------------------------------


def with_switches(survey, service=ON_BOTH, /, **switches):
    return planner.plan(worlds.intent(service, checks={key.replace("_", "-"): value for key, value in switches.items()}), survey)


#: A share of the card that leaves room for Eve.
BESIDE_EVE = worlds.merged(ON_BOTH, {"engine": {"max_model_len": 4096, "gpu_memory_utilization": 0.3}})


def test_a_refusal_that_is_switched_off_refuses_no_more_and_is_named():
    survey = on_card_1(EVE)
    assert with_switches(survey)["changes"] == []
    plan = with_switches(survey, BESIDE_EVE, PF_STRANGER="off")
    assert plan["findings"] == []
    assert plan["changes"] == ["qwen3-14b-32k"]
    assert plan["services"][0]["action"] == "start"
    assert plan["switched_off"] == ["PF-STRANGER"]


@pytest.mark.parametrize("severity", ["warn", "note"])
def test_a_refusal_can_be_made_less(severity):
    plan = with_switches(on_card_1(EVE), BESIDE_EVE, PF_STRANGER=severity)
    assert [(item["id"], item["severity"]) for item in plan["findings"]] == [("PF-STRANGER", severity)]
    assert plan["changes"] == ["qwen3-14b-32k"]
    assert plan["switched_off"] == []


def test_memory_that_is_not_free_is_refused_where_its_holder_was_switched_off_and_not_said_twice():
    assert ids(with_switches(on_card_1(EVE))["findings"]) == ["PF-STRANGER"]
    plan = with_switches(on_card_1(EVE), PF_STRANGER="off")
    assert ids(plan["findings"]) == ["PF-MEMORY-FREE"]
    assert plan["changes"] == []


def test_a_note_can_be_made_a_refusal_and_comes_first_then():
    survey = worlds.merged(holding(EVE), {"accelerators": {"nvidia": {"process_list": "partial"}}})
    plan = with_switches(survey, PF_HOLDER="refuse")
    assert [(item["id"], item["severity"]) for item in plan["findings"]] == [
        ("PF-HOLDER", "refuse"),
        ("PF-CARD-USERS-UNKNOWN", "warn"),
    ]
    assert plan["changes"] == []


def test_a_switch_of_something_that_was_not_found_is_not_named():
    plan = with_switches(worlds.nvidia(), PF_STRANGER="off", PF_ZOMBIE="off")
    assert (plan["findings"], plan["switched_off"]) == ([], [])


def test_other_refusals_remain_beside_one_that_is_switched_off():
    survey = worlds.merged(on_card_1(EVE), {"models": {worlds.MODEL: worlds.listing(exists=False)}})
    plan = with_switches(survey, PF_STRANGER="off")
    assert ids(plan["findings"]) == ["PF-MODEL-MISSING"]
    assert plan["changes"] == []


def test_what_has_a_switch_is_about_a_host_and_can_be_gone_on_after():
    switchable = {id for id in findings.CATALOGUE if findings.has_switch(id)}
    assert {id[:2] for id in switchable} == {"PF"}
    assert {id for id in findings.CATALOGUE if id.startswith("PF-")} - switchable == {
        *(
            "PF-UNREACHABLE",
            "PF-PYTHON-OLD",
            "PF-SURVEY-FAILED",
            "PF-HOME",
            "PF-HOME-SHARED",
            "PF-NEEDS-ADMIN",
            "PF-ADMIN-DONE",
            "PF-LOCK-HELD",
            "PF-RESTART-NEEDED",
        ),
    }


# -- whatever a host looks like ---------------------------------------------------------------------------------------

PIDS = [500, 501, 4711, 4712, 99999]
SOME_MIB = st.none() | st.integers(0, 49140)


@st.composite
def cards_of_a_host(draw):
    cards = []
    for number in range(draw(st.integers(0, 4))):
        rows = [
            {"pid": pid, "name": "python", "memory_mib": draw(SOME_MIB)}
            for pid in draw(st.lists(st.sampled_from(PIDS), unique=True, max_size=3))
        ]
        changes = {
            "index": draw(st.sampled_from([number, number, number, None])),
            "uuid": draw(st.sampled_from([worlds.card(number)["uuid"], ""])),
            "bus_id": draw(st.sampled_from([worlds.card(number)["bus_id"], ""])),
            "memory_used_mib": draw(SOME_MIB),
            "utilization_pct": draw(st.sampled_from([None, 0.0, 95.0, 100.0])),
            "health": draw(st.sampled_from(["ok", "ok", "ok", "degraded", "error", "needs_reset", "lost", "unknown"])),
            "compute_mode": draw(st.sampled_from(["", "Default", "Prohibited"])),
            "mig": draw(st.booleans()),
            "device_files": [worlds.device_file("/dev/nvidia0", state=draw(st.sampled_from(["ok", "denied", "missing"])))],
            "processes": rows,
            "holders": draw(st.lists(st.sampled_from(PIDS), unique=True, max_size=3)),
        }
        cards.append(worlds.card(number, **changes))
    return cards


@st.composite
def hosts(draw):
    """A small survey with anything on its cards; pids 500 and 501 are of the service of these tests."""
    here = draw(st.lists(st.sampled_from(PIDS[:4]), unique=True))
    processes = [
        worlds.process(
            pid,
            state=draw(st.sampled_from("SRDZ")),
            ppid=draw(st.sampled_from([1, 4711, 8])),
            comm=draw(st.sampled_from(["python", "VLLM::Worker_TP", "Xorg"])),
            command=draw(st.sampled_from(["", "python train.py"])),
            threads=[{"tid": pid + 1, "state": draw(st.sampled_from("SDZ")), "comm": "python"}],
            stack=draw(st.sampled_from([None, [], ["nvidia_ioctl"]])),
            devices=draw(st.sampled_from([None, [], ["/dev/nvidia0"]])),
        )
        for pid in here
    ]
    survey = worlds.nvidia(
        accelerators={
            "nvidia": {
                "process_list": draw(st.sampled_from(["listed", "none", "partial", "unknown"])),
                "tool": {"state": draw(st.sampled_from(["ok", "ok", "missing", "hangs", "failed", "unreadable"]))},
                "errors": [kind(name) for name in draw(st.lists(st.sampled_from(["version_mismatch", "driver_not_loaded"])))],
                "driver": {"loaded": draw(st.sampled_from(["", "580.95.05", "580.178.04"]))},
                "shared_holders": here,
            }
        },
        processes=told(*processes),
        zombies=[process["pid"] for process in processes if process["state"] == "Z"],
        stuck=draw(st.lists(st.sampled_from(PIDS), unique=True, max_size=2)),
        baseline=draw(st.sampled_from([{}, noted(1, 0), {UUID_1: RESTING}])),
    )
    survey["cards"]["nvidia"] = draw(cards_of_a_host())
    running = draw(st.booleans())
    if running:
        survey["services"] = worlds.kept(ON_BOTH, seen=worlds.nvidia(), pids=[500, 501])["services"]
    return survey


WISHES = st.sampled_from(
    [(), (ON_CPU,), (ON_BOTH,), (ON_CARD_0,), (worlds.gpu_service(cards=["1", "2"]),), (worlds.gpu_service(cards=["0", "9"]),)]
)


@given(survey=hosts(), services=WISHES, restart=st.booleans())
def test_every_host_gets_a_plan_of_whole_findings_that_people_can_read(survey, services, restart):
    plan = planner.plan({**worlds.intent(*services, restart=restart), "services": list(services)}, survey)
    for item in plan["findings"]:
        assert set(item) == {"id", "severity", "where", "what", "do"}
        assert all(isinstance(value, str) and value.strip() for value in item.values())
        assert item["severity"] == findings.CATALOGUE[item["id"]]
    severities = [findings.ORDER[item["severity"]] for item in plan["findings"]]
    assert severities == sorted(severities)
    assert json.loads(json.dumps(plan)) == plan
    assert text.plan(plan).startswith("Plan for box")
    shown = text.report({"box": {**plan, "cards": text.card_summary(plan["cards"]), "services": []}})
    assert all(item["what"] in shown for item in plan["findings"])


@given(survey=hosts(), services=WISHES)
def test_a_process_of_our_own_is_no_stranger(survey, services):
    if not survey["services"]:
        survey["services"] = {"qwen3-14b-32k": {"instances": [], "leftovers": [], "suspects": [], "accepted": False}}
        survey["services"]["qwen3-14b-32k"]["pids"] = [500, 501]
    if not {s["name"] for s in services} & set(survey["services"]):
        return  # what the plan does not know is not stopped by it, and is on the card like anybody else
    strangers = {"PF-STRANGER", "PF-HOLDER", "PF-CARD-IN-USE"}
    for item in found(survey, *services):
        if item["id"] in strangers:
            assert "pid 500 " not in item["what"]
            assert "pid 501 " not in item["what"]


@given(survey=hosts(), services=WISHES.filter(bool))
def test_a_card_that_no_service_wants_refuses_nothing_about_its_users(survey, services):
    plan = planner.plan({**worlds.intent(*services), "services": list(services)}, survey)
    # where cards are missing nothing is planned, but those that were asked for and are there are wanted all the same
    wanted = {card for s in plan["services"] if s["backend"] == "nvidia" for card in s["cards"]}
    about_users = {"PF-STRANGER", "PF-MEMORY-HELD", "PF-HOLDER", "PF-BUSY-WITHOUT-PROCESS"}
    for item in plan["findings"]:
        if item["id"] in about_users:
            assert any(item["where"].startswith(f"box:card {index}") for index in wanted)


@given(survey=hosts(), services=WISHES)
def test_with_every_switch_off_nothing_about_the_host_is_left(survey, services):
    wish = {**worlds.intent(*services), "services": list(services)}
    before = planner.plan(wish, survey)
    off = {id: "off" for id in findings.CATALOGUE if findings.has_switch(id)}
    plan = planner.plan({**wish, "checks": off}, survey)
    assert [item for item in plan["findings"] if item["id"] in off] == []
    assert set(plan["switched_off"]) == {item["id"] for item in before["findings"]} & set(off)
    if not findings.refusals(plan["findings"]):
        assert all(service["action"] in ("start", "keep") for service in plan["services"])
    for service in plan["services"]:
        if service["name"] in plan["changes"]:
            assert all(len(i["cards"]) == service["topology"]["tensor_parallel_size"] for i in service["instances"])


@given(survey=hosts(), services=WISHES)
def test_what_is_written_down_as_idle_is_idle(survey, services):
    plan = planner.plan({**worlds.intent(*services), "services": list(services)}, survey)
    fresh = set(plan["baseline"]) - set(survey["baseline"])
    for entry in survey["cards"]["nvidia"]:
        if (entry["uuid"] or entry["bus_id"]) in fresh:
            assert entry["memory_used_mib"] is not None
            assert 0 <= plan["baseline"][entry["uuid"] or entry["bus_id"]]["memory_mib"] <= 64 + 128
            assert all(survey["processes"][str(row["pid"])]["comm"] == "Xorg" for row in entry["processes"])
            assert entry["health"] == "ok"
