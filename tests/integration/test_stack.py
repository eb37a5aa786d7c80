"""playbooks/stack.yml as an admin calls it: simulated cards, files of drivers, and one report on all hosts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import BIN, ROOT
from simulators.install import install

STORY = {"driver": "470.199.02", "torch": "2.3.0", "cuda": "12.1"}


def play(inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As an admin calls it."""
    return subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", str(inventory), "playbooks/stack.yml", "--check", *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    """The files of an Ubuntu server with two RTX 4090, whose next kernel has no module of the driver."""
    root = tmp_path / "gpus"
    install(root, "2x4090")
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n', encoding="utf-8")
    (root / "boot").mkdir()
    for release in (os.uname().release, "99.1.0-1-generic"):
        (root / "lib/modules" / release).mkdir(parents=True, exist_ok=True)
        (root / "boot" / f"vmlinuz-{release}").touch()
    return root


def inventory(tmp_path: Path, **hosts: dict[str, object]) -> Path:
    """Hosts that are all this machine, each with its own variables."""
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "modelyard_home": str(tmp_path / "home"),
    }
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps({"all": {"hosts": {name: {**common, **own} for name, own in hosts.items()}}}), encoding="utf-8")
    return file


def rows(text: str) -> dict[str, list[str]]:
    """The table by host: its cells."""
    lines = text[text.index("Stack of ") :].splitlines()[2:]
    found = {}
    for line in lines:
        cells = [cell for cell in line.strip().split("  ") if cell]
        if len(cells) < 8:
            break
        found[cells[0]] = [cell.strip() for cell in cells]
    return found


def test_every_host_has_its_verdict_in_one_report_and_nothing_is_changed(tmp_path: Path, gpus: Path) -> None:
    dcus = tmp_path / "dcus"
    install(dcus, "8xk100ai")
    report = tmp_path / "stack.json"
    hosts = inventory(
        tmp_path,
        fits={"modelyard_sysroot": str(gpus), "modelyard_stack": {"driver": "580", "vllm": "0.33.0"}},
        story={"modelyard_sysroot": str(gpus), "modelyard_stack": STORY},
        dcus={"modelyard_sysroot": str(dcus)},
        none={"modelyard_sysroot": str(tmp_path / "empty")},
        away={"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
    )
    run = play(hosts, "-e", f"stack_json={report}")
    assert run.returncode == 2, run.stdout + run.stderr
    table = rows(run.stdout)
    assert {name: cells[-1] for name, cells in table.items()} == {
        "fits": "keep",
        "story": "refuse",
        "dcus": "keep",
        "none": "none",
        "away": "unknown",
    }
    assert table["fits"][1:4] == ["Ubuntu 24.04.3 LTS", "2 x GeForce RTX 4090", "580.95.05 open, pinned"]
    assert table["fits"][5:7] == ["0.33.0", "2.14.0 (CUDA 13.0)"]
    assert table["dcus"][2] == "8 x K100_AI"
    assert "driver 470.199.02 does not know the GeForce RTX 4090: the first one that does is 520.56.06" in run.stdout
    assert "PF-STACK-NEXT-KERNEL  fits:nvidia driver, story:nvidia driver" in run.stdout
    assert run.stdout.count("changed=0") == 5
    assert not (tmp_path / "home").exists()
    written = json.loads(report.read_text(encoding="utf-8"))["hosts"]
    assert written["story"]["verdict"]["sets"][0]["right"][0]["words"] == "driver 580.95.05 (branch 580), which is loaded already"
    assert written["away"]["verdict"] is None
    assert report.stat().st_mode & 0o077 == 0


def test_without_a_driver_the_right_branch_and_its_packages_are_named(tmp_path: Path, gpus: Path) -> None:
    for path in ("sys/module/nvidia", "proc/driver/nvidia", "usr/bin/nvidia-smi", "usr/lib/x86_64-linux-gnu", "lib/modules"):
        shutil.rmtree(gpus / path, ignore_errors=True)
        (gpus / path).unlink(missing_ok=True)
    hosts = inventory(
        tmp_path,
        story={"modelyard_sysroot": str(gpus), "modelyard_stack": STORY},
        bare={"modelyard_sysroot": str(gpus), "modelyard_stack": {"vllm": "0.33.0"}},
    )
    run = play(hosts)
    assert run.returncode == 2, run.stdout + run.stderr
    table = rows(run.stdout)
    assert (table["story"][-1], table["bare"][-1]) == ("refuse", "install")
    assert table["story"][3] == "470.199.02 proprietary wanted, none loaded"
    assert "right  story, an admin: driver 580.178.04 (branch 580, open kernel modules)" in run.stdout
    assert "linux-modules-nvidia-580-server-open-generic, nvidia-headless-no-dkms-580-server-open" in run.stdout
    assert run.stdout.count("failed=1") == 1, "only the story is refused; what is missing on the other one is a plan"
