"""What a host's driver rests on and what may disturb it: system, kernels, packages, Secure Boot, updates, DTK.

Reads only, needs no root; standard library only. What is not known is None or empty, and no rule takes that for a no.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey import driver, dtk, packages, pci, tool
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

MODULES = "/lib/modules"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
INSTALLER = "/usr/bin/nvidia-uninstall"
CONTAINER = "/run/nvidia/driver"
IMAGES = ("/etc/dgx-release",)
NVSWITCH_CLASS = "0680"
#: Folders that programs search before the driver's own library, when a line of ld.so.conf names them.
COMPAT = re.compile(r"^\s*(/\S*cuda\S*/compat\S*)", re.MULTILINE)
FABRIC_MANAGER = re.compile(r"nvidia-fabric-?manager(-[0-9]+)?\Z|nvidia-fabricmanager")
BOOT_MIB = 2**20


def light(sysroot: str = "/") -> Dict[str, Any]:
    """What is cheap to read and asked for on every host: {system, glibc}."""
    return {"system": system(sysroot), "glibc": glibc()}


def look(
    backends: Mapping[str, Mapping[str, Any]], found: Collection[str], sysroot: str, comms: Collection[str]
) -> Dict[str, Any]:
    """survey["stack"]. `found`: backends of which there is a trace; without one only `light` is read.

    system      {id, version, name}, of /etc/os-release
    glibc       of this host; empty for another C library
    kernels     [{release, running, next, headers, module}]: the running one and the newest; `module` is the driver's version
    secure_boot None when the firmware does not say it
    nouveau     {loaded, blacklisted}
    packages    see packages.look
    installer   NVIDIA's uninstaller that no package owns; containerised, vendor_image: others who own the driver
    switches, fabric_manager, fabric_manager_runs, persistenced: the daemons beside the driver; None when it cannot be told
    updates     {service, blacklist}: who installs updates by itself
    reboot_required, boot_free_mib, compat (folders of cuda-compat in ld.so.conf), cuda_toolkit (its version), dtk (see dtk.look)
    """
    seen = light(sysroot)
    if not found:
        return seen
    names = [name for kind in sorted(found) for name in backends[kind]["modules"]]
    listed = packages.look(sysroot)
    manager = next((package for package in listed["found"] if FABRIC_MANAGER.match(package["name"])), None)
    return {
        **seen,
        "kernels": kernels(names, sysroot),
        "secure_boot": secure_boot(sysroot),
        "nouveau": nouveau(sysroot),
        "packages": listed,
        "installer": _installer(listed["manager"], sysroot),
        "containerised": os.path.isdir(below(sysroot, CONTAINER)) and bool(_names(below(sysroot, CONTAINER))),
        "vendor_image": next((place for place in IMAGES if os.path.exists(below(sysroot, place))), ""),
        "switches": sum(f["class"] == NVSWITCH_CLASS for f in pci.functions(sysroot, {"10de"})) if "nvidia" in found else 0,
        "fabric_manager": re.split(r"[-~+]", manager["version"].partition(":")[2] or manager["version"])[0] if manager else "",
        "fabric_manager_runs": "nv-fabricmanage" in comms,
        "persistenced": "nvidia-persiste" in comms if "nvidia" in found else None,
        "updates": updates(sysroot),
        "reboot_required": os.path.exists(below(sysroot, "/run/reboot-required")),
        "boot_free_mib": free(sysroot, "/boot"),
        "compat": compat(sysroot),
        "cuda_toolkit": toolkit(sysroot),
        "dtk": dtk.look(sysroot) if "hygon" in found else dict(dtk.NONE),
    }


def system(sysroot: str = "/") -> Dict[str, str]:
    """Id, version and name of the distribution; empty words where nothing says it."""
    text = _text(below(sysroot, "/etc/os-release")) or _text(below(sysroot, "/usr/lib/os-release"))
    said = dict(re.findall(r"""^([A-Z_]+)=["']?([^"'\n]*)["']?$""", text, re.MULTILINE))
    return {"id": said.get("ID", ""), "version": said.get("VERSION_ID", ""), "name": said.get("PRETTY_NAME", "")}


def glibc() -> str:
    """Version of the C library that this Python runs with; empty for another library than glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return ""
    return version if name == "glibc" else ""


def kernels(modules: Sequence[str], sysroot: str = "/", running: str = "") -> List[Dict[str, Any]]:
    """The running kernel and the newest installed one, which boots next unless somebody has said otherwise.

    Only kernels with an image count: folders of modules stay behind when a kernel is removed.
    """
    running = running or platform.release()
    place = below(sysroot, MODULES)
    installed = [name for name in _names(place) if _has_image(name, sysroot)]
    newest = max(installed, key=_order) if installed else ""
    found = []
    for release in dict.fromkeys([running, newest]):
        folder = f"{place}/{release}"
        if release and os.path.isdir(folder):
            found.append(
                {
                    "release": release,
                    "running": release == running,
                    "next": release == newest,
                    "headers": os.path.isdir(f"{folder}/build"),
                    "module": driver.on_disk(modules, folder),
                }
            )
    return found


def _has_image(release: str, sysroot: str) -> bool:
    places = (f"/boot/vmlinuz-{release}", f"{MODULES}/{release}/vmlinuz", f"/boot/vmlinux-{release}")
    return any(os.path.exists(below(sysroot, place)) for place in places)


def _order(release: str) -> Tuple[Tuple[int, ...], str]:
    """For sorting: 6.8.0-90 is newer than 6.8.0-9."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", release)), release


def secure_boot(sysroot: str = "/") -> Optional[bool]:
    """The firmware's own word: four bytes of attributes, then 0 or 1. A machine without EFI has none."""
    try:
        with Path(below(sysroot, SECURE_BOOT)).open("rb") as stream:
            value = stream.read(5)
    except FileNotFoundError:
        return None if os.path.isdir(below(sysroot, "/sys/firmware/efi")) else False
    except OSError:
        return None
    return value[4] == 1 if len(value) == 5 else None


def nouveau(sysroot: str = "/") -> Dict[str, bool]:
    """The free driver, which takes the cards before NVIDIA's own: {loaded, blacklisted}."""
    lines = [_text(below(sysroot, "/proc/cmdline"))]
    for folder in ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/run/modprobe.d"):
        lines += [_text(f"{below(sysroot, folder)}/{name}") for name in _names(below(sysroot, folder)) if name.endswith(".conf")]
    words = "\n".join(lines)
    listed = re.search(
        r"^\s*blacklist\s+nouveau\s*$|(?:modprobe\.blacklist|module_blacklist|rd\.driver\.blacklist)=\S*nouveau", words, re.M
    )
    return {"loaded": os.path.isdir(below(sysroot, "/sys/module/nouveau")), "blacklisted": bool(listed)}


def updates(sysroot: str = "/") -> Dict[str, Any]:
    """Who installs updates by itself, and the patterns of packages that it leaves alone: {service, blacklist}."""
    texts = []
    folder = below(sysroot, "/etc/apt/apt.conf.d")
    for name in _names(folder):
        # Comments first: the blacklist comes with examples that are commented out.
        texts.append(re.sub(r"^\s*(//|#).*$", "", _text(f"{folder}/{name}"), flags=re.MULTILINE))
    apt = "\n".join(texts)
    if re.search(r'APT::Periodic::Unattended-Upgrade\s+"?[1-9]', apt) and os.path.exists(
        below(sysroot, "/usr/bin/unattended-upgrade")
    ):
        block = re.search(r"Unattended-Upgrade::Package-Blacklist\s*\{(.*?)\}", apt, re.DOTALL)
        return {"service": "unattended-upgrades", "blacklist": re.findall(r'"([^"]+)"', block.group(1)) if block else []}
    wants = below(sysroot, "/etc/systemd/system/timers.target.wants")
    timer = next((name for name in _names(wants) if name.startswith("dnf-automatic") or name == "dnf5-automatic.timer"), "")
    if timer:
        excludes = re.findall(r"^\s*exclude(?:pkgs)?\s*=\s*(.+)$", _text(below(sysroot, "/etc/dnf/dnf.conf")), re.MULTILINE)
        return {
            "service": timer.rpartition(".")[0],
            "blacklist": [word for line in excludes for word in re.split(r"[\s,]+", line) if word],
        }
    return {"service": "", "blacklist": []}


def compat(sysroot: str = "/") -> List[str]:
    """Folders of NVIDIA's forward-compatibility libraries that the loader is told of."""
    folder = below(sysroot, "/etc/ld.so.conf.d")
    texts = [_text(f"{folder}/{name}") for name in _names(folder)] + [_text(below(sysroot, "/etc/ld.so.conf"))]
    return sorted({place for text in texts for place in COMPAT.findall(text)})


def toolkit(sysroot: str = "/") -> str:
    """Version of the CUDA toolkit in the usual place; empty for none. Drivers need none, and wheels bring their own libraries."""
    said = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([0-9.]+)"', _text(below(sysroot, "/usr/local/cuda/version.json")))
    return said.group(1) if said else ""


def _installer(manager: str, sysroot: str) -> str:
    """NVIDIA's .run installer leaves its uninstaller. One that belongs to a package is none of its."""
    if not os.path.exists(below(sysroot, INSTALLER)):
        return ""
    if manager == "dpkg":
        folder = below(sysroot, "/var/lib/dpkg/info")
        lists = [name for name in _names(folder) if "nvidia" in name and name.endswith(".list")]
        return "" if any(INSTALLER in _text(f"{folder}/{name}").split() for name in lists) else INSTALLER
    program = tool.find("rpm", tool.SYSTEM_FOLDERS, "") if manager == "rpm" else ""
    owned = program and tool.run([program, "-qf", INSTALLER], packages.RPM_LIMIT_S)["rc"] == 0
    return "" if owned else INSTALLER


def free(sysroot: str, place: str) -> Optional[int]:
    """Free room of the file system of a folder, MiB."""
    try:
        room = os.statvfs(below(sysroot, place))
    except OSError:
        return None
    return room.f_bavail * room.f_frsize // BOOT_MIB


def _names(folder: str) -> List[str]:
    with contextlib.suppress(OSError):
        return sorted(entry.name for entry in os.scandir(folder))
    return []


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""
