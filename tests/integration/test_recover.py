"""Resets and recoveries as an admin calls them. Cards are simulated; playbooks, processes, locks and files are the real thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import always
from harness import ROOT, Run, Site, end
from simulators.engine.install import complete_model
from simulators.install import install

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may reset a card")
HOLD = "import sys, time; files = [open(path) for path in sys.argv[1:]]; print('open', flush=True); time.sleep(600)"


@pytest.fixture
def sim(tmp_path: Path) -> Any:
    return install(tmp_path / "sim", "2x4090", python=sys.executable)


@pytest.fixture
def site(tmp_path: Path, sim: Any) -> Site:
    """A host with two simulated cards, and nothing that is wanted of it."""
    return Site(tmp_path, [], {"modelyard_sysroot": str(sim.root), "modelyard_runtimes_dir": str(tmp_path / "runtimes")})


@pytest.fixture
def holder(sim: Any) -> Iterator[Any]:
    """Starts processes that have a card open."""
    started = []

    def hold(card: int) -> subprocess.Popen[bytes]:
        path = str(sim.root / f"dev/nvidia{card}")
        process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        return process

    yield hold
    for process in started:
        assert process.poll() is None, "the stranger was ended"
        end(process)


def memory(sim: Any) -> list[int]:
    """MiB in use on each card, by the tool's word."""
    command = [str(sim.bin / "nvidia-smi"), "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(line) for line in said.split()]


def wanted(site: Site, **changes: Any) -> dict[str, Any]:
    """A service over both cards, with an environment and a model that are there as far as names go."""
    environment, model = site.folder / "environment", site.folder / "model"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(sys.executable)
    model.mkdir()
    complete_model(model, max_position_embeddings=4096)
    return {
        "name": "on-two-cards",
        "backend": "nvidia",
        "model": {"id": "tiny", "path": str(model)},
        "topology": {"tensor_parallel_size": 2},
        "runtime_path": str(environment),
        **changes,
    }


def untouched(site: Site, run: Run) -> bool:
    return run.rc != 0 and run.changed == 0 and not site.home.exists()


@NEEDS_ROOT
def test_a_confirmed_card_is_reset_and_only_that_one(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 30000)
    run = site.play("recover", confirm_gpu_reset="host-a:1")
    assert memory(sim) == [30004, 4]
    assert "host-a: did " in run.output
    assert "nvidia-smi --gpu-reset -i GPU-" in run.output
    assert "host-a: card 1 answers: ok, 4 MiB in use" in run.output
    # The other card is still not as it should be, so the recovery goes no further.
    assert run.rc != 0
    assert "PF-MEMORY-HELD  host-a:card 0" in run.output
    assert not (site.home / "lock").exists()


@NEEDS_ROOT
@pytest.mark.further
def test_two_cards_are_reset_at_once(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 30000)
    run = site.play("recover", confirm_gpu_reset="host-a:0,host-a:1")
    assert run.rc == 0, run.output[-4000:]
    assert memory(sim) == [4, 4]


def test_without_the_word_of_a_person_nothing_is_ever_reset(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 30000, card=1)
    site.services = [wanted(site)]
    run = site.play("recover")
    assert untouched(site, run)
    assert memory(sim) == [4, 30004]
    assert "RC-BASELINE  host-a:card 1 (0000:02:00.0)" in run.output
    assert "-e confirm_gpu_reset=host-a:1" in run.output
    assert "Card test" not in run.output


@pytest.mark.parametrize(
    ("said", "words"),
    always(
        1,
        [
            ("host-b:1", "host-b is no host of this run; there are: host-a"),
            ("host-a:2", "host-a has no card 2; its cards: 0 (nvidia), 1 (nvidia)"),
            ("host-a:1,host-a:7", "host-a has no card 7"),
            ("host-a", "'host-a' does not name a host and a card"),
        ],
    ),
)
def test_a_typo_is_refused_before_anything(site: Site, sim: Any, said: str, words: str) -> None:
    sim.set("memory_stays", 30000)
    run = site.play("recover", confirm_gpu_reset=said)
    assert untouched(site, run)
    assert "RC-CONFIRM" in run.output
    assert words in run.output
    assert memory(sim) == [30004, 30004]


def test_a_confirmation_that_stands_in_the_inventory_is_refused(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 30000)
    site.variables["confirm_gpu_reset"] = "host-a:1"
    run = site.play("recover")
    assert untouched(site, run)
    assert "confirm_gpu_reset stands in the inventory" in run.output
    assert memory(sim) == [30004, 30004]


@NEEDS_ROOT
def test_check_mode_shows_the_command_and_resets_nothing(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 30000, card=1)
    run = site.play("recover", "--check", confirm_gpu_reset="host-a:1")
    assert run.rc == 0, run.output[-4000:]
    assert "host-a: would run " in run.output
    assert "nvidia-smi --gpu-reset -i GPU-" in run.output
    assert memory(sim) == [4, 30004]
    assert not site.home.exists()


@NEEDS_ROOT
def test_a_card_that_somebody_has_open_is_not_reset(site: Site, sim: Any, holder: Any) -> None:
    stranger = holder(1)
    sim.set("memory_stays", 30000)
    run = site.play("recover", confirm_gpu_reset="host-a:0,host-a:1")
    assert run.rc != 0
    assert "RC-RESET  host-a:card 1 (0000:02:00.0)" in run.output
    assert f"it is in use by pid {stranger.pid} of user" in run.output
    assert "RC-RESET  host-a:card 0" not in run.output
    assert "Nothing was reset." in run.output
    assert memory(sim) == [30004, 30004 + 14000]
    assert not (site.home / "lock").exists()


REFUSED = [
    (["reset_refused=in_use"], "In use by another client", "no proof of a job that was left over"),
    (["reset_refused=not_supported"], "Not Supported", "trying again changes nothing"),
    (["reset_refused=primary_gpu"], "is the primary GPU", "draws the console's picture"),
    (["reset_useless", "needs_reset"], "it was reset and does not answer well: needs_reset", "look into the kernel log"),
]


@NEEDS_ROOT
@pytest.mark.parametrize(("faults", "said", "meaning"), always(1, REFUSED), ids=[case[0][0] for case in REFUSED])
def test_a_reset_that_does_not_work_is_explained(site: Site, sim: Any, faults: Any, said: str, meaning: str) -> None:
    for fault in faults:
        name, _, value = fault.partition("=")
        sim.set(name, value or None, card=1)
    run = site.play("recover", confirm_gpu_reset="host-a:1")
    assert run.rc != 0
    assert "RC-RESET-FAILED  host-a:card 1" in run.output
    assert said in run.output
    assert meaning in run.output
    assert "unload and load the driver's modules" in run.output
    assert "It was tried: " in run.output
    assert not (site.home / "lock").exists()


@NEEDS_ROOT
@pytest.mark.further
def test_persistence_mode_refuses_by_itself_and_how_it_lets_go_is_said(site: Site, sim: Any) -> None:
    sim.persistence(True, card=1)
    run = site.play("recover", confirm_gpu_reset="host-a:1")
    assert run.rc != 0
    assert "nvidia-smi -pm 0 -i GPU-" in run.output


@NEEDS_ROOT
def test_a_reset_that_hangs_is_given_up(site: Site, sim: Any) -> None:
    sim.set("hang", "--gpu-reset")
    run = site.play("recover", confirm_gpu_reset="host-a:1", recover_reset_limit_s=2)
    assert run.rc != 0
    assert "the reset did not come to an end" in run.output
    assert "had not ended after 2 s" in run.output
    shown = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    assert [line for line in shown.splitlines() if f"{sim.root}" in line and "--gpu-reset" in line] == []


@NEEDS_ROOT
def test_a_reset_waits_for_nobody_who_works_there(site: Site, sim: Any) -> None:
    sim.set("memory_stays", 30000, card=1)
    site.home.mkdir()
    (site.home / "lock").write_text(json.dumps({"run": "x", "what": "deploy", "by": "ann", "since": "now"}), encoding="utf-8")
    run = site.play("recover", confirm_gpu_reset="host-a:1")
    assert run.rc != 0
    assert "PF-LOCK-HELD" in run.output
    assert memory(sim) == [4, 30004]
    assert (site.home / "lock").exists()


def test_baseline_findings_come_all_at_once_and_nothing_else_is_tried(site: Site, sim: Any, holder: Any) -> None:
    stranger = holder(0)
    sim.set("needs_reset", card=1)
    site.services = [wanted(site)]
    run = site.play("recover")
    assert untouched(site, run)
    for place in ("card 0 (0000:01:00.0)", "card 1 (0000:02:00.0)"):
        assert f"RC-BASELINE  host-a:{place}" in run.output
    assert f"still on it: pid {stranger.pid} of user" in run.output
    assert "its health is needs_reset" in run.output
    assert "PF-RUNTIME-BROKEN" in run.output
    assert "Nothing was started or stopped." in run.output


def test_only_the_hosts_of_the_confirmation_reset_something(site: Site) -> None:
    path = site.inventory
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("host-a:", "host-a: &host", 1) + "    host-c: *host\n", encoding="utf-8")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(path), "playbooks/recover.yml"]
    done = subprocess.run(
        [*command, "-e", "confirm_gpu_reset=host-c:1", "--check"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == (0 if os.geteuid() == 0 else 2), done.stdout[-3000:]
    assert "host-a: would run" not in done.stdout
    assert "host-c: would run" in done.stdout or os.geteuid() != 0
