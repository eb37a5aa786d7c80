"""A change of the driver by the real apt and dpkg, in a root of its own with stand-ins for the packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.process import toolkit
from ansible_collections.modelyard.core.plugins.module_utils.process.packages import exact
from driver_site import COMMON, HEADLESS, KERNEL, LIBRARY, MODULES, NEW, OLD, SET, UTILS, Site, packages
from stand_in_packages import Package

FULL = f"{NEW}-0ubuntu0.24.04.1"

pytestmark = [
    pytest.mark.skipif(not shutil.which("dpkg-deb") or not shutil.which("apt-get"), reason="needs apt and dpkg"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a driver is changed by root"),
]


def said(outcome):
    return [(item["id"], item["what"]) for item in outcome.findings]


def kinds(outcome):
    return [step.kind for step in outcome.steps]


def test_from_nothing_to_a_driver_that_is_loaded_and_held_and_then_nothing_more(tmp_path: Path) -> None:
    site = Site(tmp_path, OLD, NEW)
    site.write("etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    site.write("usr/bin/unattended-upgrade", "")
    before = site.apt.installed()
    planned = site.change(OLD, check=True)
    assert (planned.findings, planned.done) == ([], False)
    assert kinds(planned)[:2] == ["install", "hold"]
    assert site.apt.installed() == before
    assert not (site.root / "etc/apt/apt.conf.d/52modelyard-nvidia").exists()

    # The older version, while the newest is what apt would take for everything that was not named.
    done = site.change(OLD)
    assert (done.findings, done.reboot) == ([], "")
    assert kinds(done) == ["install", "hold", "spare", "load", "units"]
    there = site.apt.installed()
    assert set(there) == SET
    assert {name: version for name, version in there.items() if name != MODULES} == dict.fromkeys(
        SET - {MODULES}, f"{OLD}-0ubuntu0.24.04.1"
    )
    assert set(site.apt.run("apt-mark", "showhold").split()) == SET
    assert '"^libnvidia-";' in site.text("etc/apt/apt.conf.d/52modelyard-nvidia")
    assert "enable --now nvidia-persistenced.service" in site.text("systemctl.log")
    again = site.change(OLD)
    assert (again.findings, again.steps, again.reboot) == ([], [], "")

    # Another version: the held set moves as one, and the loaded module is left alone.
    newer = site.change(NEW)
    assert newer.findings == []
    assert newer.reboot == f"driver {OLD} is loaded, {NEW} is installed"
    assert {version for name, version in site.apt.installed().items() if name != MODULES} == {FULL}
    assert set(site.apt.run("apt-mark", "showhold").split()) == SET
    assert site.text("sys/module/nvidia/version").strip() == OLD
    again = site.change(NEW)
    assert (again.findings, again.steps) == ([], [])
    assert again.reboot == newer.reboot


def test_what_the_dry_run_would_do_beside_is_refused_before_and_all_at_once(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.apt.offer(*packages("535.261.03", branch="535"))
    site.apt.offer(Package("stranger-app", "1", {"Depends": "nvidia-utils-535-server"}))
    site.apt.run("apt-get", "-y", "install", "stranger-app")
    set_580 = [p for p in packages(NEW) if p.name not in (HEADLESS, MODULES)]
    kernel = Package("linux-image-99.0.0-1-generic", "99.0.0-1.1")
    site.apt.offer(
        *set_580,
        kernel,
        Package(MODULES, "6.8.0-88.90", {"Depends": f"{COMMON}, linux-image-99.0.0-1-generic"}),
        Package(HEADLESS, FULL, {"Depends": "nvidia-firmware-590-server"}),
        Package("nvidia-firmware-590-server", "590.48.01-0ubuntu1"),
    )
    before = site.text("var/lib/dpkg/status")
    refused = site.change()
    assert [id for id, _ in said(refused)] == ["DR-KERNEL", "DR-TRANSACTION", "DR-TRANSACTION"]
    assert "install linux-image-99.0.0-1-generic 99.0.0-1.1" in refused.findings[0]["what"]
    assert "remove stranger-app 1" in refused.findings[1]["what"]
    assert "nvidia-utils-535-server" not in refused.findings[1]["what"], "that the old branch goes is what was asked for"
    assert "nvidia-firmware-590-server 590.48.01-0ubuntu1" in refused.findings[2]["what"]
    assert not refused.done
    assert site.text("var/lib/dpkg/status") == before


def test_a_version_that_vanished_is_named_with_what_there_is(tmp_path: Path) -> None:
    site = Site(tmp_path, NEW)
    (found,) = site.change("580.65.06").findings
    assert found["id"] == "DR-VERSION"
    assert f"{UTILS} (offered: {UTILS} {FULL})" in found["what"]
    # A part of the set alone has vanished: apt would take it from another version.
    site.apt.offer(*packages(OLD))
    site.apt.withdraw(LIBRARY, f"{OLD}-0ubuntu0.24.04.1")
    (found,) = site.change(OLD).findings
    assert found["id"] == "DR-TRANSACTION"
    assert f"install {LIBRARY} {FULL}, which is not of {OLD}" in found["what"]


@pytest.mark.parametrize(("package", "script"), [(LIBRARY, "preinst"), (COMMON, "postinst")])
def test_dpkg_that_was_killed_half_way_is_said_and_the_next_run_goes_on(tmp_path: Path, package: str, script: str) -> None:
    site = Site(tmp_path)
    # Once, as when the machine loses power or somebody ends it: the marker goes first.
    trap = f"if [ -e {site.root}/trap ]; then rm {site.root}/trap; kill -9 $PPID; fi"
    site.apt.offer(*packages(NEW, {package: {script: trap}}))
    site.write("trap", "")
    broken = site.change()
    (found,) = broken.findings
    assert found["id"] == "DR-FAILED"
    assert "modelyard-packages.log" in found["what"]
    assert "run again: it goes on from there" in found["do"]
    assert set(site.apt.installed()) < SET
    planned = site.change(check=True)
    assert kinds(planned)[0] == "configure"
    assert package in planned.steps[0].words
    healed = site.change()
    assert healed.findings == []
    assert set(site.apt.installed()) == SET
    assert site.text("sys/module/nvidia/version").strip() == NEW
    assert site.change().steps == []


def test_a_run_that_is_killed_leaves_apt_at_work_and_the_next_one_waits_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.apt.offer(*packages(NEW, {COMMON: {"postinst": f"touch {site.root}/here; sleep 3"}}))
    child = os.fork()
    if not child:
        site.change()
        os._exit(0)
    end = time.monotonic() + 60
    while not (site.root / "here").exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert set(site.apt.installed()) != SET
    # In between it is somebody's who is at work, and named; who waits longer goes on after it.
    (found,) = site.change(wait_s=0).findings
    assert found["id"] == "DR-LOCK"
    assert "apt-get" in found["what"]
    after = site.change(wait_s=60)
    assert after.findings == []
    assert kinds(after) == ["hold", "load", "units"]
    assert set(site.apt.installed()) == SET


def test_half_installed_packages_of_others_are_their_admins(tmp_path: Path) -> None:
    site = Site(tmp_path, NEW)
    site.apt.offer(Package("database", "1", scripts={"postinst": "exit 1"}))
    site.apt.run("apt-get", "-y", "install", "database", check=False)
    (found,) = site.change().findings
    assert found["id"] == "DR-BROKEN"
    assert "database (half-configured)" in found["what"]
    assert not SET & set(site.apt.installed())


def test_another_run_of_apt_is_waited_for_and_then_named(tmp_path: Path) -> None:
    site = Site(tmp_path, NEW)
    lock = site.root / "var/lib/dpkg/lock-frontend"
    lock.touch()
    child = os.fork()
    if not child:  # a lock of this very process would be none
        with lock.open("r+b") as stream:
            fcntl.lockf(stream, fcntl.LOCK_EX)
            (site.root / "locked").touch()
            time.sleep(30)
        os._exit(0)
    try:
        while not (site.root / "locked").exists():
            os.sched_yield()
        (found,) = site.change().findings
        assert found["id"] == "DR-LOCK"
        assert f"pid {child} of user root" in found["what"]
        assert site.apt.installed() == {}
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert site.change().findings == []


def test_who_has_a_card_open_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    site = Site(tmp_path, OLD, NEW)
    site.change(OLD)
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        site.write(f"dev/{name}", "")
    with (site.root / "dev/nvidiactl").open("r+b"):
        (found,) = site.change(NEW).findings
        assert found["id"] == "DR-IN-USE"
        assert f"pid {os.getpid()} of user root" in found["what"]
        assert site.apt.installed()[UTILS].startswith(OLD)
        assert site.change(OLD).findings == [], "keeping what is there disturbs nobody"
    assert site.change(NEW).findings == []


def test_room_pending_reboot_and_secure_boot_are_all_said_before_anything(tmp_path: Path) -> None:
    site = Site(tmp_path, NEW)
    site.write("run/reboot-required", "")
    site.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\6\0\0\0\1")
    found = site.change(boot_mib=10**9, usr_mib=10**9, signed=False).findings
    assert [item["id"] for item in found] == ["DR-REBOOT-PENDING", "DR-SECURE-BOOT", "DR-ROOM", "DR-ROOM"]
    assert site.apt.installed() == {}
    site.write("var/lib/dkms/mok.pub", "")
    site.apt.program("mokutil", 'echo "$2 is already enrolled"; exit 1')
    found = site.change(signed=False).findings
    assert [item["id"] for item in found] == ["DR-REBOOT-PENDING"], "an enrolled key signs what DKMS builds"


def test_nouveau_is_kept_out_once_and_the_driver_waits_for_the_boot(tmp_path: Path) -> None:
    site = Site(tmp_path)
    plain = [p for p in packages(NEW) if p.name != COMMON]
    common = next(p for p in packages(NEW) if p.name == COMMON)
    site.apt.offer(*plain, Package(common.name, common.version, common.fields))
    (site.root / "sys/module/nouveau").mkdir(parents=True)
    done = site.change()
    assert done.findings == []
    assert kinds(done) == ["install", "blacklist", "initramfs", "hold", "units"]
    assert "options nouveau modeset=0" in site.text("etc/modprobe.d/modelyard-nouveau.conf")
    assert done.reboot.startswith("nouveau is loaded")
    assert "enable nvidia-persistenced" in site.text("systemctl.log")
    again = site.change()
    assert (again.findings, again.steps) == ([], [])
    assert site.text("initramfs.log").count("done") == 1


def test_the_toolkit_comes_beside_the_driver_and_brings_none(tmp_path: Path) -> None:
    site = Site(tmp_path)
    meta = {"Depends": "cuda-nvcc-13-0, libcublas-13-0"}
    site.apt.offer(
        Package("cuda-toolkit-13-0", "13.0.2-1", meta),
        Package("cuda-nvcc-13-0", "13.0.88-1"),
        Package("libcublas-13-0", "13.1.0.3-1"),
        Package("cuda-toolkit-12-8", "12.8.1-1", {"Depends": "cuda-drivers"}),
        Package("cuda-drivers", f"{NEW}-1"),
    )
    limits, host = exact.Limits(str(site.root), 1, 60), {"name": "server1", "uid": 0, "user": "root", "usr_mib": 1}

    def install(release: str, check: bool = False, **changes: object) -> toolkit.Outcome:
        wanted = Wanted("toolkit", release, ((f"cuda-toolkit-{release.replace('.', '-')}",),))
        return toolkit.install(wanted, {**host, **changes}, limits, [str(site.apt.bin)], check)

    assert kinds(install("13.0", check=True)) == ["install"]
    ordinary = install("13.0", uid=1000, user="ops", usr_mib=10**9)
    assert [id for id, _ in said(ordinary)] == ["DR-ROOT", "DR-ROOM"]
    (found,) = install("12.8").findings
    assert found["id"] == "DR-TRANSACTION"
    assert f"install cuda-drivers {NEW}-1" in found["what"]
    assert site.apt.installed() == {}
    assert install("13.0").findings == []
    assert set(site.apt.installed()) == {"cuda-toolkit-13-0", "cuda-nvcc-13-0", "libcublas-13-0"}
    assert install("13.0").steps == []


def test_a_module_for_no_kernel_is_a_failure_that_is_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.apt.offer(*(p for p in packages(NEW) if p.name != MODULES), Package(MODULES, "6.8.0-88.89"))
    (found,) = site.change().findings
    assert found["id"] == "DR-FAILED"
    assert f"this kernel has no module of the driver, not {NEW}" in found["what"]
    assert KERNEL in MODULES
