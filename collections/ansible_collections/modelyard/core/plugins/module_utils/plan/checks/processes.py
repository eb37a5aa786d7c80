"""Processes that are in the way: leftovers of ours, those that look like ours, ended ones that remain, stuck ones."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.survey.processes import DRIVER


def findings(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Leftovers and suspects of each service, then zombies and stuck processes of the host."""
    found: List[Dict[str, str]] = []
    for service in services:
        found += _leftovers(service["name"], survey)
    return found + _zombies(survey, services) + _stuck(survey, services)


def _leftovers(name: str, survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    seen = survey["services"].get(name)
    where = f"{survey['host']['name']}:{name}"
    found = []
    handed_over = _handed_over(survey)
    left = [p for p in seen["leftovers"] if p["pid"] not in handed_over] if seen else []
    if left:
        lines = [f"{p['pid']} {p['comm']} ({p['user']}, state {p['state']}, parent {p['ppid']})" for p in left]
        what = f"processes of an earlier run live on without their API server: {'; '.join(lines)}"
        do = f"end exactly these with playbooks/teardown.yml -e teardown_service={name}, then deploy again"
        found.append(finding("PF-LEFTOVER", where, what, do))
    if seen and seen["suspects"]:
        lines = [f"{p['pid']} {p['command']} ({p['user']}; {', '.join(p['signs'])})" for p in seen["suspects"]]
        what = f"looks related, but one sign is not enough: {'; '.join(lines)}"
        found.append(finding("PF-SUSPECT", where, what, "nothing: they are left alone"))
    return found


def _handed_over(survey: Mapping[str, Any]) -> Set[int]:
    """Pids that a stop could not end: an admin has them (checks/admin.py), and they cost the cards that they are on alone."""
    return {pid for seen in survey["services"].values() for pid in (seen.get("needs_admin") or {}).get("left", ())}


def _ours(pid: int, survey: Mapping[str, Any]) -> bool:
    """Does it belong to a service of this project, and to no admin?"""
    return bool(lookup.owner(pid, survey)) and pid not in _handed_over(survey)


def _parent(process: Mapping[str, Any], survey: Mapping[str, Any]) -> str:
    if process["ppid"] == 1:
        return f"parent 1 ({survey['platform']['pid1']})"
    parent = survey["processes"].get(str(process["ppid"]))
    return f"parent {process['ppid']}" + (f" ({parent['command'][:60] or parent['comm']} of {parent['user']})" if parent else "")


def _zombies(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """An ended process is harmless, unless it still has something of a card: memory, a device file, a thread in the driver."""
    host = survey["host"]["name"]
    found, harmless = [], []
    for pid in survey["zombies"]:
        process = survey["processes"].get(str(pid))
        if process is None:
            continue
        living = [t for t in process["threads"] if t["state"] not in "ZX"]
        threads = [f"thread {t['tid']} of it lives on (state {t['state']})" for t in living]
        held = _held(process, bool(living), survey)
        if held and (not services or _near(pid, survey, services) or _ours(pid, survey)):
            what = f"{lookup.process(pid, survey)} has ended, but {', '.join([*threads, *held])}; {_parent(process, survey)}"
            do = (
                "keep the kernel log and look again in a minute; if it stays, an admin resets the card, reloads the driver or "
                "reboots, after asking everybody who uses the host"
            )
            if not threads and process["ppid"] != 1:
                do = f"its parent must read its end: ask the owner of {process['ppid']} to end that process. Then {do}"
            found.append(finding("PF-ZOMBIE-HOLDS", f"{host}:pid {pid}", what, do))
        else:
            more = [*threads, *held]
            extra = f"; {', '.join(more)}" if more else ""
            harmless.append(f"{pid} {process['comm']} ({process['user']}, {_parent(process, survey)}{extra})")
    if harmless:
        shown = "; ".join(harmless[:5]) + (f" and {len(harmless) - 5} more" if len(harmless) > 5 else "")
        what = f"ended, and not yet read by their parents, without anything that a service needs: {shown}"
        found.append(
            finding("PF-ZOMBIE", f"{host}:processes", what, "nothing: they mostly go when their parent ends or reads them")
        )
    return found


def _held(process: Mapping[str, Any], living: bool, survey: Mapping[str, Any]) -> List[str]:
    """What an ended process still has of a card."""
    held = [
        f"it holds {'an unknown number of' if amount is None else amount} MiB on {lookup.title(card)}"
        for backend in survey["accelerators"]
        for card in survey["cards"].get(backend, [])
        for pid, amount in lookup.named(card, survey).items()
        if pid == process["pid"]
    ]
    if process["devices"]:
        held.append(f"it has {', '.join(process['devices'])} open")
    if living and _in_driver(process):
        held.append(f"it is inside {' < '.join(process['stack'][:4])}")
    return held


def _in_driver(process: Mapping[str, Any]) -> bool:
    return any(DRIVER.search(function) for function in process["stack"] or ())


def _near(pid: int, survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> bool:
    """Is it on a card that a service wants (any card when there is no service)?"""
    uses = lookup.by_card(services)
    return any(
        pid in card["holders"] or pid in lookup.named(card, survey)
        for backend in survey["accelerators"]
        for card in survey["cards"].get(backend, [])
        if not services or (backend, card["index"]) in uses
    )


def _stuck(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Hanging in a driver on a card that counts is refused. Without the stack, or elsewhere, a disk can be the cause as well."""
    found = []
    for pid in survey["stuck"]:
        process = survey["processes"].get(str(pid))
        if process is None or process["state"] == "Z":  # see _zombies
            continue
        stack = f", inside {' < '.join(process['stack'][:4])}" if process["stack"] else ""
        what = f"{lookup.process(pid, survey)} hangs in the kernel (state {process['state']}{stack})"
        near = _near(pid, survey, services) or _ours(pid, survey)
        where = f"{survey['host']['name']}:pid {pid}"
        if near and _in_driver(process):
            do = (
                "no signal ends it: keep /proc/PID/stack and the kernel log. After asking everybody who uses the host, an admin "
                "reloads the driver or reboots"
            )
            found.append(finding("PF-STUCK", where, what, do))
            continue
        do = "it mostly waits for a disk or a network file system: look whether the models lie there"
        if _in_driver(process):
            do = "it hangs inside a driver, but holds no card that a service wants: tell the one who looks after the host"
        elif process["stack"] is None:
            do += ". Where it hangs is for root to see (/proc/PID/stack)"
            do = f"it is on a card that a service wants: let root look first. Otherwise {do}" if near else do
        found.append(finding("PF-STUCK-ELSEWHERE", where, what, do))
    return found
