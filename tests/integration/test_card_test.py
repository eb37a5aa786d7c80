"""The role card_test on this machine: Ansible, the module and the processes are real, and so is torch where it says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.plan import card_test_request
from ansible_collections.modelyard.core.plugins.module_utils.survey import card_test
from cases import always
from e2e_site import make_site
from harness import BIN, ROOT, RUNTIMES

PROGRAMS = ROOT / "roles/card_test/files"
PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: card_test}
    - ansible.builtin.debug: {msg: went on}
"""


def made() -> list[Path]:
    """Runtimes of this checkout that are whole, the newest last."""
    return sorted((p.parent for p in RUNTIMES.glob("*/modelyard.json")), key=lambda p: (p / "modelyard.json").stat().st_mtime)


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with torch; made by a deploy where there is none yet, which the end-to-end tests then use."""
    if not made():
        run = make_site(tmp_path_factory.mktemp("site"), "card-test-runtime", 1, 2).play("deploy", "--tags runtime")
        assert run.rc == 0, run.output[-3000:]
    return made()[-1]


@pytest.fixture
def no_torch(tmp_path: Path) -> Path:
    """A Python environment without torch."""
    folder = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def cores(count: int) -> list[int]:
    """So many cores of this machine, the same one again where it has fewer."""
    there = sorted(os.sched_getaffinity(0))
    return (there * count)[:count]


def service(runtime: Path, ranks: int = 1, **environment: str) -> dict[str, Any]:
    """A service of a plan, as far as the test of its cards needs it."""
    instance = {"name": "tested-one/0", "cards": [[core] for core in cores(ranks)], "environment": environment}
    plan = {"name": "tested-one", "action": "start", "backend": "cpu", "visibility": "", "instances": [instance]}
    return {**plan, "runtime": {"path": str(runtime)}}


def play(folder: Path, one: dict[str, Any], *arguments: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run the role for a plan with this service."""
    values = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "plan_result": {
            "host": "host-a",
            "services": [one],
            "survey_json": json.dumps({"cards": {"cpu": [{"index": core} for core in cores(2)]}}),
        },
        "modelyard_intent": {"checks": variables.pop("checks", {})},
        **variables,
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"host-a": values}}}), encoding="utf-8")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    return subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", str(folder / "hosts.yml"), str(folder / "play.yml"), *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_real_tensors_on_one_core_each_and_an_all_reduce_over_two(tmp_path: Path, runtime: Path) -> None:
    run = play(tmp_path, service(runtime, ranks=2))
    assert run.returncode == 0, run.stdout[-3000:]
    rows = [line.split() for line in run.stdout.splitlines() if " pass " in line]
    assert [row[:3] for row in rows] == [
        *(["core", str(core), "pass"] for core in sorted(set(cores(2)))),
        ["all-reduce", "tested-one/0", "pass"],
    ]
    assert "CPU core, torch 2." in run.stdout
    assert "2 ranks, gloo, 16 MiB in" in run.stdout
    assert "changed=0" in run.stdout
    assert "went on" in run.stdout


def test_an_environment_in_which_the_ranks_cannot_meet_is_refused(tmp_path: Path, runtime: Path) -> None:
    run = play(tmp_path, service(runtime, ranks=2, GLOO_SOCKET_IFNAME="nosuch0"))
    assert run.returncode != 0
    assert f"refuse  PF-ALL-REDUCE  host-a:cores {', '.join(map(str, cores(2)))} of tested-one/0" in run.stdout
    assert "Unable to find address for: nosuch0" in run.stdout
    assert "the network interface that GLOO_SOCKET_IFNAME" in run.stdout
    assert "The start on host-a was refused: PF-ALL-REDUCE." in run.stdout
    assert "No engine was started or stopped." in run.stdout
    assert "went on" not in run.stdout


def test_a_rank_that_is_killed_half_way_is_named_and_the_other_does_not_wait_for_ever(runtime: Path) -> None:
    begin = '    say(stage="all-reduce")\n'
    text = (PROGRAMS / "all_reduce.py").read_text(encoding="utf-8")
    assert begin in text
    text = text.replace(begin, f"{begin}    rank == 1 and os.kill(os.getpid(), 9)\n")
    asked = card_test_request.request(service(runtime, ranks=2))
    began = time.monotonic()
    groups = card_test.each_group(asked["python"], text, "cpu", asked["groups"], 120, [])
    assert time.monotonic() - began < 60
    found, _ = card_test_request.report({"host": "box"}, {"one": asked}, {"one": {"cards": [], "groups": groups}})
    assert [f["what"] for f in found] == [f"rank 1 (core {cores(2)[1]}) was ended by SIGKILL while in an all-reduce"]
    assert [rank["state"] for rank in groups[0]["ranks"]] == ["failed", "crashed"]


def test_a_runtime_for_other_cards_says_so(runtime: Path) -> None:
    asked = card_test_request.request({**service(runtime), "visibility": "CUDA_VISIBLE_DEVICES", "backend": "nvidia"})
    text = (PROGRAMS / "one_card.py").read_text(encoding="utf-8")
    answer = {"cards": card_test.each_card(asked["python"], text, "cuda", asked["cards"], 120, 0), "groups": []}
    found, _ = card_test_request.report({"host": "box"}, {"one": asked}, {"one": answer})
    assert [(f["where"], f["what"]) for f in found] == [
        (f"box:{runtime}", "no tensor can be made with this runtime: Torch not compiled with CUDA enabled"),
    ]


#: Goes before a program: torch is real, its cards are main memory. FAULT says what is wrong with a card.
SIMULATED = """
import os, sys, types
import torch
from torch import distributed

FAULT = os.environ.get("FAULT", "")
properties = types.SimpleNamespace(uuid="1f8b0c4e-0000", gcnArchName="gfx928")


def on_cpu(make):
    def made(*args, **more):
        more.pop("device", None)
        return make(*args, **more)
    return made


def moved(tensor, *args, real=torch.Tensor.to):
    if not str(args[0]).startswith("cuda"):
        return real(tensor, *args)
    if FAULT == "memory":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
    return tensor * 1.01 if FAULT == "wrong" else tensor.clone()


def reached():
    if FAULT == "absent":
        raise RuntimeError("No CUDA GPUs are available")


def chosen(device):
    print(device, file=sys.stderr)


torch.Tensor.to = moved
torch.zeros, torch.ones = on_cpu(torch.zeros), on_cpu(torch.ones)
torch.cuda.init, torch.cuda.set_device = reached, chosen
torch.cuda.device_count = lambda: 2 if FAULT == "more" else 1
torch.cuda.get_device_properties = lambda number: properties
torch.cuda.get_device_name = lambda number: "simulated"
torch.cuda.get_device_capability = lambda number: (8, 9)
torch.cuda.mem_get_info = lambda number: (3 * 2**30, 24 * 2**30)
torch.version.hip = "6.3" if FAULT == "hip" else None
joined = distributed.init_process_group
distributed.init_process_group = lambda backend, **more: joined({"nccl": "gloo"}[backend], **more)
"""


def simulated(program: str) -> str:
    """A program of the role, for simulated accelerators."""
    return SIMULATED + (PROGRAMS / f"{program}.py").read_text(encoding="utf-8")


def test_the_program_for_one_card_on_simulated_accelerators(runtime: Path) -> None:
    faults = ["", "hip", "wrong", "memory", "absent", "more"]
    cards = [{"index": n, "environment": {"FAULT": fault}, "uuid": "GPU-1f8b0c4e-0000"} for n, fault in enumerate(faults)]
    seen = card_test.each_card(f"{runtime}/bin/python", simulated("one_card"), "cuda", cards, 120, 2)
    assert [card_test.judge.card_fault(one, "GPU-1f8b0c4e-0000") for one in seen] == [
        "",
        "",
        "wrong",
        "memory",
        "not_visible",
        "more",
    ]
    assert [one["ok"] for one in seen] == [True, True, False, False, False, False]
    answer = seen[0]["answer"]
    assert (answer["architecture"], answer["name"], answer["free_mib"], answer["total_mib"]) == (
        "sm_89",
        "simulated",
        3072,
        24576,
    )
    assert (seen[1]["answer"]["architecture"], seen[1]["answer"]["build"]) == ("gfx928", "6.3")
    assert seen[3]["answer"]["free_mib"] == 3072


def test_the_program_for_all_ranks_on_simulated_accelerators(runtime: Path) -> None:
    group = {"name": "one/0", "ranks": [{"cards": [n], "environment": {}} for n in (4, 5)]}
    (seen,) = card_test.each_group(f"{runtime}/bin/python", simulated("all_reduce"), "cuda", [group], 120, [])
    assert seen["state"] == "passed", seen
    assert [rank["said"] for rank in seen["ranks"]] == [["cuda:0"], ["cuda:1"]]
    assert [rank["answer"]["backend"] for rank in seen["ranks"]] == ["nccl", "nccl"]


def test_a_runtime_without_torch_is_said_once_for_all_cards(tmp_path: Path, no_torch: Path) -> None:
    run = play(tmp_path, service(no_torch, ranks=2))
    assert run.returncode != 0
    assert run.stdout.count("refuse  PF-CARD-TEST") == 1
    assert f"PF-CARD-TEST  host-a:{no_torch}" in run.stdout
    assert "no tensor can be made with this runtime: No module named 'torch'" in run.stdout
    assert "did not pass alone" in run.stdout
    assert "went on" not in run.stdout


@pytest.mark.further
def test_a_severity_of_the_inventory_counts(tmp_path: Path, no_torch: Path) -> None:
    run = play(tmp_path, service(no_torch), checks={"PF-CARD-TEST": "warn"})
    assert run.returncode == 0, run.stdout[-3000:]
    assert "warn  PF-CARD-TEST" in run.stdout
    assert "went on" in run.stdout


@pytest.mark.parametrize(
    ("action", "arguments", "variables"),
    always(1, [("start", ["--check"], {}), ("start", [], {"card_test_enabled": False}), ("keep", [], {})]),
    ids=["check mode", "switched off", "nothing to start"],
)
def test_nothing_is_run_when_nothing_is_to_be_tested(
    tmp_path: Path, no_torch: Path, action: str, arguments: list[str], variables: dict[str, Any]
) -> None:
    run = play(tmp_path, {**service(no_torch), "action": action}, *arguments, **variables)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "Card test of" not in run.stdout
    assert "PF-CARD-TEST" not in run.stdout
    assert "went on" in run.stdout


def test_a_service_that_the_plan_does_not_have_is_said(tmp_path: Path, no_torch: Path) -> None:
    run = play(tmp_path, service(no_torch), card_test_services=["tested-on"])
    assert run.returncode != 0
    assert "the plan for host-a has no service tested-on; it has tested-one" in run.stdout + run.stderr
