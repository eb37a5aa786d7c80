"""Which cards each instance gets: tables of cases, and what holds on every host."""

from __future__ import annotations

from copy import deepcopy

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from unit import worlds

ONE, TWO = {"replicas": 1, "tensor_parallel_size": 1}, {"replicas": 2, "tensor_parallel_size": 1}
EVE = 4711
RUNTIMES = {worlds.RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": "0.32.0"}}


def gpu(name="a", **changes):
    """A service that takes what it gets; the ports of two services do not touch."""
    base = {"name": name, "cards": ["all"], "topology": ONE, "listen": {"base_port": 8000 + 100 * (ord(name[0]) - ord("a"))}}
    return worlds.gpu_service(**{**base, **changes})


def used_by_eve(index, **changes):
    row = {"pid": EVE, "name": "python", "memory_mib": 9000}
    return worlds.card(index, processes=[row], memory_used_mib=9004, **changes)


def host(*cards, count=4, **changes):
    """Idle cards, those that are given in place of the ones with their numbers."""
    special = {int(card["bus_id"][5:7], 16) - 1: card for card in cards}
    found = [special.get(index) or worlds.card(index) for index in range(count)]
    return worlds.nvidia(*found, processes={str(EVE): worlds.process(EVE)}, **changes)


def noted(count=4):
    """The baseline of such a host."""
    return {worlds.card(i)["uuid"]: worlds.noted(i, worlds.card(i)["bus_id"]) for i in range(count)}


def plan(survey, *services, **wish):
    return planner.plan(worlds.intent(*services, **wish), survey)


def cards(plan):
    """{instance: its cards} of all services; instances without cards are left out."""
    every = [i for s in plan["services"] for i in s["instances"]]
    return {i["name"]: [card for rank in i["cards"] for card in rank] for i in every if i["cards"]}


def ids(plan):
    return [item["id"] for item in plan["findings"] if item["severity"] != "note"]


def actions(plan):
    return {i["name"]: i["action"] for s in plan["services"] for i in s["instances"]}


LOST_1 = worlds.card(1, index=None, health="lost", memory_used_mib=None)


@pytest.mark.parametrize(
    ("survey", "services", "wanted"),
    [
        (host(), [gpu()], {"a/0": [0]}),
        (host(), [gpu(topology=TWO)], {"a/0": [0], "a/1": [1]}),
        (host(used_by_eve(0)), [gpu()], {"a/0": [1]}),
        # only the instance whose card is taken goes elsewhere
        (host(used_by_eve(0)), [gpu(topology=TWO)], {"a/0": [2], "a/1": [1]}),
        (host(worlds.card(0, health="needs_reset")), [gpu(topology=TWO)], {"a/0": [2], "a/1": [1]}),
        (host(worlds.card(0, memory_used_mib=9000)), [gpu()], {"a/0": [1]}),  # memory that nobody holds
        (host(worlds.card(0, mig=True), worlds.card(1, compute_mode="Prohibited")), [gpu()], {"a/0": [2]}),
        (host(worlds.card(0, health="degraded")), [gpu()], {"a/0": [0]}),
        (host(LOST_1, baseline=noted()), [gpu(topology=TWO)], {"a/0": [0], "a/1": [2]}),
        # a number of cards
        (host(), [gpu(card_count=2, topology=TWO)], {"a/0": [0], "a/1": [1]}),
        (host(), [gpu(card_count=3, topology={"tensor_parallel_size": 2, "replicas": 1})], {"a/0": [0, 1]}),
        # what others left
        (host(), [gpu(), gpu("b")], {"a/0": [0], "b/0": [1]}),
        (host(), [gpu(topology=TWO), gpu("b", topology=TWO)], {"a/0": [0], "a/1": [1], "b/0": [2], "b/1": [3]}),
        (host(), [gpu(), gpu("b", cards=["0"])], {"a/0": [1], "b/0": [0]}),
        (host(), [gpu(card_count=1), gpu("b", cards=["1", "0"], topology=TWO)], {"a/0": [2], "b/0": [1], "b/1": [0]}),
        # the trouble of one service moves no other
        (host(used_by_eve(0)), [gpu(), gpu("b")], {"a/0": [2], "b/0": [1]}),
        # stable names, in any form
        (host(), [gpu(cards=[worlds.card(2)["uuid"].lower(), "0000:01:00.0"], topology=TWO)], {"a/0": [2], "a/1": [0]}),
        # named cards are taken as named, whoever is on them
        (host(used_by_eve(0)), [gpu(cards=["0"])], {"a/0": [0]}),
        (host(worlds.card(0, health="needs_reset")), [gpu(cards=["0"])], {"a/0": [0]}),
    ],
)
def test_the_choice(survey, services, wanted):
    assert cards(plan(survey, *services)) == wanted


def test_a_stranger_on_a_named_card_is_refused_and_one_beside_the_chosen_cards_is_not():
    assert ids(plan(host(used_by_eve(0)), gpu(cards=["0"]))) == ["PF-STRANGER"]
    assert ids(plan(host(used_by_eve(0)), gpu())) == []


def test_strangers_on_all_cards_leave_nothing_to_choose_also_when_they_are_switched_to_a_warning():
    busy = host(*(used_by_eve(i) for i in range(4)))
    refused = plan(busy, gpu(), checks={"PF-STRANGER": "warn"})
    assert (cards(refused), refused["changes"]) == ({}, [])
    assert ids(refused) == ["PL-CARDS", "PF-STRANGER"]
    assert "pid 4711 of user eve (python train.py) uses 9000 MiB" in refused["findings"][0]["what"]


LINKS = {"0-1": "SYS", "0-2": "PIX", "0-3": "SYS", "1-2": "SYS", "1-3": "NV4", "2-3": "SYS"}
NODES = [worlds.card(index, numa_node=index % 2) for index in range(4)]
TP2, TWICE_TP2 = {"replicas": 1, "tensor_parallel_size": 2}, {"replicas": 2, "tensor_parallel_size": 2}
BLIND = [worlds.card(index, numa_node=None) for index in range(4)]


@pytest.mark.parametrize(
    ("cards_here", "links", "topology", "wanted", "words"),
    [
        (NODES, LINKS, TP2, {"a/0": [1, 3]}, "are linked by NV4"),
        (NODES, LINKS, TWICE_TP2, {"a/0": [1, 3], "a/1": [0, 2]}, "are linked by NV4, are linked by PIX"),
        (NODES, {}, TWICE_TP2, {"a/0": [0, 2], "a/1": [1, 3]}, "lie on one NUMA node"),
        (NODES, {**LINKS, "1-3": "SYS"}, TP2, {"a/0": [0, 2]}, "are linked by PIX"),
        (NODES, {}, {"replicas": 1, "tensor_parallel_size": 4}, {"a/0": [0, 1, 2, 3]}, "lie on several NUMA nodes"),
        (BLIND, {}, TP2, {"a/0": [0, 1]}, "how these cards are linked is not known: they are taken by their numbers"),
        (BLIND, {"0-1": "PHB", "2-3": "PXB"}, TP2, {"a/0": [2, 3]}, "are linked by PXB"),
    ],
)
def test_an_instance_over_several_cards_gets_close_ones(cards_here, links, topology, wanted, words):
    survey = host(*cards_here, accelerators={"nvidia": {"links": links}})
    found = plan(survey, gpu(topology=topology))
    assert cards(found) == wanted
    assert [line for line in found["services"][0]["advice"] if words in line]


def test_the_furthest_pair_of_an_instance_counts_first():
    # An all-reduce waits for the slowest link: two fast ones beside it are worth nothing.
    links = {f"{a}-{b}": "SYS" for a in range(5) for b in range(a + 1, 5)}
    links.update({"0-1": "NV4", "0-2": "NV4", "2-3": "PHB", "2-4": "PHB", "3-4": "PHB"})
    survey = host(count=5, accelerators={"nvidia": {"links": links}})
    assert cards(plan(survey, gpu(topology={"replicas": 1, "tensor_parallel_size": 3}))) == {"a/0": [2, 3, 4]}


def test_cards_of_a_list_are_not_sorted_by_their_links():
    survey = host(*NODES, accelerators={"nvidia": {"links": LINKS}})
    assert cards(plan(survey, gpu(cards=["3", "0", "1", "2"], topology=TWICE_TP2))) == {"a/0": [3, 0], "a/1": [1, 2]}


def test_sixteen_cards_are_grouped_without_trying_every_set():
    survey = host(*(worlds.card(i, numa_node=i % 2) for i in range(16)), count=16)
    found = cards(plan(survey, gpu(topology={"replicas": 2, "tensor_parallel_size": 8})))
    assert found == {"a/0": list(range(0, 16, 2)), "a/1": list(range(1, 16, 2))}


# -- what runs stays ---------------------------------------------------------------------------------------------------


def running(first, survey, dead=(), **changes):
    """The survey with what `first` has planned running on it."""
    return worlds.merged({**deepcopy(survey), "services": worlds.running(first, dead=dead)}, changes)


def test_an_instance_that_runs_keeps_its_cards_when_a_closer_or_lower_one_becomes_free():
    first = plan(host(used_by_eve(0)), gpu())
    again = plan(running(first, host()), gpu())
    assert (cards(again), actions(again), again["findings"]) == ({"a/0": [1]}, {"a/0": "keep"}, [])


def test_one_that_has_ended_gets_back_what_it_had():
    first = plan(host(used_by_eve(0)), gpu())
    again = plan(running(first, host(), dead=(0,)), gpu())
    assert (cards(again), actions(again)) == ({"a/0": [1]}, {"a/0": "start"})


def test_one_that_has_ended_and_whose_card_is_taken_now_goes_to_another():
    first = plan(host(), gpu(topology=TWO))
    again = plan(running(first, host(used_by_eve(1)), dead=(1,)), gpu(topology=TWO))
    assert (cards(again), actions(again)) == ({"a/0": [0], "a/1": [2]}, {"a/0": "keep", "a/1": "start"})
    assert (
        "instance 1 has card 2 (0000:03:00.0), because of card 1 (0000:02:00.0): pid 4711" in again["services"][0]["advice"][-1]
    )


def test_another_list_moves_only_the_instances_that_must():
    first = plan(host(), gpu(cards=["0", "1"], topology=TWO))
    again = plan(running(first, host()), gpu(cards=["1", "2"], topology=TWO), restart=True)
    assert (cards(again), actions(again)) == ({"a/0": [2], "a/1": [1]}, {"a/0": "restart", "a/1": "keep"})


def test_a_further_instance_disturbs_none_of_those_that_run():
    first = plan(host(), gpu(topology=TWO))
    again = plan(running(first, host()), gpu(topology={**TWO, "replicas": 3}))
    assert (cards(again), actions(again)) == (
        {"a/0": [0], "a/1": [1], "a/2": [2]},
        {"a/0": "keep", "a/1": "keep", "a/2": "start"},
    )
    assert (again["services"][0]["action"], again["changes"], again["findings"]) == ("start", ["a"], [])


def test_a_running_card_is_known_by_its_uuid_and_not_by_its_number():
    first = plan(host(), gpu(cards=[worlds.card(2)["uuid"].lower()]))
    moved = worlds.nvidia(*(worlds.card(old, index=new) for new, old in enumerate([0, 2, 3])))
    again = plan(running(first, moved), gpu(cards=[worlds.card(2)["uuid"].lower()]), restart=True)
    assert cards(again) == {"a/0": [1]}


def test_an_instance_of_an_earlier_version_is_known_by_its_environment():
    first = plan(host(used_by_eve(0)), gpu())
    survey = running(first, host())
    survey["services"]["a"]["instances"][0]["devices"] = []
    assert cards(plan(survey, gpu())) == {"a/0": [1]}


def test_a_second_service_does_not_choose_what_a_running_one_has():
    first = plan(host(used_by_eve(0)), gpu())  # on card 1, where b would be by the inventory alone
    again = plan(running(first, host()), gpu(), gpu("b"))
    assert cards(again) == {"a/0": [1], "b/0": [0]}


# -- dead cards --------------------------------------------------------------------------------------------------------

EIGHT = worlds.dcu_service(cards=["all"])


def dcus(*dead, gone=()):
    return worlds.hygon(
        *(
            worlds.dcu(i, **({"index": None, "health": "lost", "memory_used_mib": None} if i in dead else {}))
            for i in range(8)
            if i not in gone
        ),
        baseline={worlds.dcu(i)["uuid"]: worlds.noted(i, worlds.dcu(i)["bus_id"], backend="hygon") for i in range(8)},
    )


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("how", [{"dead": (3,)}, {"gone": (3,)}], ids=["lost", "gone"])
@pytest.mark.parametrize("alive", [True, False])
def test_a_dead_card_under_eight_instances_costs_one(named, how, alive):
    service = worlds.dcu_service() if named else EIGHT
    first = plan(dcus(), service)
    survey = dcus(*how.get("dead", ()), gone=how.get("gone", ()))
    again = plan(running(first, survey, dead=() if alive else (3,)), service)
    assert [i["action"] for i in again["services"][0]["instances"]] == ["keep"] * 3 + ["refused"] + ["keep"] * 4
    assert [i["cards"] for i in again["services"][0]["instances"]] == [[[i]] if i != 3 else [] for i in range(8)]
    assert again["services"][0]["action"] == "refused"
    assert again["changes"] == []
    told = {item["id"]: item["what"] for item in again["findings"] if item["severity"] == "refuse"}
    assert set(told) == {"PL-CARDS", "PF-CARD-LOST" if "dead" in how else "PF-CARD-GONE"}
    assert "and instance 3 gets none: card 3 (0000:3f:00.0)" in told["PL-CARDS"]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("up", [True, False], ids=["seven run", "nothing runs"])
def test_with_min_replicas_the_plan_goes_on_without_it(named, up):
    service = worlds.merged(worlds.dcu_service() if named else EIGHT, {"topology": {"min_replicas": 7}})
    first = plan(dcus(), service)
    survey = running(first, dcus(3), dead=(3,) if up else tuple(range(8)))
    again = plan(survey, service)
    (found,) = again["services"]
    assert [i["index"] for i in found["instances"]] == [0, 1, 2, 4, 5, 6, 7]
    assert {i["action"] for i in found["instances"]} == {"keep" if up else "start"}
    assert [left["index"] for left in found["left_out"]] == [3]
    assert [(item["id"], item["severity"]) for item in again["findings"]] == [
        ("PL-REPLICAS-FEWER", "warn"),
        ("PF-CARD-OTHER", "note"),
    ]
    assert [i["port"] for i in found["instances"]] == [8000 + i["index"] for i in found["instances"]]


def test_min_replicas_that_cannot_be_reached_are_refused():
    service = worlds.merged(EIGHT, {"topology": {"min_replicas": 7}})
    again = plan(dcus(3, 4), service)
    assert "PL-CARDS" in ids(again)
    assert again["changes"] == []


def test_a_running_instance_that_is_left_out_is_neither_stopped_nor_counted():
    service = worlds.merged(EIGHT, {"topology": {"min_replicas": 7}})
    again = plan(running(plan(dcus(), service), dcus(3)), service, restart=True)
    assert [i["index"] for i in again["services"][0]["instances"]] == [0, 1, 2, 4, 5, 6, 7]
    assert again["services"][0]["action"] == "keep"


@pytest.mark.parametrize("uuids", [False, True])
def test_what_runs_goes_on_while_the_tool_does_not_tell_of_its_cards(uuids):
    first = plan(dcus(), EIGHT)
    if uuids:
        for instance in first["services"][0]["instances"]:
            instance["environment"]["HIP_VISIBLE_DEVICES"] = instance["devices"][0]["uuid"]
    silent = dcus(*range(8))
    silent["accelerators"]["hygon"]["tool"] = {"path": "/opt/hyhal/bin/hy-smi", "state": "hangs", "seconds": 20.0, "said": ""}
    again = plan(running(first, silent), EIGHT)
    assert {i["action"] for i in again["services"][0]["instances"]} == {"keep"}
    assert ids(again) == ["PF-TOOL-HANGS"]
    assert [i["environment"] for i in again["services"][0]["instances"]] == [
        i["environment"] for i in first["services"][0]["instances"]
    ]
    ended = plan(running(first, silent, dead=(3,)), EIGHT)
    assert [i["action"] for i in ended["services"][0]["instances"]] == ["keep"] * 3 + ["refused"] + ["keep"] * 4
    assert ids(ended) == ["PL-CARDS", "PF-TOOL-HANGS"]


def test_a_card_with_two_names_is_given_once():
    wrong = plan(host(), gpu(cards=["0", "0000:01:00.0"], topology=TWO))
    assert ids(wrong) == ["PL-CARDS"]
    assert wrong["findings"][0]["what"] == "card 0 (0000:01:00.0) is named twice, by two of its names"
    assert wrong["changes"] == []


def test_cores_of_a_number_are_what_others_left():
    one = worlds.service(name="a", cards=["0", "1"], topology=ONE)
    two = worlds.service(name="b", card_count=2, topology=TWO, listen={"base_port": 9000})
    assert cards(plan(worlds.survey(), one, two)) == {"a/0": [0, 1], "b/0": [2], "b/1": [3]}
    every = worlds.service(name="c", topology=ONE, listen={"base_port": 9100})
    shared = plan(worlds.survey(), one, two, every)
    assert cards(shared)["c/0"] == [0, 1, 2, 3]
    assert ids(shared) == ["PL-CARDS-SHARED"]


# -- whatever a host looks like ---------------------------------------------------------------------------------------

MANY = settings(max_examples=100)
STATES = ["free", "free", "free", "free", "stranger", "held", "needs_reset", "lost", "gone", "mig"]


@st.composite
def machines(draw, states=STATES):
    """(state of each card, survey): what is on a host that has seen a deploy."""
    count = draw(st.integers(1, 8))
    found = [draw(st.sampled_from(states)) for _ in range(count)]
    links = {}
    if draw(st.booleans()):
        pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
        links = {f"{a}-{b}": draw(st.sampled_from(["NV4", "PIX", "PHB", "NODE", "SYS"])) for a, b in pairs}
    nodes = [draw(st.sampled_from([None, 0, 1])) for _ in range(count)]
    return found, machine(found, nodes, links)


def machine(states, nodes, links):
    made = {
        "stranger": lambda i: used_by_eve(i, numa_node=nodes[i]),
        "held": lambda i: worlds.card(i, memory_used_mib=9000, numa_node=nodes[i]),
        "needs_reset": lambda i: worlds.card(i, health="needs_reset", numa_node=nodes[i]),
        "lost": lambda i: worlds.card(i, index=None, health="lost", memory_used_mib=None, numa_node=nodes[i]),
        "mig": lambda i: worlds.card(i, mig=True, numa_node=nodes[i]),
        "free": lambda i: worlds.card(i, numa_node=nodes[i]),
    }
    here = [made[state](i) for i, state in enumerate(states) if state != "gone"] or [worlds.card(99, numa_node=None)]
    survey = worlds.nvidia(
        *here,
        accelerators={
            "nvidia": {"links": {k: v for k, v in links.items() if all(states[int(i)] != "gone" for i in k.split("-"))}}
        },
        baseline=noted(len(states)),
        processes={str(EVE): worlds.process(EVE)},
    )
    return {**survey, "host": {**survey["host"], "memory_available_mib": 10**7, "shm_free_mib": 10**7}}


@st.composite
def wishes(draw):
    """One to three services."""
    found = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        topology = {"replicas": draw(st.integers(1, 4)), "tensor_parallel_size": draw(st.sampled_from([1, 1, 2, 4]))}
        topology["min_replicas"] = draw(st.integers(0, topology["replicas"]))
        kind = draw(st.sampled_from(["all", "all", "count", "list"]))
        changes = {"topology": topology}
        if kind == "count":
            changes["card_count"] = draw(st.integers(1, 8))
        if kind == "list":
            numbers = draw(st.lists(st.integers(0, 8), unique=True, min_size=1, max_size=8))
            changes["cards"] = [
                draw(st.sampled_from([str(i), worlds.card(i)["uuid"], worlds.card(i)["bus_id"]])) for i in numbers
            ]
        found.append(gpu(name, **changes))
    return found


@MANY
@given(host=machines(), services=wishes())
def test_all_and_a_number_never_take_a_card_that_is_dead_or_a_strangers(host, services):
    states, survey = host
    found = plan(survey, *services)
    for service, wanted in zip(found["services"], services, strict=True):
        if wanted["cards"] == ["all"]:
            used = [card for i in service["instances"] for rank in i["cards"] for card in rank]
            assert all(states[card] == "free" for card in used if card != 99)
            assert wanted["card_count"] is None or len(used) <= wanted["card_count"]


@MANY
@given(host=machines(), services=wishes())
def test_no_card_is_given_twice_by_choice_and_every_instance_gets_all_its_ranks_or_none(host, services):
    _, survey = host
    found = plan(survey, *services)
    owners = {}
    for service, wanted in zip(found["services"], services, strict=True):
        used = [card for i in service["instances"] for rank in i["cards"] for card in rank]
        assert len(used) == len(set(used))
        for instance in service["instances"]:
            assert len(instance["cards"]) in (0, wanted["topology"]["tensor_parallel_size"])
            assert [device["index"] for device in instance["devices"]] == [card for rank in instance["cards"] for card in rank]
        for card in used:
            owners.setdefault(card, []).append(wanted["cards"] != ["all"])
        least = wanted["topology"]["min_replicas"] or wanted["topology"]["replicas"]
        assert len(service["instances"]) + len(service["left_out"]) == wanted["topology"]["replicas"]
        assert not service["left_out"] or len(service["instances"]) >= least
    assert all(len(named) == 1 or all(named) for named in owners.values())


@MANY
@given(host=machines(), services=wishes())
def test_the_same_host_gets_the_same_plan_in_whatever_order_it_was_read(host, services):
    _, survey = host
    first = plan(survey, *services)
    assert plan(deepcopy(survey), *deepcopy(services)) == first
    turned = deepcopy(survey)
    turned["cards"]["nvidia"].reverse()
    assert cards(plan(turned, *services)) == cards(first)


@MANY
@given(host=machines(["free"]), services=wishes(), data=st.data())
def test_the_trouble_of_one_card_moves_no_other_instance(host, services, data):
    # Nothing has ever run: only the inventory and the places decide. Over several cards the links decide as well, and those of a
    # card that is gone are not known any more.
    states, survey = host
    services = [worlds.merged(s, {"topology": {"tensor_parallel_size": 1}}) for s in services]
    assume(not any("PL-CARDS" in item["id"] and "wanted;" in item["what"] for item in plan(survey, *services)["findings"]))
    before = cards(plan(survey, *services))
    assume(before)
    nodes = [card["numa_node"] for card in survey["cards"]["nvidia"]]
    hit = data.draw(st.integers(0, len(states) - 1))
    states = [*states[:hit], data.draw(st.sampled_from(["stranger", "lost", "gone", "needs_reset"])), *states[hit + 1 :]]
    after = cards(plan(machine(states, nodes, survey["accelerators"]["nvidia"]["links"]), *services))
    for name, had in before.items():
        if hit not in had:
            assert after[name] == had


@MANY
@given(host=machines(["free", "free", "stranger"]), services=wishes(), data=st.data())
def test_what_runs_and_what_ran_keeps_its_cards_whatever_happens_to_others(host, services, data):
    states, survey = host
    first = plan(survey, *services)
    assume(first["changes"] == [s["name"] for s in first["services"]])
    before = cards(first)
    ended = {name: data.draw(st.booleans()) for name in before}
    nodes = [card["numa_node"] for card in survey["cards"]["nvidia"]]
    hit = data.draw(st.integers(0, len(states) - 1))
    state = data.draw(st.sampled_from(["stranger", "lost", "gone", "needs_reset", "free"]))
    states = [*states[:hit], state, *states[hit + 1 :]]
    later = machine(states, nodes, {})
    later["services"] = worlds.running(first)
    for seen in first["services"]:
        for instance in later["services"][seen["name"]]["instances"]:
            instance["alive"] = not ended[f"{seen['name']}/{instance['index']}"]
    named = {s["name"] for s in services if s["cards"] != ["all"]}
    again = plan(later, *services)
    after, done = cards(again), actions(again)
    for name, had in before.items():
        service = name.partition("/")[0]
        if hit not in had and (not ended[name] or service not in named):
            assert after[name] == had
            assert done[name] == ("start" if ended[name] else "keep") or (ended[name] and done[name] == "refused")
