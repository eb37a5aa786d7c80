"""What a survey reads of a host's packages, kernels, firmware and environments: from files that look like such hosts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import packages, runtime_contents, stack
from unit import worlds

DPKG = (worlds.ROOT / "tests/fixtures/stack/dpkg-status-ubuntu-580.txt").read_text(encoding="utf-8")
BACKENDS = {"nvidia": {"modules": ["nvidia"]}, "hygon": {"modules": ["hycu", "hydcu"]}}
# The constant of the wheel of torch 2.14.0 for CUDA 13.0, between other texts of its library.
LIBRARY = b"\x7fELF\0asm_volatile\0sm_\0_cuda_getArchFlags\0sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\0compute_capability\0"
VERSION_PY = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.14.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '08187d9e0fba026dc8217405802ab5381dc88d90'
hip: Optional[str] = None
rocm: Optional[str] = None
"""


def put(root: Path, path: str, text: str | bytes = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def look(root: Path, *comms: str, backends=("nvidia",)):
    return stack.look(BACKENDS, set(backends), str(root), set(comms))


def test_packages_of_a_driver_are_read_from_dpkgs_own_file():
    found = {package["name"]: package for package in packages.from_dpkg(DPKG)}
    # Neither what was removed, nor what belongs to containers, nor the rest of the system.
    assert set(found) == {
        "libnvidia-compute-580-server",
        "nvidia-utils-580-server",
        "libxnvctrl0",
        "nvidia-fabricmanager-580",
        "dkms",
    }
    assert found["libnvidia-compute-580-server"] == {
        "name": "libnvidia-compute-580-server",
        "version": "580.95.05-0ubuntu0.24.04.2",
        "origin": "distribution",
        "held": True,
    }
    assert [found[name]["held"] for name in ("nvidia-utils-580-server", "dkms")] == [False, False]
    assert [found[name]["origin"] for name in ("libxnvctrl0", "nvidia-fabricmanager-580")] == ["distribution", "nvidia"]


def test_packages_of_a_driver_as_rpm_lists_them():
    text = (
        "nvidia-driver-cuda\t580.95.05-1.el9\tNVIDIA Corporation\n"
        "kmod-nvidia-open-dkms\t580.95.05-1.el9\t(none)\n"
        "nvidia-container-toolkit\t1.17.8-1\tNVIDIA Corporation\n"
        "rock-5.7.1\t6.2.26-V1.5\tHygon\n"
        "bash\t5.1.8-9.el9\tRocky Enterprise Software Foundation\n"
        "a line that is none\n"
    )
    found = packages.from_rpm(text, ("nvidia-driver-cuda-3:580.95.05-1.el9.*", "0:kmod-nvidia-open-dkms-580.95.05-1.el9.*"))
    assert [(p["name"], p["origin"], p["held"]) for p in found] == [
        ("kmod-nvidia-open-dkms", "", True),
        ("nvidia-driver-cuda", "nvidia", True),
        ("rock-5.7.1", "distribution", False),
    ]


def test_rpm_is_asked_under_a_limit_and_its_failure_is_said(tmp_path, monkeypatch):
    put(tmp_path, "root/var/lib/rpm/rpmdb.sqlite")
    rpm = put(tmp_path, "bin/rpm", "#!/bin/sh\necho 'error: cannot open Packages database' >&2\nexit 1\n")
    rpm.chmod(0o755)
    monkeypatch.setattr(packages.tool, "SYSTEM_FOLDERS", (str(tmp_path / "bin"),))
    assert packages.look(str(tmp_path / "root")) == {"manager": "rpm", "why": "error: cannot open Packages database", "found": []}
    rpm.write_text("#!/bin/sh\nsleep 60\n", encoding="utf-8")
    monkeypatch.setattr(packages, "RPM_LIMIT_S", 0.2)
    assert "had not ended" in packages.look(str(tmp_path / "root"))["why"]


def test_a_host_without_a_package_database_or_cards_is_no_error(tmp_path):
    assert packages.look(str(tmp_path)) == {"manager": "", "why": "", "found": []}
    assert set(look(tmp_path, backends=())) == {"system", "glibc"}
    seen = look(tmp_path)
    assert (seen["kernels"], seen["secure_boot"], seen["installer"], seen["boot_free_mib"]) == ([], False, "", None)


def kernel(root: Path, release: str, module: str = "", headers: bool = True, image: bool = True) -> None:
    folder = f"lib/modules/{release}"
    put(root, f"{folder}/modules.dep", "updates/dkms/nvidia.ko:\n" if module else "")
    if image:
        put(root, f"boot/vmlinuz-{release}")
    if headers:
        (root / folder / "build").mkdir(parents=True)


def test_the_running_kernel_and_the_one_of_the_next_boot(tmp_path):
    kernel(tmp_path, "6.8.0-9-generic", headers=False)
    kernel(tmp_path, "6.8.0-88-generic")
    kernel(tmp_path, "6.8.0-90-generic", headers=False)
    kernel(tmp_path, "6.11.0-99-generic", image=False)  # its folder stayed behind
    found = stack.kernels(["nvidia"], str(tmp_path), "6.8.0-88-generic")
    assert [(k["release"], k["running"], k["next"], k["headers"]) for k in found] == [
        ("6.8.0-88-generic", True, False, True),
        ("6.8.0-90-generic", False, True, False),
    ]


@pytest.mark.parametrize(
    ("variable", "efi", "said"),
    [
        (b"\x06\0\0\0\x01", True, True),
        (b"\x06\0\0\0\0", True, False),
        (b"\x06\0", True, None),
        (None, True, None),
        (None, False, False),
    ],
)
def test_secure_boot_is_read_from_the_firmwares_own_variable(tmp_path, variable, efi, said):
    if efi:
        (tmp_path / "sys/firmware/efi/efivars").mkdir(parents=True)
    if variable is not None:
        put(tmp_path, stack.SECURE_BOOT, variable)
    assert stack.secure_boot(str(tmp_path)) is said


@pytest.mark.parametrize(
    ("file", "text", "listed"),
    [
        ("etc/modprobe.d/blacklist-nouveau.conf", "blacklist nouveau\noptions nouveau modeset=0\n", True),
        ("etc/modprobe.d/blacklist-nouveau.conf", "# blacklist nouveau\n", False),
        ("etc/modprobe.d/notes.txt", "blacklist nouveau\n", False),
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz ro rd.driver.blacklist=nouveau,nova quiet\n", True),
    ],
)
def test_nouveau(tmp_path, file, text, listed):
    put(tmp_path, file, text)
    (tmp_path / "sys/module/nouveau").mkdir(parents=True)
    assert stack.nouveau(str(tmp_path)) == {"loaded": True, "blacklisted": listed}


def test_who_installs_updates_by_itself_and_what_it_leaves_alone(tmp_path):
    assert stack.updates(str(tmp_path)) == {"service": "", "blacklist": []}
    put(tmp_path, "etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    assert stack.updates(str(tmp_path))["service"] == "", "it is switched on and not installed"
    put(tmp_path, "usr/bin/unattended-upgrade")
    put(
        tmp_path,
        "etc/apt/apt.conf.d/50unattended-upgrades",
        'Unattended-Upgrade::Package-Blacklist {\n//  "linux-";\n  "^nvidia-";\n  "^libnvidia-";\n};\n',
    )
    assert stack.updates(str(tmp_path)) == {"service": "unattended-upgrades", "blacklist": ["^nvidia-", "^libnvidia-"]}
    put(tmp_path, "etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "0";\n')
    assert stack.updates(str(tmp_path))["service"] == ""
    put(tmp_path, "etc/systemd/system/timers.target.wants/dnf-automatic-install.timer")
    put(tmp_path, "etc/dnf/dnf.conf", "[main]\nexcludepkgs=*nvidia*, kernel*\n")
    assert stack.updates(str(tmp_path)) == {"service": "dnf-automatic-install", "blacklist": ["*nvidia*", "kernel*"]}


def test_the_whole_of_a_server(tmp_path):
    put(tmp_path, "etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
    put(tmp_path, "var/lib/dpkg/status", DPKG)
    put(tmp_path, "etc/ld.so.conf.d/cuda.conf", "/usr/local/cuda/targets/x86_64-linux/lib\n/usr/local/cuda-13.0/compat\n")
    put(tmp_path, "usr/local/cuda/version.json", '{"cuda" : {"name" : "CUDA SDK", "version" : "12.4.1"}}')
    put(tmp_path, "usr/bin/nvidia-uninstall")
    put(tmp_path, "run/reboot-required")
    for number in range(4):
        folder = f"sys/bus/pci/devices/0000:8{number}:00.0"
        for name, text in (("vendor", "0x10de"), ("device", "0x22a3"), ("class", "0x068000")):
            put(tmp_path, f"{folder}/{name}", text)
    seen = look(tmp_path, "nvidia-persiste", "nv-fabricmanage")
    assert seen["system"] == {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"}
    assert (seen["switches"], seen["fabric_manager"], seen["fabric_manager_runs"]) == (4, "580.95.05", True)
    assert (seen["persistenced"], seen["reboot_required"], seen["cuda_toolkit"]) == (True, True, "12.4.1")
    assert seen["compat"] == ["/usr/local/cuda-13.0/compat"]
    assert seen["installer"] == "/usr/bin/nvidia-uninstall"
    assert (seen["containerised"], seen["vendor_image"]) == (False, "")
    put(tmp_path, "var/lib/dpkg/info/nvidia-driver.list", "/.\n/usr/bin/nvidia-uninstall\n")
    assert look(tmp_path)["installer"] == "", "a package owns it"
    put(tmp_path, "run/nvidia/driver/usr/bin/nvidia-smi")
    put(tmp_path, "etc/dgx-release")
    again = look(tmp_path)
    assert (again["containerised"], again["vendor_image"], again["persistenced"]) == (True, "/etc/dgx-release", False)


def test_glibc_is_that_of_this_host():
    said = os.confstr("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else ""
    assert stack.glibc() == (said or "").removeprefix("glibc ")


def environment(root: Path, version_py: str = VERSION_PY, library: bytes = LIBRARY) -> Path:
    place = "lib/python3.12/site-packages"
    put(root, "pyvenv.cfg", "home = /usr/bin\nversion = 3.12.3\n")
    put(root, f"{place}/torch/version.py", version_py)
    put(root, f"{place}/torch/lib/libtorch_python.so", library)
    wheels = {
        "torch-2.14.0": "cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64",
        "vllm-0.33.0": "cp38-abi3-manylinux_2_31_x86_64.manylinux_2_35_x86_64",
        "transformers-5.20.2": "py3-none-any",
        "nvidia_nccl_cu13-2.30.7": "py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64",
        "requests-2.32.0": "py3-none-any",
    }
    for name, tag in wheels.items():
        put(root, f"{place}/{name}.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
    return root


def test_what_is_in_an_environment_is_read_from_its_files(tmp_path):
    assert runtime_contents.look(str(environment(tmp_path))) == {
        "python": "3.12.3",
        "packages": {
            "torch": "2.14.0+cu130",
            "vllm": "0.33.0",
            "transformers": "5.20.2",
            "nvidia_nccl_cu13": "2.30.7",
        },
        "cuda": "13.0",
        "hip": "",
        "variant": "cuda",
        "archs": ["7.5", "8.0", "8.6", "9.0", "10.0", "12.0"],
        "glibc": "2.31",
    }


@pytest.mark.parametrize(
    ("cuda", "hip", "variant"), [("'12.8'", "None", "cuda"), ("None", "'6.3.42134-a9a80e791'", "hip"), ("None", "None", "cpu")]
)
def test_what_torch_was_built_for(tmp_path, cuda, hip, variant):
    text = f"__version__ = '2.9.1'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = {hip}\n"
    assert runtime_contents.look(str(environment(tmp_path, text)))["variant"] == variant


@pytest.mark.parametrize(
    ("library", "archs"),
    [
        (b"\0sm_90\0", ["9.0"]),
        (b"\0sm_80 sm_90a sm_120 compute_120\0", ["8.0", "9.0a", "12.0+PTX"]),
        (b"\0sm_80 sm_90 compute_100\0", ["8.0", "9.0", "10.0+PTX"]),
        (b"\0sm_90\0of another text\0sm_80 sm_90 sm_100\0", ["8.0", "9.0", "10.0"]),
        (b"\0sm_80 sm_90", []),
        (b"", []),
    ],
)
def test_the_compute_capabilities_in_a_library(tmp_path, library, archs):
    assert runtime_contents.archs(str(put(tmp_path, "libtorch_python.so", library))) == archs


def test_no_environment_and_a_strange_one_are_no_errors(tmp_path):
    assert runtime_contents.look(str(tmp_path)) == {}
    odd = environment(tmp_path / "odd", "cuda = (", b"sm_")
    (odd / "pyvenv.cfg").unlink()
    seen = runtime_contents.look(str(odd))
    assert (seen["python"], seen["variant"], seen["archs"], seen["packages"]["torch"]) == ("3.12", "", [], "2.14.0")
