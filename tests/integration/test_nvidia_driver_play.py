"""playbooks/stack.yml where it is asked to change the driver: real apt and dpkg, stand-ins for the packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import machine
from driver_site import NEW, OLD, SET, Site
from harness import BIN, ROOT
from stand_in_packages import Package

pytestmark = [
    pytest.mark.skipif(not shutil.which("dpkg-deb") or not shutil.which("apt-get"), reason="needs apt and dpkg"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a driver is changed by root"),
    pytest.mark.skipif(machine.container(Path("/")) != "", reason="the driver of a container is its machine's: refused there"),
]


def play(tmp_path: Path, site: Site, *arguments: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """As an admin calls it; a second host of the run has no cards."""
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "modelyard_home": str(tmp_path / "home"),
    }
    server = {
        "modelyard_sysroot": str(site.root),
        "modelyard_tool_path": [str(site.apt.bin)],
        "nvidia_driver_boot_mib": 1,
        "nvidia_driver_usr_mib": 1,
        **variables,
    }
    hosts = {"server1": {**common, **server}, "plain1": {**common, "modelyard_sysroot": str(tmp_path / "empty")}}
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    return subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", str(file), "playbooks/stack.yml", *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def test_asked_for_it_is_planned_installed_kept_and_the_reboot_is_a_persons(tmp_path: Path) -> None:
    site = Site(tmp_path, OLD, NEW)
    site.apt.offer(Package("cuda-toolkit-13-0", "13.0.2-1"))
    asked = ("-e", "nvidia_driver_state=pinned")
    wish = {"driver": OLD, "vllm": "0.33.0", "cuda_toolkit": "system"}
    toolkit = ("-e", "cuda_toolkit_state=installed", "-e", "cuda_toolkit_usr_mib=1")

    checked = play(tmp_path, site, *asked, *toolkit, "--check", "--diff", modelyard_stack=wish)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"server1: would do  install: install libnvidia-compute-580-server {OLD}" in checked.stdout
    assert "+install:" in checked.stdout
    assert "plain1: the driver is not changed: there is no NVIDIA card on the bus" in checked.stdout
    assert site.apt.installed() == {}
    assert not (tmp_path / "home").exists()

    done = play(tmp_path, site, *asked, *toolkit, modelyard_stack=wish)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "server1: did  load: load the module" in done.stdout
    assert "server1: did  install: install cuda-toolkit-13-0 13.0.2-1" in done.stdout
    assert set(site.apt.installed()) == {*SET, "cuda-toolkit-13-0"}
    assert not (tmp_path / "home/lock").exists()

    foreseen = site.change(NEW, check=True)
    assert foreseen.reboot == f"driver {OLD} is loaded, {NEW} is installed"
    waiting = play(tmp_path, site, *asked, modelyard_stack={"driver": NEW})
    assert waiting.returncode == 2
    assert f"installed, reboot needed: driver {OLD} is loaded, {NEW} is installed" in waiting.stdout
    assert "the same again with -e confirm_reboot=server1. Nothing was rebooted" in waiting.stdout
    assert site.text("sys/module/nvidia/version").strip() == OLD

    # Confirmed: the host is this machine itself, which the run never reboots.
    refused = play(tmp_path, site, *asked, "-e", "confirm_reboot=server1", modelyard_stack={"driver": NEW})
    assert refused.returncode == 2
    assert "this run itself works on that machine" in refused.stdout
    assert refused.stdout.count("changed=0") == 2
