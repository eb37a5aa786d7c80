"""One set of packages at one version: what to ask the package manager for, and whether it would do that and nothing else."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import allowed
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.process.packages import Manager, holder
from ansible_collections.modelyard.core.plugins.module_utils.process.packages.run import Failed

#: Each round names the packages that the one before brought in another version.
ROUNDS = 6
#: How many older versions are tried of a package that is numbered otherwise than its set: an archive keeps few.
BACK = 4


class Limits(NamedTuple):
    """`wait_s`: for another run of the package manager; `limit_s`: for a step of ours."""

    sysroot: str
    wait_s: int
    limit_s: int


class Planned(NamedTuple):
    """`request`: version by name, to install. `changes`: what the dry run says of it. `findings`: why it must not be done."""

    request: Dict[str, str]
    changes: List[Change]
    findings: List[Dict[str, str]]


def plan(manager: Manager, wanted: Wanted, where: str) -> Planned:
    """Dry runs until every package of the set comes in the set's version, then the comparison. Changes nothing."""
    unfinished = manager.unfinished()
    foreign = [entry for entry in unfinished if not wanted.has(entry.split()[0]) and entry.split()[0] != "dpkg"]
    if foreign:
        what = f"an interrupted run of the package manager has left packages of others half there: {', '.join(foreign)}"
        do = "the admin of the host finishes that first (dpkg --configure -a, or dnf check). Nothing was changed"
        return Planned({}, [], [finding("DR-BROKEN", where, what, do)])
    if wanted.kind == "driver" and wanted.names:
        manager.prefer(wanted.version)
    offered = manager.offered([one for names in wanted.names for one in names])
    request, missing = allowed.request(wanted, offered)
    if missing:
        return Planned({}, [], [_not_offered(missing, wanted, where)])
    request, changes, why = _settled(manager, wanted, request)
    for back in range(1, BACK):
        before, _ = allowed.request(wanted, offered, back)
        if not why or before == allowed.request(wanted, offered, back - 1)[0]:
            break
        request, changes, why = _settled(manager, wanted, before)
    if why:
        what = f"the dry run of the package manager fails: {why}"
        do = "its words say what does not fit together; correct the host's sources or packages. Nothing was changed"
        return Planned(request, changes, [finding("DR-BROKEN", where, what, do)])
    there = manager.installed() if wanted.names else {}
    return Planned(request, changes, allowed.judge(changes, wanted, list(request), (there, manager.held()), where))


def fresh(manager: Manager, wanted: Wanted, where: str, limits: Limits) -> Planned:
    """The plan after the sources were read anew, when nobody else is at work with the package manager. Needs root."""
    held_by = holder.wait(limits.sysroot, manager.locks, manager.pid_files, limits.wait_s)
    if held_by:
        return Planned({}, [], [locked(where, limits, held_by)])
    try:
        manager.update(limits.limit_s)
    except Failed as exc:
        what, do = f"the host's package sources could not be read: {exc}", "correct them (apt-get update, dnf makecache)"
        return Planned({}, [], [finding("DR-BROKEN", where, what, f"{do}. Nothing was changed")])
    return plan(manager, wanted, where)


def locked(where: str, limits: Limits, held_by: str) -> Dict[str, str]:
    """Somebody else is at work, and is left alone."""
    what = f"another run of the package manager has not ended within {limits.wait_s} s: {held_by}"
    do = "wait until it is done (updates at night take a while), then run again; it was not touched. Nothing was changed"
    return finding("DR-LOCK", where, what, do)


def _settled(manager: Manager, wanted: Wanted, request: Dict[str, str]) -> Tuple[Dict[str, str], List[Change], str]:
    """The request, and with it each package of the set that is there or would come in another version, where possible."""
    changes: List[Change] = []
    installed = manager.installed() if request else {}
    # What is held moves only when it is named, so what is there is named first.
    why, stray = "", [name for name in allowed.strays(wanted, installed) if name not in request]
    for _ in range(ROUNDS):
        more, _ = allowed.request(wanted._replace(names=tuple((name,) for name in stray)), manager.offered(stray))
        if changes and not more:
            break
        request = {**request, **more}
        changes, why = manager.dry_run(request) if request else ([], "")
        stray = [name for name in allowed.strays(wanted, allowed.after(installed, changes)) if name not in request]
        if why or not stray:
            break
    return request, changes, why


def _not_offered(missing: Sequence[str], wanted: Wanted, where: str) -> Dict[str, str]:
    headers = [entry for entry in missing if entry.startswith(("linux-headers-", "kernel-devel-"))]
    if headers and len(headers) == len(missing):
        what = f"the modules are built on this host, and the headers of the running kernel are not offered: {'; '.join(headers)}"
        do = (
            "offer exactly these in the host's sources, or update and reboot into a kernel whose headers are. Nothing was changed"
        )
        return finding("DR-HEADERS", where, what, do)
    what = f"{wanted.kind} {wanted.version} is not offered by the host's sources: {'; '.join(missing)}"
    do = (
        "add a source that has it (a mirror keeps old versions), write a version that is offered, or on RHEL 8 and 9 enable the "
        "stream (dnf module enable nvidia-driver:BRANCH-open). Nothing was changed"
    )
    return finding("DR-VERSION", where, what, do)
