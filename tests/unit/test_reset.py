"""Resets of cards: what is judged before one, and what its answer means. No card is at hand: the survey is a world."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import reset, tables
from ansible_collections.modelyard.core.plugins.module_utils.survey import nvidia_smi
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

BOX = [{"backend": "nvidia", "index": index, "bus_id": f"0000:0{index + 1}:00.0"} for index in (0, 1)]
HOSTS = {"box": BOX, "other": [{"backend": "nvidia", "index": 0, "bus_id": "0000:01:00.0"}], "away": None, "cpu": []}
PCI = {"0-1": "PHB"}


# -- what a person has confirmed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cards"),
    [("box:0", [0]), ("box:1,box:0", [0, 1]), (" box:0 , other:0 ", [0]), ("other:0", [])],
)
def test_a_sound_confirmation_names_exactly_these_cards(text, cards):
    assert reset.confirmation(text, HOSTS) == []
    assert reset.chosen(text, "box") == cards


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bxo:0", "bxo is no host of this run; there are: box, other, away, cpu"),
        ("box:2", "box has no card 2; its cards: 0 (nvidia), 1 (nvidia)"),
        ("cpu:0", "cpu has no card 0; its cards: none that answers"),
        ("away:0", "which cards away has is not known"),
        ("box", "'box' does not name a host and a card"),
        ("box:all", "'box:all' does not name"),
        ("box:-1", "'box:-1' does not name"),
        ("box:0;box:1", "'box:0;box:1' does not name"),
        ("box:0-1", "'box:0-1' does not name"),
        ("*:0", "* is no host"),
        ("box:0,", "'' does not name"),
        ("", "'' does not name"),
        ("true", "'true' does not name"),
        ("box:0,box:0", "it is named twice"),
    ],
)
def test_a_mistake_is_refused_with_what_there_is(text, words):
    (found,) = reset.confirmation(text, HOSTS)
    assert found["id"] == "RC-CONFIRM"
    assert words in found["what"]


def test_all_mistakes_come_at_once_and_one_refuses_every_host():
    assert len(reset.confirmation("bxo:0,box:7,box:0,nonsense", HOSTS)) == 3


def test_a_number_that_two_kinds_of_cards_have_is_refused():
    both = {"box": [*BOX, {"backend": "amd", "index": 0, "bus_id": "0000:09:00.0"}]}
    (found,) = reset.confirmation("box:0", both)
    assert "several kinds of cards have the number 0" in found["what"]


@given(st.text(max_size=40))
def test_whatever_is_written_either_names_known_cards_or_is_refused(text):
    if not reset.confirmation(text, HOSTS):
        assert {*reset.chosen(text, "box"), *reset.chosen(text, "other")} <= {0, 1}
        assert reset.parsed(text)[0]


# -- may it be done ---------------------------------------------------------------------------------------------------------


def judged(survey, indexes=(0,), can_reset=True, pairs=PCI, **root):
    survey["host"].update({"uid": 0, "user": "root", **root})
    named = [{"index": i, "bus_id": f"0000:{i + 1:02x}:00.0"} for i in indexes]
    return reset.judge(survey, "nvidia", named, can_reset, pairs)


def used(index, **changes):
    """Two cards; somebody is on one."""
    survey = worlds.nvidia()
    survey["cards"]["nvidia"][index].update(changes)
    survey["processes"]["4711"] = worlds.process(4711)
    survey["accelerators"]["nvidia"]["process_list"] = "listed"
    return survey


NAMED = {"processes": [{"pid": 4711, "name": "python", "memory_mib": 9000}]}


def test_an_idle_card_may_be_reset_and_one_that_needs_it():
    assert judged(worlds.nvidia()) == []
    assert judged(worlds.nvidia(), (0, 1)) == []
    assert judged(worlds.nvidia(worlds.card(0, health="needs_reset", memory_used_mib=30004), worlds.card(1))) == []


@pytest.mark.parametrize("changes", [NAMED, {"holders": [4711]}], ids=["named by the tool", "holds the file"])
def test_who_is_on_it_forbids_it_and_is_named(changes):
    (found,) = judged(used(0, **changes))
    assert (found["id"], found["where"]) == ("RC-RESET", "box:card 0 (0000:01:00.0)")
    assert "pid 4711 of user eve (python train.py)" in found["what"]


def test_a_daemon_that_keeps_the_card_awake_counts_and_how_it_lets_go_is_said():
    survey = used(0, holders=[4711])
    survey["processes"]["4711"].update(comm="nvidia-persiste", command="/usr/bin/nvidia-persistenced", user="root")
    (found,) = judged(survey)
    assert "nvidia-persistenced" in found["what"]
    assert f"nvidia-smi -pm 0 -i {worlds.card(0)['uuid']}" in found["do"]


def test_a_zombie_and_a_pid_that_is_not_to_be_seen_count():
    survey = used(0, holders=[4711], processes=[{"pid": 9, "name": "x", "memory_mib": 1}])
    survey["processes"]["4711"].update(state="Z", ppid=1)
    (found,) = judged(survey)
    assert "ended (state Z, parent 1)" in found["what"]
    assert "pid 9, which is not to be seen here" in found["what"]


def test_a_service_of_ours_on_it_forbids_it_even_when_no_process_is_seen_there():
    survey = worlds.nvidia()
    survey["services"]["mine"] = {
        "instances": [{"index": 3, "alive": True, "devices": [{"uuid": worlds.card(0)["uuid"], "bus_id": ""}]}],
        "pids": [],
    }
    (found,) = judged(survey)
    assert "instance 3 of the service mine runs there" in found["what"]
    survey["services"]["mine"]["instances"][0]["alive"] = False
    assert judged(survey) == []


@pytest.mark.parametrize(
    ("pairs", "free"),
    [(PCI, True), ({"0-1": "NV12"}, False), (None, False), ({}, True)],
    ids=["by the bus", "NVLink", "not known", "alone"],
)
def test_a_neighbour_that_may_be_reset_too_must_be_free(pairs, free):
    found = judged(used(1, **NAMED), (0,), pairs=pairs)
    assert (found == []) is free
    assert all(item["where"].startswith("box:card 1") for item in found)


def test_neighbours_are_reached_over_neighbours():
    pairs = {"0-1": "NV4", "1-2": "NV4", "0-2": "SYS", "2-3": "PHB", "0-3": "SYS", "1-3": "SYS"}
    assert reset.neighbours([0], pairs, [0, 1, 2, 3]) == {1, 2}
    assert reset.neighbours([3], pairs, [0, 1, 2, 3]) == set()
    assert reset.neighbours([0], None, [0, 1, 2, 3]) == {1, 2, 3}


@pytest.mark.parametrize(
    ("survey", "more", "words"),
    [
        (worlds.nvidia(), {"uid": 1000, "user": "ops"}, "user ops is not root"),
        (worlds.nvidia(), {"can_reset": False}, "no command is known that resets a card of the backend nvidia"),
        (worlds.nvidia(worlds.card(0, index=None, health="lost"), worlds.card(1)), {}, "it does not answer any more"),
        (worlds.nvidia(accelerators={"nvidia": {"process_list": "unknown"}}), {}, "list of processes is unknown"),
        (worlds.nvidia(accelerators={"nvidia": {"process_list": "partial"}}), {}, "list of processes is partial"),
        (worlds.nvidia(worlds.card(0, bus_id="0000:0a:00.0"), worlds.card(1)), {}, "it is another card now (0000:0a:00.0)"),
    ],
    ids=["not root", "no command", "lost", "users not known", "users known in part", "another card"],
)
def test_what_else_forbids_it(survey, more, words):
    (found,) = judged(survey, **more)
    assert words in found["what"]


def test_all_reasons_come_at_once():
    found = judged(used(0, **NAMED), (0, 1), can_reset=False, uid=1000, user="ops")
    assert [item["where"] for item in found] == ["box:nvidia", "box", "box:card 0 (0000:01:00.0)"]


def test_only_nvidia_has_a_command_and_no_other_backend_is_tried():
    known = {name: tables.backend(name).get("confirmed_reset") for name in ("nvidia", "hygon", "amd", "cpu")}
    assert known["nvidia"]["command"] == ["--gpu-reset", "-i"]
    assert [known[name] for name in ("hygon", "amd", "cpu")] == [None, None, None]


# -- what came of it ----------------------------------------------------------------------------------------------------------


def run(stdout="", **changes):
    """As survey.tool.run gives it."""
    return {"argv": [], "rc": 0, "seconds": 1.0, "timed_out": False, "stdout": stdout, "stderr": "", "note": "", **changes}


def verdict(answer, *cards):
    reading = nvidia_smi.read_nvidia_smi(answer["stdout"], {"format": "gpu_reset"})
    return reset.verdict(answer, reading, cards or [worlds.card(0)], "box")


def refusal(words, bus_id="00000000:01:00.0"):
    return f"The following GPUs could not be reset:\n  GPU {bus_id}: {words}\n"


def test_a_card_that_was_reset_gives_nothing():
    assert verdict(run("GPU 00000000:01:00.0 was successfully reset.\nAll done.\n")) == []


@pytest.mark.parametrize(
    ("text", "words", "do"),
    [
        (refusal("In use by another client"), "no proof of a job", "nvidia-smi -pm 0 -i GPU-00000000"),
        (refusal("Not Supported"), "trying again changes nothing", "do not try again"),
        ("GPU Reset couldn't run because GPU 00000000:01:00.0 is the primary GPU.\n", "console's picture", "do not try again"),
        (refusal("Insufficient Permissions"), "only root may reset", "recover_reset_become=true"),
        (refusal("GPU is lost"), "does not reach it", "do not try again"),
        (refusal("Something Of Tomorrow"), "no meaning of that is known", "keep the words"),
        ("", "It said: nothing", "keep the words"),
        ("\x00\xff garbage", "no meaning of that is known", "keep the words"),
    ],
)
def test_a_refused_reset_is_explained_with_the_choices_that_are_left(text, words, do):
    (found,) = verdict(run(text, rc=255))
    assert found["id"] == "RC-RESET-FAILED"
    assert words in found["what"]
    assert do in found["do"]
    left = found["do"]
    assert left.index("end who is on the card") < left.index("unload and load the driver") < left.index("reboot")


def test_a_reset_that_hangs_is_no_refusal():
    (found,) = verdict(run(timed_out=True, rc=None, note="nvidia-smi had not ended after 120 s and was killed"))
    assert "did not come to an end: nvidia-smi had not ended after 120 s" in found["what"]


def test_each_card_of_a_reset_has_its_own_verdict():
    text = "GPU 00000000:01:00.0 was successfully reset.\n" + refusal("In use by another client", "00000000:02:00.0")
    (found,) = verdict(run(text, rc=255), worlds.card(0), worlds.card(1))
    assert found["where"] == "box:card 1"


@pytest.mark.parametrize(
    ("changes", "well"),
    [({}, True), ({"health": "degraded"}, True), ({"health": "needs_reset"}, False), ({"health": "lost", "index": None}, False)],
)
def test_afterwards_the_card_must_answer(changes, well):
    after = worlds.nvidia(worlds.card(0, **changes), worlds.card(1))
    assert (reset.answers(after, "nvidia", [worlds.card(0)]) == []) is well


def test_a_card_that_is_gone_afterwards_is_told():
    (found,) = reset.answers(worlds.nvidia(worlds.card(1)), "nvidia", [worlds.card(0)])
    assert "not listed any more" in found["what"]
