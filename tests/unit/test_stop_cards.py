"""Verdicts on the memory of cards, the report to an admin, and what people or accidents make of the files around a stop."""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import (
    admin,
    after,
    before,
    cards,
    claims,
    run,
    settings,
)
from unit import worlds

DEVICE = {"index": 1, "uuid": worlds.card(1)["uuid"], "bus_id": "0000:02:00.0", "device_files": ["/dev/nvidia1"]}


def place(**changes):
    base = {"backend": "nvidia", "entry": tables.backend("nvidia"), "devices": [DEVICE]}
    return cards.Place(**{**base, **changes})


def verdict(card=None, tool=None, silent=(), living=(), ours=(), baseline=None, process_list="none", unplaced=()):
    seen = [worlds.card(0), worlds.card(1, **(card or {}))]
    accelerator = {"tool": {"state": "ok", "said": "", **(tool or {})}, "process_list": process_list}
    accelerator["unplaced_processes"] = [{"pid": pid, "memory_mib": 9000} for pid in unplaced]
    return cards.judge(DEVICE, place(baseline=baseline or {}), seen, accelerator, living, ours, silent)


def named(pid, mib):
    return {"pid": pid, "name": "python", "memory_mib": mib}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, "back"),
        ({"card": {"memory_used_mib": 64 + 128}}, "back"),
        ({"card": {"memory_used_mib": 64 + 129}}, "held"),
        # The tool names a process that is gone, or one of ours: what it takes must come back.
        ({"card": {"memory_used_mib": 14004, "processes": [named(7, 14000)]}, "process_list": "listed"}, "held"),
        ({"card": {"memory_used_mib": 14004, "processes": [named(7, 14000)]}, "living": [7], "ours": [7]}, "held"),
        # Somebody else's use is no business of ours, and is not called ours.
        ({"card": {"memory_used_mib": 14004, "processes": [named(7, 14000)]}, "living": [7], "process_list": "listed"}, "back"),
        ({"card": {"memory_used_mib": 28004, "processes": [named(7, 14000)]}, "living": [7], "process_list": "listed"}, "held"),
        ({"card": {"memory_used_mib": 14004, "processes": [named(7, None)]}, "living": [7]}, "taken"),
        ({"card": {"memory_used_mib": 14004}, "living": [7], "unplaced": [7]}, "taken"),
        # A silent holder explains memory only where the tool's list is not whole.
        ({"card": {"memory_used_mib": 14004}, "silent": [7], "living": [7], "process_list": "listed"}, "held"),
        ({"card": {"memory_used_mib": 14004}, "silent": [7], "living": [7], "process_list": "unknown"}, "taken"),
        ({"tool": {"state": "hangs", "said": "20 s"}}, "silent"),
        ({"card": {"health": "lost", "memory_used_mib": None}}, "silent"),
        ({"card": {"health": "needs_reset"}}, "silent"),
        ({"card": {"memory_used_mib": None}}, "unchecked"),
        ({"tool": {"state": "missing", "said": "there is no nvidia-smi"}, "card": {"memory_used_mib": None}}, "unchecked"),
    ],
)
def test_the_verdict_on_a_card(how, expected):
    assert verdict(**how)["verdict"] == expected


def test_memory_of_what_has_not_ended_is_not_called_nobodys():
    card = {"memory_used_mib": 14004, "processes": [named(7, 14000), named(8, 4)]}
    assert verdict(card, living=[7], ours=[7, 8])["what"].endswith(
        "idle is 64 MiB (assumed); pid 7 of this service has not ended"
    )
    assert verdict(card, ours=[7])["what"].endswith("no living process is known to use the rest")


def test_the_baseline_of_this_host_counts_before_the_usual_figure():
    assert verdict({"memory_used_mib": 5000}, baseline={DEVICE["uuid"]: {"memory_mib": 4900}})["verdict"] == "back"
    assert verdict({"memory_used_mib": 5000}, baseline={DEVICE["bus_id"]: {"memory_mib": 4900}})["verdict"] == "back"
    for garbage in ({"memory_mib": "much"}, {"memory_mib": float("nan")}, None, 7):
        assert verdict({"memory_used_mib": 5000}, baseline={DEVICE["uuid"]: garbage})["verdict"] == "held"


def test_a_card_is_found_by_its_name_for_good_and_not_by_its_number():
    moved = {**DEVICE, "index": 0}
    seen = [worlds.card(0), worlds.card(1, memory_used_mib=30000)]
    accelerator = {"tool": {"state": "ok", "said": ""}, "process_list": "none", "unplaced_processes": []}
    assert cards.judge(moved, place(), seen, accelerator, (), (), ())["used_mib"] == 30000


def test_device_files_are_taken_as_a_plan_or_as_a_survey_has_them():
    assert cards.files_of({"device_files": ["/dev/nvidia0", worlds.device_file("/dev/kfd")]}) == ["/dev/nvidia0", "/dev/kfd"]
    assert cards.files_of({}) == []


@pytest.mark.parametrize("content", ["", "[]", "{", '{"backend": null}', '{"backend": "nvidia", "backends": null}'])
def test_what_is_not_written_down_is_not_watched(tmp_path, content):
    folder = layout.instance_dir(str(tmp_path), "tiny", 0)
    folder.mkdir(parents=True)
    (folder.parent / "service.json").write_text(content)
    (folder / "instance.json").write_text(content)
    assert not cards.place(str(tmp_path), "tiny").watched
    assert claims.claim(str(tmp_path), "tiny").units == frozenset()


def test_the_tools_of_the_inventory_come_first(tmp_path):
    folder = layout.instance_dir(str(tmp_path), "tiny", 0)
    folder.mkdir(parents=True)
    written = {"backend": "nvidia", "backends": {"nvidia": tables.backend("nvidia")}, "tool_path": ["/mine"], "sysroot": "/sim"}
    layout.write_json(folder.parent / "service.json", written)
    layout.write_json(folder / "instance.json", {"devices": [DEVICE], "supervisor": "systemd", "session": "tiny-0"})
    found = cards.place(str(tmp_path), "tiny")
    assert (found.watched, found.sysroot, found.entry["tool_places"][0]) == (True, "/sim", "/mine")
    assert not cards.place(str(tmp_path), "tiny", [1]).watched
    assert claims.claim(str(tmp_path), "tiny").units == {"modelyard-tiny-0.service"}
    assert claims.claim(str(tmp_path), "tiny", instance=1).units == frozenset()


# -- the report ------------------------------------------------------------------------------------------------------


def facts(**changes):
    spinning = worlds.process(
        77, state="R", user="llm", command="VLLM::EngineCore", comm="VLLM::EngineCor", devices=["/dev/nvidia1"]
    )
    spinning.update(stack=["uvm_spin_loop", "uvm_gpu_retain"], signs="marker, session")
    held = {"card": "card 1 (0000:02:00.0)", "verdict": "held", "what": "30004 MiB in use, idle is 4 MiB", "backend": "nvidia"}
    held.update(index=1, uuid=DEVICE["uuid"], bus_id=DEVICE["bus_id"], idle_mib=4, used_mib=30004, others=[])
    base = {
        "service": "tiny",
        "instances": [0],
        "host": "box",
        "at": "2026-11-29T10:00:00Z",
        "boot": proc.boot_id(),
        "why": ["77 did not end when killed"],
        "processes": [spinning],
        "zombies": [{"pid": 78, "comm": "VLLM::Worker_TP", "ppid": 500}],
        "parents": [{**worlds.process(500, user="llm", command="bash run.sh"), "children": [78]}],
        "cards": [held],
        "others": [worlds.process(900, user="eve", command="python train.py", unit="session-3.scope")],
        "on_devices": [worlds.process(900, user="eve", command="python train.py")],
        "users": {"eve": 3},
        "actions": [
            (0.0, "SIGINT to 70 (vllm): asked to stop"),
            (85.2, "SIGKILL to 77 (VLLM::EngineCor): did not end when asked"),
        ],
        "backend": "nvidia",
        "entry": tables.backend("nvidia"),
        "file": "/opt/modelyard/services/tiny/needs_admin.json",
    }
    return {**base, **changes}


def test_the_report_says_what_is_left_what_was_tried_and_the_choices_from_gentle_to_hard():
    text = admin.text(facts())
    for line in (
        "in the kernel: uvm_spin_loop < uvm_gpu_retain",
        "has open: /dev/nvidia1",
        "85.2 s  SIGKILL to 77 (VLLM::EngineCor): did not end",
        "pid 900 of user eve (python train.py; unit session-3.scope)",
        "sudo nvidia-smi --gpu-reset -i 1",
        '"Not Supported": this card cannot be reset alone',
        "sudo modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia",
        "kill -TERM 500",
        "eve (3)",
        "PF-NEEDS-ADMIN",
    ):
        assert line in text
    order = ["Look again", "Save where", "Ask the owners", "78 ended and wait", "Serve from other", "Reset", "Reload", "Reboot"]
    choices = [choice["do"] for choice in admin.choices(facts())]
    assert [any(choice.startswith(word) for word in order[i : i + 1]) for i, choice in enumerate(choices)] == [True] * len(order)
    assert all(choice["effect"] for choice in admin.choices(facts()))


def test_a_kind_of_card_without_a_known_reset_gets_no_command_for_one():
    text = admin.text(facts(entry={**tables.backend("hygon"), "reload": ["hycu"]}, backend="hygon"))
    assert "Reset the cards" not in text
    assert "sudo modprobe -r hycu" in text


def test_without_cards_and_stuck_processes_nobody_is_told_to_reboot():
    stopped = worlds.process(77, state="T", signs="", user="llm")
    words = [choice["do"] for choice in admin.choices(facts(cards=[], processes=[stopped], others=[], parents=[]))]
    assert not any(word.startswith(("Reboot", "Reset", "Reload")) for word in words)
    assert any("state T" in word for word in words)


def test_every_command_of_a_report_is_for_a_person(monkeypatch):
    # The module that writes reports has no way to run anything.
    assert not {"subprocess", "tool", "signals", "children"} & set(vars(admin))


def test_what_is_left_of_a_report_is_read_from_the_host():
    me = proc.read(os.getpid())
    known = {
        "boot": proc.boot_id(),
        "processes": [{"pid": me.pid, "start": me.start}, {"pid": me.pid, "start": 1}, {"pid": "x"}, 7],
    }
    assert admin.left_of(known) == [(me.pid, me.start)]
    assert admin.left_of({**known, "boot": "an earlier one"}) == []
    for garbage in ({}, {"processes": 7}, {"processes": [None]}):
        assert admin.left_of(garbage) == []


# -- files that people edit, or that are not whole -------------------------------------------------------------------


def test_only_the_acceptance_of_what_was_stopped_is_forgotten(tmp_path):
    folder = tmp_path / "services/tiny"
    folder.mkdir(parents=True)
    path = folder / "accepted.json"

    def after_stop(indexes, content):
        path.write_text(content)
        assert after.forget_acceptance(str(tmp_path), "tiny", indexes)
        return layout.read_json(path)

    both = '{"instances": [{"index": 0}, {"index": 1}], "result": "r"}'
    assert after_stop([1], both) == {"instances": [{"index": 0}], "result": "r"}
    assert after_stop([0, 1], both) is None
    assert after_stop(None, both) is None
    for garbage in ("", "[]", '{"instances": 7}', '{"instances": [1, "a"]}'):
        assert after_stop([0], garbage) is None
        assert not path.exists()
    assert after.forget_acceptance(str(tmp_path), "tiny", None)


def test_a_stop_is_told_by_its_caller_else_by_what_was_deployed_else_by_usual_figures(tmp_path):
    folder = tmp_path / "services/tiny"
    folder.mkdir(parents=True)
    states = [{"request": {"shutdown_timeout_s": 20}}, None, {"request": {"shutdown_timeout_s": "x"}}]
    usual = settings.read(str(tmp_path), "tiny", states)
    assert (usual.limits.grace_s, usual.limits.drain_s, usual.memory_s, usual.drain_command) == (45.0, 20.0, 120.0, "")
    assert usual.release_supervisor
    layout.write_json(folder / "service.json", {"stop": {"grace_s": 9, "memory_s": "many", "drain_command": "x", "drain_s": -1}})
    written = settings.read(str(tmp_path), "tiny", [], {"grace_s": None, "release_supervisor": False})
    assert (written.limits.grace_s, written.memory_s, written.drain_command, written.drain_s) == (9.0, 120.0, "x", 30.0)
    assert not written.release_supervisor
    assert settings.read(str(tmp_path), "tiny", [], {"grace_s": 3.0}).limits.grace_s == 3.0
    layout.write_json(folder / "service.json", {"stop": [1]})
    assert settings.read(str(tmp_path), "tiny", []).limits.grace_s == 45.0


# -- the supervisor --------------------------------------------------------------------------------------------------


class Unit:
    """A supervisor that answers as the test wants."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def release(self, folder, request, limit_s):
        self.asked.append((folder.name, request["session"], limit_s))
        return self.answer()


def released(tmp_path, monkeypatch, answer, limit_s=1.0):
    unit = Unit(answer)
    monkeypatch.setitem(supervisor.SUPERVISORS, "unit", unit)
    for index in (0, 1):
        folder = layout.instance_dir(str(tmp_path), "tiny", index)
        folder.mkdir(parents=True)
        layout.write_json(folder / "instance.json", {"supervisor": "unit", "session": f"tiny-{index}"})
    said = []
    done, problems = before.release(str(tmp_path), "tiny", {0: None, 1: None}, limit_s, said.append)
    assert done == [words for words in said if words not in problems]
    return unit, said, problems


def test_every_instances_supervisor_is_told_to_start_nothing_again(tmp_path, monkeypatch):
    unit, said, problems = released(tmp_path, monkeypatch, lambda: ["disabled and stopped"])
    assert sorted(unit.asked) == [("instance-0", "tiny-0", 1.0), ("instance-1", "tiny-1", 1.0)]
    assert (said, problems) == (["disabled and stopped"] * 2, [])


def test_a_supervisor_that_fails_is_said_and_the_stop_goes_on(tmp_path, monkeypatch):
    def fail():
        raise RuntimeError("no bus")

    _, said, problems = released(tmp_path, monkeypatch, fail)
    assert sorted(problems) == sorted(said)
    assert "unit of tiny/0 may start it again: RuntimeError: no bus" in problems


def test_a_supervisor_that_hangs_is_not_waited_for_beyond_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(before, "RELEASE_MARGIN_S", 0.2)
    began = time.monotonic()
    _, _, problems = released(tmp_path, monkeypatch, lambda: time.sleep(5) or [], limit_s=0.2)
    assert time.monotonic() - began < 3
    assert problems == ["the supervisor of tiny had not answered after 0 s"]


def test_a_unit_is_waited_for_as_long_as_its_own_stop_may_take(tmp_path, monkeypatch):
    unit = Unit(list)
    monkeypatch.setitem(supervisor.SUPERVISORS, "unit", unit)
    folder = layout.instance_dir(str(tmp_path), "tiny", 0)
    folder.mkdir(parents=True)
    layout.write_json(folder / "instance.json", {"supervisor": "unit", "session": "tiny"})
    layout.write_json(folder.parent / "service.json", {"stop": {"grace_s": 300, "memory_s": 600}})
    run.stop_service(str(tmp_path), "tiny", None, {"grace_s": 1.0, "memory_s": 2.0})
    ((_, _, limit_s),) = unit.asked
    assert limit_s > 900


def test_a_service_without_such_a_supervisor_needs_no_release(tmp_path):
    assert before.release(str(tmp_path), "tiny", {0: None}, 1.0, print) == ([], [])
