"""Packages of a card's driver, from the package database: names, versions, where they come from, whether they are held.

Reads files where there are some (dpkg), asks under a limit where there are none (rpm). No root is needed for either.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey import tool
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

DPKG = "/var/lib/dpkg/status"
RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
RPM_LIMIT_S = 10.0
#: A database is some megabytes.
DATABASE_BYTES = 64 * 2**20
#: What belongs to a driver; tools for containers and monitors have releases of their own.
OF_DRIVER = re.compile(
    r"(lib)?nvidia-|libcuda1\Z|linux-(modules|objects|signatures)-nvidia-|cuda-(drivers|compat)|(kmod|akmod|dnf-plugin|xorg-x11-drv)-nvidia"
    r"|xserver-xorg-video-nvidia|libxnvctrl|dkms\Z|rock-|libnv(scq|sdm)|nvlsm|nvidia\Z"
    r"|lib(egl|gl1|glx|gles)-nvidia|libnv(cuvid|optix)1\Z|firmware-nvidia-(gsp|tesla)"
)
NOT_OF_DRIVER = re.compile(
    r"(lib)?nvidia-(container|ctk|fs|cuda-toolkit|cublas|cudnn|nccl|vaapi|settings|prime)|nvidia-.*-cu1[0-9]\Z"
)
#: NVIDIA's own packages; "Debian NVIDIA Maintainers" are others.
_NVIDIA = re.compile(r"(?i)@nvidia\.com|\Anvidia( corporation)?\b")
LOCKS = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list", "/etc/dnf/versionlock.toml")


def look(sysroot: str = "/") -> Dict[str, Any]:
    """{manager: dpkg, rpm or "", why, found: [{name, version, origin, held}]}.

    `origin` is `nvidia` for packages of NVIDIA's own repository, else `distribution`, empty when it is not said. `why` says why
    nothing could be read.
    """
    dpkg = Path(below(sysroot, DPKG))
    if dpkg.is_file():
        try:
            with dpkg.open("rb") as stream:
                text = stream.read(DATABASE_BYTES).decode("utf-8", "replace")
        except OSError as exc:
            return {"manager": "dpkg", "why": f"{DPKG}: {exc.strerror}", "found": []}
        return {"manager": "dpkg", "why": "", "found": from_dpkg(text)}
    if not any(Path(below(sysroot, place)).is_dir() for place in RPM):
        return {"manager": "", "why": "", "found": []}
    program = tool.find("rpm", tool.SYSTEM_FOLDERS, "")
    if not program:
        return {"manager": "rpm", "why": "there is no program rpm", "found": []}
    root = [] if sysroot in ("", "/") else ["--root", sysroot]
    said = tool.run(
        [program, *root, "-qa", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\t%{VENDOR}\\n"], RPM_LIMIT_S, keep=4 * 2**20
    )
    if said["rc"] != 0:
        return {"manager": "rpm", "why": said["note"] or said["stderr"].strip()[:200] or "rpm -qa failed", "found": []}
    return {"manager": "rpm", "why": "", "found": from_rpm(said["stdout"], _locks(sysroot))}


def from_dpkg(text: str) -> List[Dict[str, Any]]:
    """Of dpkg's status file: only what is installed."""
    found = []
    for stanza in re.split(r"\n\n+", text):
        name = re.match(r"Package: (\S+)", stanza)
        if not name or not is_of_driver(name.group(1)):
            continue
        wish, _, state = _field(stanza, "Status").partition(" ok ")
        if state != "installed":
            continue
        keeper = _field(stanza, "Maintainer")
        found.append(_package(name.group(1), _field(stanza, "Version"), keeper, wish == "hold"))
    return sorted(found, key=lambda package: str(package["name"]))


def from_rpm(text: str, locks: Tuple[str, ...] = ()) -> List[Dict[str, Any]]:
    """Of `rpm -qa` with name, version and vendor, between tabs. `locks`: lines of the version lock."""
    found = []
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and is_of_driver(parts[0]):
            held = any(re.match(rf"(?:[0-9]+:)?{re.escape(parts[0])}-[0-9]", lock) or lock == parts[0] for lock in locks)
            found.append(_package(parts[0], parts[1], parts[2], held))
    return sorted(found, key=lambda package: str(package["name"]))


def is_of_driver(name: str) -> bool:
    """Does a package belong to a driver, as its name goes?"""
    return bool(OF_DRIVER.match(name)) and not NOT_OF_DRIVER.match(name)


def _package(name: str, version: str, keeper: str, held: bool) -> Dict[str, Any]:
    known = keeper.strip() not in ("", "(none)")
    origin = ("nvidia" if _NVIDIA.search(keeper) else "distribution") if known else ""
    return {"name": name, "version": version, "origin": origin, "held": held}


def _field(stanza: str, name: str) -> str:
    found = re.search(rf"^{name}: (.*)$", stanza, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _locks(sysroot: str) -> Tuple[str, ...]:
    lines: List[str] = []
    for place in LOCKS:
        try:
            text = Path(below(sysroot, place)).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        lines += re.findall(r'name\s*=\s*"([^"]+)"', text) if place.endswith(".toml") else text.split()
    return tuple(line for line in lines if not line.startswith(("#", "!")))
