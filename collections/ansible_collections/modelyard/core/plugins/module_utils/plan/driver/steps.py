"""The steps of a change, each only where something is to be done: a second run has none."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change

#: Tools beside a driver that have releases of their own: updating them harms nobody.
NOT_KEPT = re.compile(r"dkms\Z|rock-")
SPARED = ("^nvidia-", "^libnvidia-", "^linux-modules-nvidia-", "^linux-objects-nvidia-", "^linux-signatures-nvidia-", "^cuda-")
SPARE_FILE = "/etc/apt/apt.conf.d/52modelyard-nvidia"
SPARE_TEXT = (
    "// Written by Modelyard (role nvidia_driver): the driver is changed by people, in one piece, and not at night.\n"
    "Unattended-Upgrade::Package-Blacklist {\n" + "".join(f'  "{pattern}";\n' for pattern in SPARED) + "};\n"
)
BLACKLIST_FILE = "/etc/modprobe.d/modelyard-nouveau.conf"
BLACKLIST_TEXT = (
    "# Written by Modelyard (role nvidia_driver): nouveau would take the cards before NVIDIA's driver.\n"
    "blacklist nouveau\noptions nouveau modeset=0\n"
)


class Step(NamedTuple):
    """`kind`: which one; `words`: for people; `names`: packages or units."""

    kind: str
    words: str
    names: Sequence[str] = ()


def of_packages(unfinished: Sequence[str], changes: Sequence[Change]) -> List[Step]:
    """The package manager's own part."""
    found = []
    if unfinished:
        found.append(Step("configure", f"finish what was interrupted: {', '.join(unfinished)}"))
    if changes:
        found.append(Step("install", "; ".join(_change(change) for change in changes)))
    return found


def _change(change: Change) -> str:
    return f"{change.action} {change.name} {' to '.join(v for v in (change.old, change.new) if v)}"


def to_hold(installed: Mapping[str, str], held: Sequence[str], wanted: Wanted) -> List[str]:
    """Packages of the set that nobody holds."""
    return sorted(name for name in installed if wanted.has(name) and not NOT_KEPT.match(name) and name not in held)


def around(facts: Mapping[str, Any]) -> List[Step]:
    """What belongs to an installed driver.

    `hold`: names; `spared`: the updater leaves the driver alone, or there is none; `nouveau`: {loaded, available, blacklisted};
    `initramfs_stale`: it is older than the list of what is not loaded; `loaded`: the module in the kernel; `version`: what is
    to be loaded; `units`: daemons that are there and not on.
    """
    found = []
    nouveau: Mapping[str, bool] = facts["nouveau"]
    if (nouveau["loaded"] or nouveau["available"]) and not nouveau["blacklisted"]:
        found.append(Step("blacklist", f"keep nouveau out: {BLACKLIST_FILE}"))
    if nouveau["loaded"] and (facts["initramfs_stale"] or not nouveau["blacklisted"]):
        found.append(Step("initramfs", "rebuild the initramfs of every kernel, which still holds nouveau"))
    if facts["hold"]:
        found.append(Step("hold", f"hold {', '.join(facts['hold'])}", facts["hold"]))
    if not facts["spared"]:
        found.append(Step("spare", f"tell unattended-upgrades to leave the driver alone: {SPARE_FILE}"))
    if not facts["loaded"] and not nouveau["loaded"] and facts["version"]:
        found.append(Step("load", "load the module (modprobe nvidia)"))
    if facts["units"]:
        found.append(Step("units", f"switch on {', '.join(facts['units'])}", facts["units"]))
    return found


def is_spared(updates: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Does what installs updates at night leave these packages alone by its own list? dnf has the version lock for that."""
    if updates.get("service") != "unattended-upgrades":
        return True
    return all(any(_fits(pattern, name) for pattern in updates["blacklist"]) for name in names)


def _fits(pattern: str, name: str) -> bool:
    if fnmatch.fnmatchcase(name, pattern):
        return True
    try:
        return bool(re.match(pattern, name))
    except re.error:  # a glob
        return False


def reboot_reason(driver: Mapping[str, str], nouveau_loaded: bool, version: str, flavour: str) -> str:
    """Why only a reboot makes the installed driver the one that runs; empty where it runs."""
    loaded, kind = driver["loaded"], driver["flavour"]
    if nouveau_loaded:
        return f"nouveau is loaded; driver {version} takes its place at the next boot"
    if loaded and loaded != version:
        return f"driver {loaded} is loaded, {version} is installed"
    if loaded and flavour and kind and kind != flavour:
        return f"the {kind} modules of {loaded} are loaded, the {flavour} ones are installed"
    return ""


def diff(steps: Sequence[Step], files: Mapping[str, str]) -> List[Dict[str, str]]:
    """For --diff: the steps one in a line, and the files that are written. `files`: what stands there now, by path."""
    lines = "".join(f"{step.kind}: {step.words}\n" for step in steps)
    found = [{"before_header": "steps", "after_header": "steps", "before": "", "after": lines}] if lines else []
    for kind, path, text in (("blacklist", BLACKLIST_FILE, BLACKLIST_TEXT), ("spare", SPARE_FILE, SPARE_TEXT)):
        if any(step.kind == kind for step in steps):
            found.append({"before_header": path, "after_header": path, "before": files.get(path, ""), "after": text})
    return found
