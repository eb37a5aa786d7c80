"""Does a transaction do only what was asked for? Everything else is refused, all of it at once, before anything is changed."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import transaction
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.survey import packages

Findings = List[Dict[str, str]]
#: What boots. Packages of a driver's modules are none of these, and headers alone boot nothing.
_KERNEL = re.compile(
    r"linux-(image|modules|generic|virtual|lowlatency|aws|azure|gcp|oracle|kvm|nvidia|amd64|cloud|rt|hwe)(-|\Z)"
    r"|kernel(-core|-modules\S*|-uek\S*|-rt\S*|-64k\S*)?\Z|(pve|proxmox)-kernel"
)
#: Three digits for themselves in a name are the branch: nvidia-utils-580-server.
_BRANCH = re.compile(r"-([3-9][0-9]{2})(?=-|\Z)")
_DRIVER_VERSION = re.compile(r"[3-9][0-9]{2}\.[0-9]")
#: Released by themselves in some archives: Debian 12 has nvidia-modprobe 535.161.07 and libxnvctrl0 525.85.05 beside 535.261.03.
_LOOSE = re.compile(r"nvidia-(modprobe|persistenced|xconfig|settings)\Z|libxnvctrl")
#: How many packages a finding names.
NAMED = 6


class Wanted(NamedTuple):
    """A set of packages. `kind`: driver or toolkit. `version`: of the driver; empty where only what is there is to be kept.

    `names`: asked for by name, each a list of alternatives of which the first that is offered counts.
    `release`: versions of the packages begin with it, for a set whose packages have versions of their own.
    """

    kind: str
    version: str
    names: Tuple[Tuple[str, ...], ...]

    def has(self, name: str) -> bool:
        """Is a package of the set?"""
        if self.kind == "driver":
            return packages.is_of_driver(name)
        return bool(
            re.match(r"cuda-(?!drivers|compat)|lib(cu|np|nvjpeg|nvjitlink|nvfatbin|nvptx|nvvm)\S*-[0-9]|nsight-|gds-tools", name)
        )

    def pins(self, name: str, version: str) -> bool:
        """Must this package have the set's own version?"""
        if self.kind != "driver":
            return name in [one for alternatives in self.names for one in alternatives]
        return self.has(name) and not _LOOSE.match(name) and bool(_DRIVER_VERSION.match(transaction.upstream(version)))


def branch_of(name: str) -> str:
    """The branch that a package's name bears; empty for none."""
    found = _BRANCH.search(name)
    return found.group(1) if found else ""


def is_version(wanted: Wanted, version: str) -> bool:
    """Is a package's version that of the set?"""
    found = transaction.upstream(version)
    return found == wanted.version if wanted.kind == "driver" else found.startswith(f"{wanted.version}.")


def request(wanted: Wanted, offered: Mapping[str, Sequence[str]], back: int = 0) -> Tuple[Dict[str, str], List[str]]:
    """(version by name, what is not offered).

    A package that is numbered otherwise than its set is taken in its newest version, or `back` ones before that: only a dry run
    says which of them belongs to the set.
    """
    chosen: Dict[str, str] = {}
    missing: List[str] = []
    for alternatives in wanted.names:
        found: Optional[Tuple[str, str]] = None
        for name in alternatives:
            versions = offered.get(name, ())
            right = [version for version in versions if is_version(wanted, version) or not wanted.pins(name, version)]
            if right and found is None:
                found = (name, right[0 if wanted.pins(name, right[0]) else min(back, len(right) - 1)])
        if found:
            chosen[found[0]] = found[1]
        else:
            there = [f"{name} {', '.join(offered[name][:4])}" for name in alternatives if offered.get(name)]
            missing.append(f"{' or '.join(alternatives)} (offered: {'; '.join(there) or 'nothing of that name'})")
    return chosen, missing


def strays(wanted: Wanted, installed: Mapping[str, str]) -> List[str]:
    """Packages of the set in another version than the set's. `installed`: as it is, or will be (see after)."""
    return [name for name, version in installed.items() if wanted.pins(name, version) and not is_version(wanted, version)]


def judge(
    changes: Sequence[Change], wanted: Wanted, asked: Sequence[str], there: Tuple[Mapping[str, str], Sequence[str]], where: str
) -> Findings:
    """What a dry run would do beyond what was asked for, and what it would leave in another version.

    :param asked: names that were asked for.
    :param there: (version by name of what is installed, names that somebody holds).
    """
    installed, held = there
    branch = wanted.version.partition(".")[0] if wanted.kind == "driver" else ""
    kernels, other, strange = [], [], []
    for change in changes:
        mine = wanted.has(change.name)
        if wanted.kind != "driver" and packages.is_of_driver(change.name):
            strange.append(_words(change, held))
            continue
        if not mine and change.name not in asked and _KERNEL.match(change.name):
            kernels.append(_words(change, held))
        elif not mine and change.name not in asked and change.action != transaction.INSTALL:
            strange.append(_words(change, held))
        elif mine and change.new and branch_of(change.name) not in ("", branch) and branch:
            other.append(_words(change, held))
    coming = {change.name: change for change in changes if change.new}
    for name in strays(wanted, after(installed, changes)):
        if name not in coming:
            other.append(f"leave {name} {installed[name]}")
        elif branch_of(name) in ("", branch):
            other.append(_words(coming[name], held))
    found = []
    if kernels:
        do = "update and reboot into the kernel you want first, then change the driver for that one. Nothing was changed"
        found.append(finding("DR-KERNEL", where, f"the dry run would {_list(kernels)}, which is a kernel", do))
    if strange:
        what = f"the dry run would {_list(strange)}, which nobody asked for"
        do = "ask whose these are; move or update them by yourself first, in a step of its own. Nothing was changed"
        found.append(finding("DR-TRANSACTION", where, what, do))
    if other:
        what = f"the dry run would {_list(other)}, which is not of {wanted.version}"
        do = f"offer all packages of {wanted.version} in the host's sources (a mirror keeps old versions). Nothing was changed"
        found.append(finding("DR-TRANSACTION", where, what, do))
    return found


def _words(change: Change, held: Sequence[str]) -> str:
    version = change.new if change.action == transaction.INSTALL else " to ".join(v for v in (change.old, change.new) if v)
    return f"{change.action} {change.name} {version}{' (held)' if change.name in held else ''}"


def _list(words: Sequence[str]) -> str:
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def after(installed: Mapping[str, str], changes: Sequence[Change]) -> Dict[str, str]:
    """Version by name as it will be."""
    found = {**installed, **{change.name: change.new for change in changes if change.new}}
    for change in changes:
        if not change.new:
            found.pop(change.name, None)
    return found
