"""The same change on a host of the RHEL family: the real dnf and rpm, in a root of their own with stand-ins for the packages."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from driver_site import KERNEL, LOAD, NEW, OLD, Site
from stand_in_packages import Package
from stand_in_rpms import PROGRAMS, DnfRoot

pytestmark = [
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason=f"needs {', '.join(PROGRAMS)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a driver is changed by root"),
]
NAMES = (("nvidia-open",),)


def packages(version: str) -> list[Package]:
    """The set of NVIDIA's repository at one version; its parts ask for each other without one."""
    module = gzip.compress(f"\x7fELF\0license=Dual MIT/GPL\0version={version}\0".encode(), mtime=0)
    folder = f"lib/modules/{KERNEL}"
    files = {f"{folder}/extra/nvidia.ko.gz": module, f"{folder}/modules.dep": "extra/nvidia.ko.gz:\n"}
    epoch = {"Epoch": "3"}
    return [
        Package("nvidia-open", version, {**epoch, "Requires": "nvidia-driver-cuda, kmod-nvidia-open-dkms"}),
        Package("nvidia-driver-cuda", version, epoch),
        Package("kmod-nvidia-open-dkms", version, epoch, files=files),
    ]


class RpmSite(Site):
    """A Rocky Linux in place of the Ubuntu."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for path in ("var/lib/dpkg", "etc/apt"):
            shutil.rmtree(self.root / path)
        shutil.rmtree(folder / "bin")
        shutil.rmtree(folder / "repository")
        self.dnf = DnfRoot(folder, self.root)
        self.write("etc/os-release", 'ID=rocky\nVERSION_ID="9.6"\nPRETTY_NAME="Rocky Linux 9.6"\n')
        load = LOAD.format(root=self.root, kernel=KERNEL).replace("/updates/", "/extra/")
        self.dnf.program("modprobe", load)


def test_dnf_installs_one_version_locks_it_and_moves_it_as_one(tmp_path: Path) -> None:
    site = RpmSite(tmp_path)
    site.dnf.offer(*packages(OLD), *packages(NEW))
    done = site.change(OLD, NAMES)
    assert (done.findings, done.reboot) == ([], "")
    assert [step.kind for step in done.steps] == ["install", "hold", "load"]
    locks = site.text("etc/dnf/plugins/versionlock.list")
    assert {
        name for name in ("nvidia-open", "nvidia-driver-cuda", "kmod-nvidia-open-dkms") if f"{name}-3:{OLD}-1.el9" in locks
    } == {
        "nvidia-open",
        "nvidia-driver-cuda",
        "kmod-nvidia-open-dkms",
    }
    again = site.change(OLD, NAMES)
    assert (again.findings, again.steps) == ([], [])
    newer = site.change(NEW, NAMES)
    assert newer.findings == []
    assert newer.reboot == f"driver {OLD} is loaded, {NEW} is installed"
    locks = site.text("etc/dnf/plugins/versionlock.list")
    assert f"nvidia-driver-cuda-3:{NEW}-1.el9" in locks
    assert OLD not in locks


def test_dnfs_dry_run_that_brings_a_kernel_and_replaces_a_strangers_package_is_refused(tmp_path: Path) -> None:
    site = RpmSite(tmp_path)
    site.dnf.offer(Package("gpu-monitor", "1"))
    site.dnf.offer(
        *(package for package in packages(NEW) if package.name != "nvidia-driver-cuda"),
        Package("nvidia-driver-cuda", NEW, {"Epoch": "3", "Requires": "kernel-core", "Obsoletes": "gpu-monitor < 2"}),
        Package("kernel-core", "5.99.0"),
    )
    subprocess.run(
        [site.dnf.bin / "dnf", "-q", "-y", "--exclude=*nvidia*", "install", "gpu-monitor"], check=True, capture_output=True
    )
    refused = site.change(NEW, NAMES)
    assert [item["id"] for item in refused.findings] == ["DR-KERNEL", "DR-TRANSACTION"]
    assert "install kernel-core 5.99.0-1.el9" in refused.findings[0]["what"]
    assert "remove gpu-monitor 1-1.el9" in refused.findings[1]["what"]
    there = subprocess.run(["rpm", "--root", site.root, "-qa"], check=True, capture_output=True, text=True).stdout
    assert there.split() == ["gpu-monitor-1-1.el9.x86_64"]
    vanished = site.change("580.65.06", NAMES)
    assert [item["id"] for item in vanished.findings] == ["DR-VERSION"]
    assert f"nvidia-open 3:{NEW}-1.el9" in vanished.findings[0]["what"]
