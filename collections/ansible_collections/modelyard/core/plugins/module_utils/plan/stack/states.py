"""The state of a host's NVIDIA driver, and what on the host will disturb it. Pure functions of the survey.

Compared are the module that the kernel runs, the one on disk for this kernel, the library that programs use, and what the
inventory pins.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import NOTE, REFUSE, WARN
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.rules import Reason

ABSENT, NOT_LOADED, NO_MODULE = "absent", "not-loaded", "no-module-for-kernel"
MISMATCH, BROKEN = "mismatch", "mismatch-broken"
PINNED, ACCEPTABLE = "pinned", "acceptable"
RUNFILE, CONTAINER = "runfile", "containerised"
#: States from which packages are repaired, not chosen anew.
TO_REPAIR = (NOT_LOADED, NO_MODULE, MISMATCH, BROKEN)
#: States that this project never changes: somebody else owns the driver.
FOREIGN = (RUNFILE, CONTAINER)
#: What makes up a driver among the packages: with versions that must be equal.
_OF_ONE_SET = re.compile(
    r"libnvidia-(compute|cfg1|gl|decode|encode|extra|fbc1|ml)|nvidia-(utils|compute-utils|kernel-(common|source)|dkms)"
    r"|nvidia-driver-(cuda|libs)|(kmod|akmod)-nvidia|nvidia-kmod-common"
)
#: A version of a driver; some packages beside it are numbered by date.
_DRIVER = re.compile(r"[3-9][0-9]{2}\.[0-9]")


def state(seen: Mapping[str, Any], host: Mapping[str, Any], pinned: str = "") -> str:
    """One word for the driver. `seen`: accelerators.nvidia; `host`: survey.stack; `pinned`: a version or a branch.

    A tool that answers disproves a mismatch: the library that was found may be one of several.
    """
    driver = seen["driver"]
    loaded, disk = driver["loaded"], driver["on_disk"]
    library = "" if loaded and seen["tool"]["state"] == "ok" else driver["library"]
    if host.get("containerised"):
        return CONTAINER
    if host.get("installer"):
        return RUNFILE
    if not loaded:
        if disk:
            return NOT_LOADED
        return NO_MODULE if library else ABSENT
    if library and not versions.same(loaded, library):
        return MISMATCH if not disk or versions.same(disk, library) else BROKEN
    return PINNED if pinned and is_pinned(loaded, pinned) else ACCEPTABLE


def is_pinned(found: str, pinned: str) -> bool:
    """Is a version what is wanted: exactly, or of the branch when only a branch is wanted?"""
    return found == pinned or ("." not in pinned and versions.branch(found) == pinned)


def reasons(seen: Mapping[str, Any], host: Mapping[str, Any], inside: bool = False) -> List[Reason]:
    """What disturbs, or will. `seen`: accelerators.nvidia; `host`: survey.stack, empty where nothing was looked at.

    `inside` a container packages, kernels and daemons are those of the container, which has nothing to do with the driver.
    """
    if not host or inside:
        return []
    driver = seen["driver"]
    name = state(seen, host)
    found = [*_ownership(name, host), *_loading(name, seen, host)]
    if name not in FOREIGN:
        found += [*_packages(host), *_next_kernel(driver, host), *_updates(driver, host)]
    return [*found, *_services(seen, host)]


def _ownership(name: str, host: Mapping[str, Any]) -> List[Reason]:
    found = []
    if name == RUNFILE:
        what = f"the driver came with NVIDIA's .run installer ({host['installer']}): no update and no hold of packages reaches it"
        do = f"this project will not change it; to have packages instead, an admin runs {host['installer']} first"
        found.append(Reason("foreign-driver", WARN, what, do))
    if name == CONTAINER:
        what = "the driver belongs to a container (/run/nvidia/driver): a cluster operator owns it"
        found.append(Reason("foreign-driver", NOTE, what, "ask those who run the cluster for another version"))
    if host.get("vendor_image"):
        what = f"this is a vendor's system image ({host['vendor_image']}), which brings its own driver"
        found.append(Reason("foreign-driver", NOTE, what, "update the driver with the vendor's own tools alone"))
    return found


def _loading(name: str, seen: Mapping[str, Any], host: Mapping[str, Any]) -> List[Reason]:
    """Why the module is not there, as far as the host says it."""
    found = []
    vfio = [function["bus_id"] for function in seen["on_bus"] if function["driver"] == "vfio-pci"]
    if vfio:
        what = f"{', '.join(vfio)} is bound to vfio-pci: it is handed to a virtual machine"
        severity = REFUSE if len(vfio) == len(seen["on_bus"]) else NOTE  # the others are the host's own
        found.append(Reason("vfio-bound", severity, what, "take it out of the inventory, or ask who gave it away"))
    nouveau = host.get("nouveau") or {}
    if nouveau.get("loaded") and not seen["driver"]["loaded"]:
        listed = "it is blacklisted, but the initramfs may still hold it" if nouveau["blacklisted"] else "it is not blacklisted"
        what = f"the module nouveau has taken the cards; {listed}"
        do = "an admin blacklists it (blacklist nouveau, options nouveau modeset=0), rebuilds the initramfs and reboots"
        found.append(Reason("nouveau", REFUSE, what, do))
    dkms = _has(host, "dkms") and any("dkms" in package["name"] for package in _of_driver(host))
    if host.get("secure_boot") and name in (NOT_LOADED, NO_MODULE, ABSENT):
        what = "Secure Boot is on: the kernel loads signed modules alone, and nobody has signed one that is built here (DKMS)"
        do = "take modules that the distribution signs; or an admin enrols the key of DKMS at the console (mokutil --import)"
        found.append(Reason("secure-boot", WARN, what, do))
    running: Mapping[str, Any] = next((k for k in host.get("kernels", ()) if k["running"]), {})
    if dkms and running and not running["headers"]:
        what = f"the driver is built on this host (DKMS), and headers of the running kernel {running['release']} are missing"
        do = "an admin installs linux-headers or kernel-devel of exactly this kernel; not a newer kernel instead"
        found.append(Reason("no-headers", REFUSE if name in (NO_MODULE, ABSENT) else WARN, what, do))
    return found


def _of_driver(host: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    return list((host.get("packages") or {}).get("found", ()))


def _has(host: Mapping[str, Any], name: str) -> bool:
    return any(package["name"] == name for package in _of_driver(host))


def _packages(host: Mapping[str, Any]) -> List[Reason]:
    """Packages of several branches, versions or sources at once: the classic wreck."""
    found = _of_driver(host)
    one_set = [p for p in found if _OF_ONE_SET.match(p["name"]) and _DRIVER.match(_upstream(p["version"]))]
    releases: Dict[str, List[str]] = {}
    for package in one_set:
        releases.setdefault(_upstream(package["version"]), []).append(package["name"])
    origins: Dict[str, List[str]] = {}
    for package in one_set:
        origins.setdefault(package["origin"], []).append(package["name"])
    groups: List[Tuple[str, Dict[str, List[str]]]] = [
        ("versions", releases),
        ("sources", {k: v for k, v in origins.items() if k}),
    ]
    mixed = []
    for word, group in groups:
        if len(group) > 1:
            mixed.append(
                f"{len(group)} {word} ("
                + "; ".join(f"{key}: {', '.join(sorted(names)[:2])}" for key, names in group.items())
                + ")"
            )
    if not mixed:
        return []
    what = f"packages of the driver are of {' and of '.join(mixed)}"
    do = "an admin makes one set of them, by the names that are listed; never by *nvidia*, which takes the container tools too"
    return [Reason("mixed-packages", WARN, what, do)]


def _upstream(version: str) -> str:
    """580.95.05 of `580.95.05-0ubuntu0.24.04.1` and of `3:580.95.05-1.el9`."""
    return re.split(r"[-~+]", version.partition(":")[2] or version)[0]


def _next_kernel(driver: Mapping[str, str], host: Mapping[str, Any]) -> List[Reason]:
    """Has the kernel of the next boot a module of the driver?"""
    coming: Mapping[str, Any] = next((k for k in host.get("kernels", ()) if k["next"]), {})
    if not coming or coming["running"] or not driver["loaded"]:
        return []
    if not coming["module"]:
        what = f"the newest installed kernel {coming['release']} has no module of the driver: after the next reboot no card works"
        do = "before a reboot, an admin installs the module package of that kernel, or its headers and lets DKMS build it"
        return [Reason("next-kernel", WARN, what, do)]
    if not versions.same(driver["loaded"], coming["module"]):
        what = f"the newest installed kernel {coming['release']} has driver {coming['module']}, this one runs {driver['loaded']}"
        return [Reason("next-kernel", WARN, what, "plan that reboot: it changes the driver")]
    return []


def _updates(driver: Mapping[str, str], host: Mapping[str, Any]) -> List[Reason]:
    """Could the driver change tonight?"""
    updates = host.get("updates") or {}
    mine = [p for p in _of_driver(host) if _OF_ONE_SET.match(p["name"])]
    free = sorted(p["name"] for p in mine if not p["held"] and not _is_spared(p["name"], updates.get("blacklist", ())))
    if not updates.get("service") or not free or not driver["loaded"]:
        return []
    more = f" and {len(free) - 3} more" if len(free) > 3 else ""
    what = (
        f"{updates['service']} is active, and nothing holds {', '.join(free[:3])}{more}: after an update under a loaded module "
        "every new process ends with 'Driver/library version mismatch'"
    )
    do = "an admin holds all packages of the driver (apt-mark hold, dnf versionlock), and lists them in the updater's blacklist"
    return [Reason("updates", WARN, what, do)]


def _is_spared(name: str, patterns: Sequence[str]) -> bool:
    """apt takes expressions that match from the beginning, dnf takes globs."""
    for pattern in patterns:
        if fnmatch.fnmatchcase(name, pattern):
            return True
        try:
            if re.match(pattern, name):
                return True
        except re.error:  # a glob
            continue
    return False


def _services(seen: Mapping[str, Any], host: Mapping[str, Any]) -> List[Reason]:
    """The daemons beside the driver."""
    found = []
    if host.get("switches") and not host.get("fabric_manager") and seen["driver"]["loaded"]:
        what = f"{host['switches']} NVSwitch(es) are on the bus, and no fabric manager is installed: CUDA ends with error 802"
        do = f"an admin installs the fabric manager of exactly {seen['driver']['loaded']} and starts it"
        found.append(Reason("fabric-manager", WARN, what, do))
    elif host.get("switches") and not host.get("fabric_manager_runs") and seen["driver"]["loaded"]:
        what = f"the fabric manager {host['fabric_manager']} is installed and does not run: CUDA ends with error 802"
        found.append(Reason("fabric-manager", WARN, what, "an admin starts nvidia-fabricmanager and reads its log"))
    if host.get("persistenced") is False and seen["driver"]["loaded"]:
        what = "the persistence daemon does not run: each first use wakes the cards up, which takes seconds"
        found.append(Reason("persistence", NOTE, what, "an admin enables nvidia-persistenced"))
    return found
