"""What a package manager would do, read out of real dry runs, and compared with what was asked for."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import allowed, transaction
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change
from unit import worlds

OLD, NEW = "580.95.05-0ubuntu0.24.04.2", "580.178.04-0ubuntu0.24.04.1"
KERNEL = "linux-modules-nvidia-580-server-open-6.8.0-88-generic"
WANTED = allowed.Wanted("driver", "580.178.04", (("nvidia-utils-580-server",), (KERNEL,)))
TOOLKIT = allowed.Wanted("toolkit", "13.0", (("cuda-toolkit-13-0",),))
APT = f"""\
Reading package lists...
The following packages will be DOWNGRADED:
  libnvidia-cfg1-580-server
The following held packages will be changed:
  nvidia-utils-580-server
1 upgraded, 2 newly installed, 1 downgraded, 2 to remove and 0 not upgraded.
Remv stranger [1]
Purg nvidia-utils-535-server [535.1-0ubuntu1]
Inst nvidia-kernel-common-580-server ({NEW} localhost [amd64])
Inst nvidia-utils-580-server [{OLD}] ({NEW} Ubuntu:24.04/noble-updates [amd64]) []
Inst libnvidia-cfg1-580-server:amd64 [{NEW}] ({OLD} localhost [amd64])
Inst libnvidia-compute-580-server [{NEW}] ({NEW} localhost [amd64])
Conf nvidia-utils-580-server ({NEW} localhost [amd64])
"""
DNF = """\
Last metadata expiration check: 0:00:03 ago on Mon Nov 30 20:37:59 2026.
Dependencies resolved.
=======================================================================================================
 Package                                                      Arch    Version            Repo      Size
=======================================================================================================
Installing:
 nvidia-open                                                  x86_64  3:580.95.05-1.el9  standin  5.6 k
     replacing  old-nvidia.x86_64 3:1-1.el9
Upgrading:
 nvidia-driver-cuda-libs-with-a-very-long-name-for-wrapping-as-it-is-done
                                                              x86_64  3:580.95.05-1.el9  standin  5.7 k
Installing dependencies:
 kernel-core                                                  x86_64  5.14.0-1.el9       standin  5.5 k
Downgrading:
 kmod-nvidia-open-dkms                                        x86_64  3:580.95.05-1.el9  standin  5.6 k
Removing dependent packages:
 stranger                                                     x86_64  1-1                @standin  0

Transaction Summary
=======================================================================================================
Install    2 Packages

Total size: 11 k
Installed size: 0

Operation aborted.
"""


def test_apts_dry_run_is_read_with_what_goes_and_what_becomes_older():
    assert transaction.from_apt(APT) == [
        Change("remove", "stranger", "1", ""),
        Change("remove", "nvidia-utils-535-server", "535.1-0ubuntu1", ""),
        Change("install", "nvidia-kernel-common-580-server", "", NEW),
        Change("upgrade", "nvidia-utils-580-server", OLD, NEW),
        Change("downgrade", "libnvidia-cfg1-580-server", NEW, OLD),
        Change("reinstall", "libnvidia-compute-580-server", NEW, NEW),
    ]


def test_dnfs_table_is_read_with_what_it_replaces_and_with_names_that_have_a_line_of_their_own():
    long = "nvidia-driver-cuda-libs-with-a-very-long-name-for-wrapping-as-it-is-done"
    installed = {long: "3:580.65.06-1.el9", "kmod-nvidia-open-dkms": "3:580.178.04-1.el9", "old-nvidia": "3:1-1.el9"}
    assert transaction.from_dnf(DNF, installed) == [
        Change("install", "nvidia-open", "", "3:580.95.05-1.el9"),
        Change("remove", "old-nvidia", "3:1-1.el9", ""),
        Change("upgrade", long, "3:580.65.06-1.el9", "3:580.95.05-1.el9"),
        Change("install", "kernel-core", "", "5.14.0-1.el9"),
        Change("downgrade", "kmod-nvidia-open-dkms", "3:580.178.04-1.el9", "3:580.95.05-1.el9"),
        Change("remove", "stranger", "1-1", ""),
    ]


def test_a_real_dry_run_of_debians_archive_is_right_but_for_the_updates_that_it_drags_along():
    text = (worlds.ROOT / "tests/fixtures/packages/apt-debian12-nvidia-open-535.261.03.txt").read_text(encoding="utf-8")
    changes = transaction.from_apt(text)
    assert len(changes) == 8 + 41, "as apt counts them"
    assert {change.action for change in changes} == {"install", "upgrade"}
    wanted = allowed.Wanted("driver", "535.261.03", (("nvidia-driver",), ("nvidia-open-kernel-dkms",)))
    there = {change.name: change.old for change in changes if change.old}
    # nvidia-modprobe is 535.161.07 there, and libxnvctrl0 525.85.05: they are released by themselves.
    (found,) = allowed.judge(changes, wanted, ["nvidia-driver"], ({**there, "libxnvctrl0": "525.85.05-3~deb12u1"}, []), "box")
    assert "upgrade systemd 252.38-1~deb12u1 to 252.39-1~deb12u2" in found["what"]
    assert "and 2 more, which nobody asked for" in found["what"]
    mine = {change.name for change in changes if wanted.has(change.name)}
    assert {"libegl-nvidia0", "firmware-nvidia-gsp", "nvidia-vdpau-driver", "xserver-xorg-video-nvidia"} <= mine
    assert not mine & {"systemd", "xserver-xorg-core", "glx-alternative-mesa"}


@pytest.mark.parametrize("text", ["", "E: Unable to locate package x\n", "Nothing to do.\n", "Dependencies resolved.\n\n\n"])
def test_what_says_no_change_is_none(text):
    assert transaction.from_apt(text) == []
    assert transaction.from_dnf(text, {}) == []


def test_half_installed_packages_are_found_in_the_database():
    def stanza(name, status):
        return f"Package: {name}\nStatus: {status}\nVersion: 1\n"

    text = "\n".join(
        [
            stanza("whole", "install ok installed"),
            stanza("kept", "hold ok installed"),
            stanza("gone", "deinstall ok config-files"),
            stanza("nvidia-dkms-580", "install ok half-configured"),
            stanza("nvidia-utils-580", "install reinstreq half-installed"),
            stanza("libc-bin", "install ok triggers-pending"),
        ]
    )
    found = ["nvidia-dkms-580 (half-configured)", "nvidia-utils-580 (half-installed)", "libc-bin (triggers-pending)"]
    assert transaction.unfinished(text) == found


def test_what_rpm_has_twice_is_found_and_several_kernels_and_architectures_are_none():
    lines = ["nvidia-driver-cuda.x86_64", "glibc.x86_64", "glibc.i686", "kernel-core.x86_64", "kernel-core.x86_64", "bash.x86_64"]
    assert transaction.twice("\n".join(lines)) == []
    doubled = "\n".join([*lines, "nvidia-driver-cuda.x86_64", "bash.x86_64", ""])
    assert transaction.twice(doubled) == ["bash (installed 2 times)", "nvidia-driver-cuda (installed 2 times)"]


def test_offers_are_read_the_newest_first():
    madison = (
        f" nvidia-utils | {NEW} | file:/x ./ Packages\n nvidia-utils | {OLD} | http://y Packages\n nvidia-utils | {OLD} | z\n"
    )
    assert transaction.from_madison(madison) == {"nvidia-utils": [NEW, OLD]}
    query = "nvidia-open\t3:580.95.05-1.el9\nnvidia-open\t3:580.178.04-1.el9\n\nnoise\n"
    assert transaction.from_repoquery(query) == {"nvidia-open": ["3:580.178.04-1.el9", "3:580.95.05-1.el9"]}


def test_a_request_names_exact_versions_and_what_is_missing_comes_with_what_there_is():
    chosen, missing = allowed.request(WANTED, {"nvidia-utils-580-server": ["580.200.01-1", NEW, OLD], KERNEL: ["6.8.0-88.89+1"]})
    assert (chosen, missing) == ({"nvidia-utils-580-server": NEW, KERNEL: "6.8.0-88.89+1"}, [])
    chosen, missing = allowed.request(WANTED, {"nvidia-utils-580-server": ["580.200.01-1", OLD]})
    assert chosen == {}
    assert missing == [
        f"nvidia-utils-580-server (offered: nvidia-utils-580-server 580.200.01-1, {OLD})",
        f"{KERNEL} (offered: nothing of that name)",
    ]


def test_of_two_names_for_one_thing_the_first_that_is_offered_is_taken():
    wanted = WANTED._replace(names=(("nvidia-fabricmanager", "nvidia-fabric-manager"),))
    assert allowed.request(wanted, {"nvidia-fabric-manager": ["3:580.178.04-1.el9"]})[0] == {
        "nvidia-fabric-manager": "3:580.178.04-1.el9"
    }


GOOD = (
    Change("upgrade", "nvidia-utils-580-server", OLD, NEW),
    Change("install", KERNEL, "", "6.8.0-88.89+1"),
    Change("remove", "nvidia-utils-535-server", "535.1", ""),  # another branch goes: that is what an upgrade is
    Change("install", "dkms", "", "3.0.11"),
    Change("install", "gcc-12", "", "12.2"),  # new ones that it needs take nothing from anybody
)


@pytest.mark.parametrize(
    ("change", "id", "words"),
    [
        (Change("remove", "stranger", "1", ""), "DR-TRANSACTION", "remove stranger 1"),
        (Change("upgrade", "libc6", "1", "2"), "DR-TRANSACTION", "upgrade libc6 1 to 2"),
        (Change("downgrade", "openssl", "2", "1"), "DR-TRANSACTION", "downgrade openssl 2 to 1"),
        (Change("remove", "nvidia-container-toolkit", "1.17", ""), "DR-TRANSACTION", "remove nvidia-container-toolkit 1.17"),
        (Change("install", "linux-image-6.8.0-90-generic", "", "1"), "DR-KERNEL", "install linux-image-6.8.0-90-generic 1"),
        (Change("upgrade", "linux-generic", "1", "2"), "DR-KERNEL", "upgrade linux-generic 1 to 2"),
        (Change("install", "kernel-core", "", "5.14"), "DR-KERNEL", "install kernel-core 5.14"),
        (
            Change("install", "nvidia-firmware-590-server", "", "590.1"),
            "DR-TRANSACTION",
            "install nvidia-firmware-590-server 590.1",
        ),
        (Change("install", "libnvidia-gl-580-server", "", OLD), "DR-TRANSACTION", f"install libnvidia-gl-580-server {OLD}"),
        (
            Change("install", "linux-modules-nvidia-590-open-6.8.0-88", "", "1"),
            "DR-TRANSACTION",
            "linux-modules-nvidia-590-open-6.8",
        ),
    ],
)
def test_what_was_not_asked_for_is_refused_and_named(change, id, words):
    assert allowed.judge(GOOD, WANTED, [KERNEL], ({}, []), "box") == []
    (found,) = allowed.judge([*GOOD, change], WANTED, [KERNEL], ({}, [change.name]), "box")
    assert found["id"] == id
    assert words in found["what"]
    assert "Nothing was changed" in found["do"]
    if not allowed.packages.is_of_driver(change.name):
        assert "(held)" in found["what"]


def test_all_of_it_comes_at_once():
    bad = [
        Change("remove", "stranger", "1", ""),
        Change("install", "linux-image-6.8.0-90-generic", "", "1"),
        Change("install", "libnvidia-gl-580-server", "", OLD),
        *(Change("remove", f"more-{number}", "1", "") for number in range(9)),
    ]
    found = allowed.judge(bad, WANTED, [], ({}, []), "box")
    assert [item["id"] for item in found] == ["DR-KERNEL", "DR-TRANSACTION", "DR-TRANSACTION"]
    assert "and 4 more" in found[1]["what"]


def test_a_part_of_the_set_that_would_stay_in_another_version_is_named():
    there = {"libnvidia-gl-535-server": "535.261.03-0ubuntu1", "nvidia-utils-580-server": OLD, "nvidia-container-toolkit": "1.17"}
    (found,) = allowed.judge(GOOD, WANTED, [KERNEL], (there, []), "box")
    assert "would leave libnvidia-gl-535-server 535.261.03-0ubuntu1, which is not of 580.178.04" in found["what"]


def test_headers_that_were_asked_for_are_no_strangers_kernel():
    change = Change("install", "linux-headers-6.1.0-30-amd64", "", "6.1.124-1")
    assert allowed.judge([change], WANTED, [change.name], ({}, []), "box") == []


def test_a_toolkit_brings_no_driver_and_touches_none():
    parts = [Change("install", "cuda-toolkit-13-0", "", "13.0.2-1"), Change("install", "cuda-nvcc-13-0", "", "13.0.88-1")]
    assert allowed.judge(parts, TOOLKIT, ["cuda-toolkit-13-0"], ({}, []), "box") == []
    for change in (Change("install", "cuda-drivers", "", NEW), Change("upgrade", "nvidia-utils-580-server", OLD, NEW)):
        (found,) = allowed.judge([*parts, change], TOOLKIT, ["cuda-toolkit-13-0"], ({}, []), "box")
        assert change.name in found["what"]
    chosen, _ = allowed.request(TOOLKIT, {"cuda-toolkit-13-0": ["13.0.2-1", "13.0.1-1"]})
    assert chosen == {"cuda-toolkit-13-0": "13.0.2-1"}


def test_what_will_be_installed_is_known_before():
    there = {"nvidia-utils-580-server": OLD, "nvidia-utils-535-server": "535.1", "bash": "5"}
    assert allowed.after(there, GOOD[:3]) == {"nvidia-utils-580-server": NEW, KERNEL: "6.8.0-88.89+1", "bash": "5"}
