"""Which driver is chosen for a host, which steps belong to it, and what forbids a change or a reboot."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import before, chosen, chosen_toolkit, confirmed, steps
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change
from unit import worlds
from unit.stack_worlds import KERNEL, NO_DRIVER, SILENT, gpus, package

NEW = "580.178.04"
KERNELS = [{**KERNEL, "next": False}, {**KERNEL, "release": "6.8.0-90-generic", "running": False}]
SET = Wanted("driver", NEW, ())


def choose(survey, state="installed", source="", **wish):
    intent = {**worlds.intent(stack=wish), "services": []}
    judged = planner.plan(intent, survey)["stack"]
    return chosen.choose((state, source), intent, survey, judged, tables.stack())


def bare(**changes):
    return gpus(driver=NO_DRIVER, seen=SILENT, packages={"manager": "dpkg", "why": "", "found": []}, **changes)


# -- which one ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "driver", "version", "asks"),
    [
        ("judged", NEW, "580.95.05", False),
        ("installed", NEW, "580.95.05", False),  # it works: keep it, and hold it
        ("installed", "", "580.95.05", False),
        ("pinned", "", "580.95.05", False),
        ("pinned", "580", "580.95.05", False),  # of that branch already
        ("pinned", "580.95.05", "580.95.05", False),
        ("pinned", NEW, NEW, True),
    ],
)
def test_a_driver_that_works_is_replaced_only_by_a_version_that_is_pinned(state, driver, version, asks):
    choice = choose(gpus(), state, driver=driver)
    assert (choice["findings"], choice["version"], bool(choice["names"])) == ([], version, asks)
    assert bool(choice["skip"]) is (state == "judged")


def test_on_ubuntu_the_modules_of_the_running_and_the_next_kernel_are_asked_for_by_name():
    choice = choose(bare(kernels=KERNELS), driver=NEW)
    assert choice["names"] == [
        ["linux-modules-nvidia-580-server-open-6.8.0-88-generic"],
        ["linux-modules-nvidia-580-server-open-6.8.0-90-generic"],
        ["nvidia-headless-no-dkms-580-server-open"],
        ["nvidia-utils-580-server"],
    ]
    assert (choice["flavour"], choice["signed"], choice["source"]) == ("open", True, "Canonical's archive")


def test_the_source_is_the_one_that_is_there_and_can_be_named():
    theirs = package("nvidia-open-580", origin="nvidia")
    there = gpus(theirs, driver={"loaded": "550.163.01"})
    assert choose(there, "pinned", driver=NEW)["source"] == "NVIDIA's repository"
    assert choose(bare(), driver=NEW, source="nvidia")["names"] == [["nvidia-open-580"]]


def test_modules_that_are_built_here_need_the_headers_of_the_running_kernel():
    choice = choose(bare(kernels=[{**KERNEL, "headers": False}]), driver=NEW, source="nvidia")
    assert choice["names"] == [["nvidia-open-580"], ["linux-headers-6.8.0-88-generic"]]
    assert choice["signed"] is False


def test_switches_bring_the_fabric_manager_into_the_same_request():
    assert choose(bare(switches=4), driver=NEW)["names"][-1] == ["nvidia-fabricmanager-580"]


def test_where_nothing_is_to_be_done_it_is_said_why():
    assert choose(worlds.survey())["skip"] == "there is no NVIDIA card on the bus"
    runfile = choose(gpus(installer="/usr/bin/nvidia-uninstall"))
    assert (runfile["findings"], runfile["names"]) == ([], [])
    assert ".run installer" in runfile["skip"]
    inside = choose(worlds.merged(gpus(), {"platform": {"container": "podman"}}), "pinned", driver=NEW)
    assert "inside of podman" in inside["findings"][0]["what"]


@pytest.mark.parametrize(
    ("wish", "there", "names", "skip"),
    [
        ({}, "", [], "modelyard_stack.cuda_toolkit is none"),
        ({"cuda_toolkit": "pip", "vllm": "0.33.0"}, "", [], "modelyard_stack.cuda_toolkit is pip"),
        ({"cuda_toolkit": "system", "vllm": "0.33.0"}, "", [["cuda-toolkit-13-0"]], ""),
        ({"cuda_toolkit": "system", "vllm": "0.33.0"}, "12.4.1", [["cuda-toolkit-13-0"]], ""),
        ({"cuda_toolkit": "system", "vllm": "0.33.0"}, "13.0.2", [], "toolkit 13.0.2 is there"),
    ],
)
def test_the_toolkit_is_of_the_services_own_cuda(wish, there, names, skip):
    survey = gpus(cuda_toolkit=there)
    intent = {**worlds.intent(stack=wish), "services": []}
    choice = chosen_toolkit.choose("installed", intent, survey, planner.plan(intent, survey)["stack"])
    assert (choice["findings"], choice["names"], choice["skip"]) == ([], names, skip)
    assert chosen_toolkit.choose("judged", intent, survey, planner.plan(intent, survey)["stack"])["skip"] == "only judged"


def test_a_toolkit_of_which_nobody_says_the_cuda_is_not_guessed():
    intent = {**worlds.intent(stack={"cuda_toolkit": "system"}), "services": []}
    choice = chosen_toolkit.choose("installed", intent, gpus(), planner.plan(intent, gpus())["stack"])
    assert [item["id"] for item in choice["findings"]] == ["DR-VERSION"]
    assert "no service and no modelyard_stack.cuda says which" in choice["findings"][0]["what"]


# -- the steps ------------------------------------------------------------------------------------------------------------


def facts(**changes):
    base = {
        "hold": [],
        "spared": True,
        "nouveau": {"loaded": False, "available": True, "blacklisted": True},
        "initramfs_stale": True,
        "loaded": NEW,
        "version": NEW,
        "units": [],
    }
    return {**base, **changes}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"nouveau": {"loaded": False, "available": True, "blacklisted": False}}, ["blacklist"]),
        ({"nouveau": {"loaded": False, "available": False, "blacklisted": False}}, []),  # this kernel has none
        ({"nouveau": {"loaded": True, "available": True, "blacklisted": False}, "loaded": ""}, ["blacklist", "initramfs"]),
        ({"nouveau": {"loaded": True, "available": True, "blacklisted": True}, "loaded": ""}, ["initramfs"]),
        ({"nouveau": {"loaded": True, "available": True, "blacklisted": True}, "loaded": "", "initramfs_stale": False}, []),
        ({"loaded": ""}, ["load"]),
        ({"loaded": "550.163.01"}, []),  # a loaded module is left alone
        ({"hold": ["a"], "spared": False, "units": ["u.service"]}, ["hold", "spare", "units"]),
    ],
)
def test_a_step_is_there_only_where_something_is_to_be_done(changes, kinds):
    assert [step.kind for step in steps.around(facts(**changes))] == kinds


def test_what_is_half_there_comes_first_and_nothing_is_no_step():
    change = Change("install", "nvidia-utils-580-server", "", NEW)
    found = steps.of_packages(["nvidia-dkms-580 (half-configured)"], [change])
    assert [step.kind for step in found] == ["configure", "install"]
    assert steps.of_packages([], []) == []


def test_the_whole_set_is_held_and_the_tools_beside_it_are_not():
    there = dict.fromkeys(
        ["nvidia-utils-580-server", "libnvidia-compute-580-server", "dkms", "nvidia-container-toolkit", "bash"], "1"
    )
    assert steps.to_hold(there, ["nvidia-utils-580-server"], SET) == ["libnvidia-compute-580-server"]


@pytest.mark.parametrize(
    ("updates", "spared"),
    [
        ({"service": "", "blacklist": []}, True),
        ({"service": "dnf-automatic", "blacklist": []}, True),  # the version lock holds against it
        ({"service": "unattended-upgrades", "blacklist": ["^nvidia-"]}, False),
        ({"service": "unattended-upgrades", "blacklist": list(steps.SPARED)}, True),
        ({"service": "unattended-upgrades", "blacklist": ["*nvidia*"]}, True),
    ],
)
def test_the_nightly_updater_is_told_only_where_it_would_touch_the_set(updates, spared):
    assert steps.is_spared(updates, ["nvidia-utils-580-server", "libnvidia-compute-580-server"]) is spared


@pytest.mark.parametrize(
    ("loaded", "kind", "nouveau", "words"),
    [
        (NEW, "open", False, ""),
        ("", "", False, ""),
        ("580.95.05", "open", False, "driver 580.95.05 is loaded, 580.178.04 is installed"),
        (NEW, "proprietary", False, "the proprietary modules of 580.178.04 are loaded, the open ones are installed"),
        ("", "", True, "nouveau is loaded; driver 580.178.04 takes its place at the next boot"),
    ],
)
def test_a_reboot_is_needed_only_where_another_module_runs(loaded, kind, nouveau, words):
    assert steps.reboot_reason({"loaded": loaded, "flavour": kind}, nouveau, NEW, "open") == words


def test_the_diff_shows_the_steps_and_the_files():
    found = steps.around(facts(nouveau={"loaded": False, "available": True, "blacklisted": False}, hold=["a"]))
    listed = steps.diff(found, {})
    assert [part["before_header"] for part in listed] == ["steps", steps.BLACKLIST_FILE]
    assert "hold: hold a\n" in listed[0]["after"]
    assert steps.diff([], {}) == []


# -- what forbids it ------------------------------------------------------------------------------------------------------


def with_holder(comm, state="S", **survey):
    seen = worlds.merged(gpus(), {"accelerators": {"nvidia": {"shared_holders": [4711]}}, **survey})
    seen["processes"] = {"4711": {"user": "eve", "comm": comm, "command": comm, "state": state}}
    return seen


def test_daemons_that_only_watch_do_not_count_as_users():
    watchers = tables.backend("nvidia")["bystanders"]
    assert before.in_use(with_holder("nvidia-persiste"), watchers, "run") == []
    assert len(before.in_use(with_holder("python"), watchers, "run")) == 1
    assert before.in_use(worlds.survey(), watchers, "run") == []


def test_a_service_of_this_project_counts_even_before_it_opens_a_card():
    seen = gpus()
    seen["services"] = {
        "qwen3": {"instances": [{"alive": True}], "pids": []},
        "old": {"instances": [{"alive": False}], "pids": []},
    }
    (found,) = before.in_use(seen, [], "run")
    assert found["what"] == "services of this project run: qwen3"


def test_a_host_with_a_process_that_hangs_in_the_driver_is_not_rebooted():
    seen = with_holder("python", "D", stuck=[4711])
    assert [item["what"][:30] for item in before.reboot(seen, "580.95.05", ["python"], [])] == ["pid 4711 of user eve (python):"]


def test_who_is_logged_in_is_read_with_where_from():
    said = (
        "eve      pts/0        2026-11-30 20:31 00:05        4242 (10.0.0.7)\nroot     tty1         2026-11-30 20:31  old   900\n"
    )
    assert before.seats(said) == ["eve at pts/0 from 10.0.0.7", "root at tty1"]
    assert before.seats("") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("server1", []),
        ("server1, server2", []),
        ("all", ["'all' is no host of this run; there are: server1, server2, away"]),
        ("server1,server1", ["it is named twice"]),
        ("away,", ["what runs on away is not known: its survey or its plan failed", "'' is no host of this run"]),
    ],
)
def test_only_names_of_this_run_confirm_a_reboot(text, words):
    found = confirmed.judge(text, {"server1": "x", "server2": "x", "away": None})
    assert len(found) == len(words)
    assert all(word in item["what"] for item, word in zip(found, words, strict=True))
