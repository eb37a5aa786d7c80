"""The verdict on whole hosts: what is kept, what an admin is to install, what is refused, and the findings that follow."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import stack as stack_checks
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import CATALOGUE
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import dcu_rules, nearest, rules, states, text, verdict
from unit import worlds
from unit.stack_worlds import KERNEL, NO_DRIVER, SILENT, UTILS, contents, gpus, host, judged, package, with_environment

TABLES = tables.stack()


def test_a_host_that_fits_is_kept_and_nothing_is_said():
    seen, found = judged(with_environment(gpus()), worlds.gpu_service())
    assert (seen["action"], seen["state"], found) == ("keep", "acceptable", [])
    (one,) = seen["sets"]
    assert (one["service"], one["cards"], one["torch"], one["cuda"]) == (
        "qwen3-14b-32k",
        "2 x GeForce RTX 4090",
        "2.13.0+cu130",
        "13.0",
    )


@pytest.mark.parametrize(
    ("wish", "action", "state", "found"),
    [
        ({"driver": "580.95.05"}, "keep", "pinned", []),
        ({"driver": "580"}, "keep", "pinned", []),
        ({"driver": "595"}, "keep", "acceptable", [("note", "PF-STACK-DRIFT")]),
        ({"driver": "470.199.02"}, "refuse", "acceptable", [("refuse", "PF-STACK-GPU-DRIVER"), ("warn", "PF-STACK-ENDED")]),
        ({"driver": "615.71.09", "flavour": "proprietary"}, "refuse", "acceptable", [("refuse", "PF-STACK-FLAVOUR")]),
        ({"driver": "580", "flavour": "proprietary"}, "keep", "pinned", []),
    ],
)
def test_what_the_inventory_wants_is_judged_before_anything_is_touched(wish, action, state, found):
    seen, said = judged(gpus(), **wish)
    assert (seen["action"], seen["state"], said) == (action, state, found)


def test_a_set_that_cannot_work_names_the_branch_that_is_right():
    seen, _ = judged(gpus(driver=NO_DRIVER, seen=SILENT), driver="470.199.02", torch="2.3.0", cuda="12.1")
    assert seen["action"] == "refuse"
    (one,) = seen["sets"]
    assert [reason["rule"] for reason in one["reasons"]] == ["gpu-needs-driver", "wheel-needs-driver-hard", "branch-ended"]
    (right,) = one["right"]
    assert (right["branch"], right["flavour"], right["cuda"]) == ("580", "open", "12.1")
    assert right["packages"]["names"][0] == "linux-modules-nvidia-580-server-open-6.8.0-88-generic"
    assert right["packages"]["signed"] is True


def test_where_the_loaded_driver_is_right_it_is_the_nearest_one():
    seen, _ = judged(gpus(), driver="470.199.02")
    assert [right["words"] for right in seen["sets"][0]["right"]] == ["driver 580.95.05 (branch 580), which is loaded already"]


def test_without_a_driver_the_recommended_one_is_to_be_installed():
    seen, _ = judged(gpus(driver=NO_DRIVER, seen=SILENT), vllm="0.33.0")
    assert (seen["action"], seen["state"]) == ("install", "absent")
    assert seen["sets"][0]["right"][0]["words"] == "driver 580.178.04 (branch 580, open kernel modules)"


def test_a_driver_that_is_too_old_is_to_be_updated_or_an_older_vllm_taken():
    old = dict.fromkeys(("loaded", "on_disk", "library"), "550.163.01")
    survey = gpus(driver={**old, "flavour": "proprietary"}, reboot_required=True, boot_free_mib=120, secure_boot=True)
    seen, found = judged(with_environment(survey), worlds.gpu_service())
    assert seen["action"] == "upgrade"
    assert [right["words"] for right in seen["sets"][0]["right"]] == [
        "driver 580.178.04 (branch 580, open kernel modules)",
        "vLLM 0.19.1 with torch 2.10.0 for CUDA 12.8",
    ]
    assert found == [("refuse", "PF-STACK-CUDA-DRIVER"), ("warn", "PF-STACK-ENDED")]
    assert [line.partition(":")[0] for line in seen["before"]] == [
        "a reboot is pending already",
        "/boot has 120 MiB free; a new initramfs may need 500",
        "Secure Boot is on",
    ]


@pytest.mark.parametrize(
    ("driver", "changes", "state"),
    [
        ({}, {}, "acceptable"),
        (NO_DRIVER, {}, "absent"),
        ({**NO_DRIVER, "on_disk": "580.95.05", "library": "580.95.05"}, {}, "not-loaded"),
        ({**NO_DRIVER, "library": "580.95.05"}, {}, "no-module-for-kernel"),
        ({"on_disk": "580.126.09", "library": "580.126.09"}, {}, "mismatch"),
        ({"library": "580.126.09"}, {}, "mismatch-broken"),
        # The library's version is cut to two parts in some texts.
        ({"loaded": "580.178.04", "on_disk": "580.178.04", "library": "580.178"}, {}, "acceptable"),
        ({}, {"installer": "/usr/bin/nvidia-uninstall"}, "runfile"),
        ({}, {"containerised": True}, "containerised"),
    ],
)
def test_the_states_of_a_driver(driver, changes, state):
    survey = gpus(driver=driver, seen=SILENT)
    assert states.state(survey["accelerators"]["nvidia"], host(**changes)) == state


def test_what_an_installation_puts_right_is_no_refusal_of_the_host():
    taken = {"loaded": True, "blacklisted": False}
    seen, found = judged(gpus(driver=NO_DRIVER, seen=SILENT, nouveau=taken), vllm="0.33.0")
    assert (seen["action"], found) == ("install", [("refuse", "PF-STACK-NOUVEAU")])
    seen, _ = judged(gpus(driver={**NO_DRIVER, "on_disk": "580.95.05", "library": "580.95.05"}, seen=SILENT, nouveau=taken))
    assert seen["action"] == "repair"


def test_a_tool_that_answers_disproves_a_mismatch():
    survey = gpus(driver={"library": "570.172.08"})
    assert states.state(survey["accelerators"]["nvidia"], host()) == "acceptable"


@pytest.mark.parametrize(
    ("driver", "changes", "action"),
    [
        ({**NO_DRIVER, "library": "580.95.05"}, {}, "repair"),
        ({"library": "580.126.09"}, {}, "repair"),
        ({}, {"installer": "/usr/bin/nvidia-uninstall"}, "keep"),
        (dict.fromkeys(("loaded", "on_disk", "library"), "550.163.01"), {"installer": "/usr/bin/nvidia-uninstall"}, "refuse"),
        (dict.fromkeys(("loaded", "on_disk", "library"), "550.163.01"), {"containerised": True}, "refuse"),
    ],
)
def test_what_a_state_means_for_the_host(driver, changes, action):
    silent = {} if changes or driver.get("loaded") == "550.163.01" else SILENT
    seen, _ = judged(gpus(driver=driver, seen=silent, **changes), vllm="0.33.0")
    assert seen["action"] == action


NEXT = {"release": "6.8.0-90-generic", "running": False, "next": True, "headers": True, "module": ""}
NIGHTLY = {"service": "unattended-upgrades", "blacklist": []}


@pytest.mark.parametrize(
    ("packages", "changes", "driver", "found"),
    [
        ([], {}, {}, []),
        ([], {"nouveau": {"loaded": True, "blacklisted": False}}, NO_DRIVER, [("refuse", "PF-STACK-NOUVEAU")]),
        # The free driver beside NVIDIA's drives some other card.
        ([], {"nouveau": {"loaded": True, "blacklisted": False}}, {}, []),
        ([], {"secure_boot": True}, {**NO_DRIVER, "library": "580.95.05"}, [("warn", "PF-STACK-SECURE-BOOT")]),
        ([], {"secure_boot": True}, {}, []),
        (
            [package("nvidia-dkms-580-open"), package("dkms", "3.0.11-1ubuntu13")],
            {"kernels": [{**KERNEL, "headers": False}]},
            {**NO_DRIVER, "library": "580.95.05"},
            [("refuse", "PF-STACK-HEADERS")],
        ),
        (
            [package("nvidia-dkms-580-open"), package("dkms")],
            {"kernels": [{**KERNEL, "headers": False}]},
            {},
            [("warn", "PF-STACK-HEADERS")],
        ),
        ([], {"kernels": [{**KERNEL, "headers": False}]}, {}, []),
        ([package("libnvidia-compute-570", "570.172.08-0ubuntu1"), UTILS], {}, {}, [("warn", "PF-STACK-MIXED")]),
        ([package("libnvidia-compute-580", "580.95.05-1", origin="nvidia"), UTILS], {}, {}, [("warn", "PF-STACK-MIXED")]),
        ([package("libnvidia-compute-580"), UTILS, package("libnvidia-egl-wayland1", "1:1.1.13-1")], {}, {}, []),
        ([], {"kernels": [{**KERNEL, "next": False}, NEXT]}, {}, [("warn", "PF-STACK-NEXT-KERNEL")]),
        ([], {"kernels": [{**KERNEL, "next": False}, {**NEXT, "module": "580.126.09"}]}, {}, [("warn", "PF-STACK-NEXT-KERNEL")]),
        ([], {"kernels": [{**KERNEL, "next": False}, {**NEXT, "module": "580.95.05"}]}, {}, []),
        ([package("nvidia-utils-580-server", held=False)], {"updates": NIGHTLY}, {}, [("warn", "PF-STACK-UPDATES")]),
        ([], {"updates": NIGHTLY}, {}, []),
        ([package("nvidia-utils-580-server", held=False)], {"updates": {**NIGHTLY, "blacklist": ["^nvidia-"]}}, {}, []),
        ([package("nvidia-utils-580-server", held=False)], {"updates": {**NIGHTLY, "blacklist": ["*nvidia*", "["]}}, {}, []),
        (
            [package("nvidia-utils-580-server", held=False)],
            {"updates": {**NIGHTLY, "blacklist": ["^libnvidia-"]}},
            {},
            [("warn", "PF-STACK-UPDATES")],
        ),
        # Debian numbers this one by date.
        ([package("nvidia-kernel-common", "20220217+5~deb12u1"), UTILS], {}, {}, []),
        ([], {"installer": "/usr/bin/nvidia-uninstall"}, {}, [("warn", "PF-STACK-FOREIGN")]),
        ([], {"containerised": True}, {}, [("note", "PF-STACK-FOREIGN")]),
        ([], {"vendor_image": "/etc/dgx-release"}, {}, [("note", "PF-STACK-FOREIGN")]),
        ([], {"persistenced": False}, {}, [("note", "PF-STACK-PERSISTENCE")]),
        ([], {"switches": 4}, {}, [("warn", "PF-STACK-FABRIC")]),
        ([], {"switches": 4, "fabric_manager": "580.95.05"}, {}, [("warn", "PF-STACK-FABRIC")]),
        ([], {"switches": 4, "fabric_manager": "580.95.05", "fabric_manager_runs": True}, {}, []),
        ([], {"switches": 4, "fabric_manager": "580.95", "fabric_manager_runs": True}, {}, [("refuse", "PF-STACK-FABRIC")]),
    ],
)
def test_what_disturbs_a_driver_or_will(packages, changes, driver, found):
    silent = SILENT if driver.get("loaded") == "" else {}
    _, said = judged(gpus(*packages, driver=driver, seen=silent, **changes))
    assert said == found


@pytest.mark.parametrize(
    ("platform", "found"), [({"container": "docker"}, []), ({"container": ""}, [("note", "PF-STACK-PERSISTENCE")])]
)
def test_a_container_has_packages_and_daemons_of_its_own_which_say_nothing_of_the_driver(platform, found):
    survey = gpus(persistenced=False)
    survey["platform"] = {**survey["platform"], **platform}
    assert judged(survey)[1] == found


def test_a_fabric_manager_has_nothing_to_do_with_cards_that_have_no_switches():
    survey = gpus(fabric_manager="550.54.15")
    survey["accelerators"]["nvidia"]["on_bus"] = [
        {**function, "device": "2330"} for function in survey["accelerators"]["nvidia"]["on_bus"]
    ]
    assert judged(survey)[1] == []
    survey["stack"].update(switches=4, fabric_manager_runs=True)
    assert judged(survey)[1] == [("refuse", "PF-STACK-FABRIC")]


def test_a_card_that_is_handed_to_a_virtual_machine_is_refused():
    function = {
        "bus_id": "0000:01:00.0",
        "vendor": "10de",
        "device": "2684",
        "class": "0300",
        "numa_node": 0,
        "driver": "vfio-pci",
    }
    _, said = judged(gpus(seen={"on_bus": [function]}))
    assert said == [("refuse", "PF-STACK-VFIO")]
    _, said = judged(gpus(seen={"on_bus": [function, {**function, "bus_id": "0000:02:00.0", "driver": "nvidia"}]}))
    assert said == [("note", "PF-STACK-VFIO")], "the other card is the host's own"


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ({}, []),
        ({"archs": ["8.0", "9.0"]}, []),
        ({"archs": ["9.0", "10.0"]}, [("refuse", "PF-STACK-NO-KERNELS")]),
        ({"cuda": "12.9", "packages": {"torch": "2.13.0+cu129"}}, [("refuse", "PF-STACK-CUDA-MIX")]),
        ({"cuda": "", "variant": "cpu", "packages": {"torch": "2.13.0+cpu"}}, [("refuse", "PF-STACK-BUILD")]),
        ({"packages": {"torch": "2.11.0+cu130"}}, [("warn", "PF-STACK-PINS")]),
        ({"packages": {"transformers": "4.57.6"}}, [("warn", "PF-STACK-PINS")]),
    ],
)
def test_an_environment_is_judged_by_what_is_installed_in_it(installed, found):
    seen, said = judged(with_environment(gpus(), **installed), worlds.gpu_service())
    assert said == found
    assert seen["sets"][0]["environment"] == worlds.RUNTIME


def test_of_an_environment_that_cannot_be_read_only_driver_and_card_are_judged():
    seen, said = judged(gpus(), worlds.gpu_service())
    assert (said, seen["sets"][0]["vllm"], seen["sets"][0]["torch"]) == ([], "", "")


def test_what_runs_as_wanted_is_refused_for_nothing():
    service = worlds.gpu_service()
    survey = with_environment(gpus(), archs=["9.0"])
    healthy = with_environment(gpus())
    survey["services"] = worlds.kept(service, seen=healthy)["services"]
    _, said = judged(survey, service)
    assert said == [("note", "PF-STACK-NO-KERNELS")]


def test_cuda_compat_in_the_environment_of_a_service_on_a_geforce_is_refused():
    service = worlds.gpu_service(environment={"LD_LIBRARY_PATH": "/usr/local/cuda-13.0/compat"})
    seen, said = judged(with_environment(gpus()), service)
    assert said == [("refuse", "PF-STACK-COMPAT")]
    assert (seen["action"], seen["sets"][0]["right"]) == ("repair", []), "nothing else is to be installed"


def test_of_an_environment_that_was_imported_here_python_and_c_library_are_proven():
    survey = with_environment(gpus(glibc="2.27"), python="3.10.12")
    assert judged(survey, worlds.gpu_service())[1] == []
    survey["runtimes"][worlds.RUNTIME]["vllm"] = ""
    said = judged(survey, worlds.gpu_service())[1]
    assert said == [("refuse", "PF-STACK-PYTHON"), ("refuse", "PF-STACK-GLIBC")]


@pytest.mark.parametrize(
    ("toolkit", "wanted", "found"),
    [
        ("12.4", "none", []),
        ("12.4", "system", [("warn", "PF-STACK-TOOLKIT")]),
        ("", "system", [("warn", "PF-STACK-TOOLKIT")]),
        ("13.0.2", "system", []),
        ("13.0.2", "pip", [("warn", "PF-STACK-TOOLKIT")]),  # that of the environment is meant, which has none
    ],
)
def test_a_compiler_of_the_host_must_be_of_torchs_own_cuda(toolkit, wanted, found):
    _, said = judged(with_environment(gpus(cuda_toolkit=toolkit)), worlds.gpu_service(), cuda_toolkit=wanted)
    assert said == found


def test_a_service_may_want_another_cuda_than_its_host():
    service = worlds.gpu_service(runtime_path="/opt/other", vllm_release="0.20.0", stack={"torch": "", "cuda": "12.9"})
    seen, _ = judged(gpus(), service, cuda="12.6")
    assert (seen["sets"][0]["torch"], seen["sets"][0]["cuda"]) == ("2.11.0", "12.9")


@pytest.mark.parametrize(
    ("dtk", "python", "torch", "found"),
    [
        ("25.04.1", "3.10.12", "2.5.1+das.opt1.dtk25041", []),
        ("26.04", "3.10.12", "2.5.1+das.opt1.dtk25041", [("refuse", "PF-STACK-DTK"), ("warn", "PF-STACK-DTK")]),
        ("25.04.1", "3.10.12", "2.9.1+cu128", [("refuse", "PF-STACK-BUILD")]),
    ],
)
def test_dcus_are_judged_by_driver_dtk_and_the_vendors_wheels(dtk, python, torch, found):
    survey = worlds.hygon()
    survey["stack"] = host(dtk={"path": "/opt/dtk", "version": dtk})
    held = {"torch": torch, "vllm": "0.9.2+das.opt1.beta.dtk25041", "transformers": "4.51.3"}
    variant = {"cuda": "12.8", "variant": "cuda"} if "cu" in torch else {"cuda": "", "variant": "hip", "hip": "6.3"}
    environment = contents(python=python, archs=[], **variant)
    environment["packages"] = held
    survey["runtimes"] = {
        worlds.RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": held["vllm"], "contents": environment}
    }
    seen, said = judged(survey, worlds.dcu_service())
    assert said == found
    assert seen["action"] == ("upgrade" if any(severity == "refuse" for severity, _ in found) else "keep")
    assert seen["sets"][0]["cards"] == "8 x K100_AI"


def test_for_dcus_the_vendors_wheels_are_named_by_their_files():
    survey = worlds.hygon()
    survey["stack"] = host(dtk={"path": "/opt/dtk", "version": "25.04.2"})
    held = contents(python="3.10.12", archs=[], cuda="12.8")
    held["packages"] = {"torch": "2.9.1+cu128", "vllm": "0.14.1"}
    survey["runtimes"] = {worlds.RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": "0.14.1", "contents": held}}
    seen, found = judged(survey, worlds.dcu_service())
    assert found == [("refuse", "PF-STACK-BUILD")]
    right = seen["sets"][0]["right"][0]
    assert right["needs_root"] is False
    assert right["words"] == (
        "vllm-0.11.0+das.opt1.alpha.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl and "
        "torch-2.5.1+das.opt1.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl"
    )


def test_where_there_is_no_card_of_the_kind_nothing_is_kept():
    seen, _ = judged(worlds.survey(), worlds.gpu_service())
    assert (seen["action"], seen["sets"][0]["cards"]) == ("refuse", "-")


def test_the_graphics_unit_of_a_processor_is_no_card_to_judge():
    seen, _ = judged(worlds.with_graphics(gpus()))
    assert [one["backend"] for one in seen["sets"]] == ["nvidia"]


def test_every_reason_that_a_rule_can_give_has_an_id_and_every_id_a_rule():
    sources = [module.__file__ for module in (rules, dcu_rules, states, verdict, nearest)]
    texts = "\n".join(open(path, encoding="utf-8").read() for path in sources)  # noqa: PTH123, SIM115
    import re  # noqa: PLC0415

    given = set(re.findall(r'Reason\(\s*"([a-z-]+)"', texts))
    assert given == set(stack_checks.IDS)
    assert set(stack_checks.IDS.values()) == {id for id in CATALOGUE if id.startswith("PF-STACK-")}


def test_the_report_has_a_row_for_each_set_each_finding_once_and_what_to_install():
    old = dict.fromkeys(("loaded", "on_disk", "library"), "550.163.01")
    hosts = {}
    for name, survey in (
        ("a", gpus(driver={**old, "flavour": "open"})),
        ("b", gpus(driver={**old, "flavour": "open"})),
        ("c", worlds.survey()),
    ):
        survey["host"]["name"] = name
        intent = {**worlds.intent(stack={"vllm": "0.33.0"}), "services": []}
        plan = planner.plan(intent, survey)
        hosts[name] = {"verdict": plan["stack"], "findings": [f for f in plan["findings"] if text.concerns(f["id"])]}
    hosts["d"] = {"verdict": None, "findings": []}
    lines = text.report(hosts).splitlines()
    assert lines[0] == "Stack of 4 host(s): 1 none, 2 upgrade, 1 unknown"
    assert lines[2].split("  ")[1] == "a"
    assert "Ubuntu 24.04.3 LTS" in lines[2]
    assert lines[2].endswith("upgrade")
    assert sum("PF-STACK-CUDA-DRIVER  a:nvidia, b:nvidia" in line for line in lines) == 1
    assert "  right  a, an admin: driver 580.178.04 (branch 580, open kernel modules)" in lines
    assert any(
        "packages of Canonical's archive, modules signed by the distribution: linux-modules-nvidia-580" in line for line in lines
    )


def test_a_switch_of_the_inventory_changes_the_severity_of_a_rule():
    old = dict.fromkeys(("loaded", "on_disk", "library"), "550.163.01")
    intent = worlds.intent(worlds.gpu_service(), checks={"PF-STACK-CUDA-DRIVER": "warn"})
    plan = planner.plan(intent, with_environment(gpus(driver={**old, "flavour": "open"})))
    assert {f["id"]: f["severity"] for f in plan["findings"]}["PF-STACK-CUDA-DRIVER"] == "warn"
    assert TABLES is tables.stack()
