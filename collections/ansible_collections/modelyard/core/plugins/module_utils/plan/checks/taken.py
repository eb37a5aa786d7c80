"""Names and ports that somebody has already."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

GENERAL = "vllm"
NAME_SAYS_SOMETHING = 4


def findings(intent: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Ports, sessions and units of each service, then services that the inventory does not name."""
    found: List[Dict[str, str]] = []
    units = {f"modelyard-{i['session']}.service" for service in services for i in service["instances"]}
    # What runs may have another name than it will have after a restart.
    units |= {f"modelyard-{i['session']}.service" for seen in survey["services"].values() for i in seen["instances"]}
    for service in services:
        if service["concerned"]:
            found += _ports(service, survey)
            sessions = [i["session"] for i in lookup.starting(service, survey)]
            found += _names(service["name"], sessions, units, survey)
    known = {s["name"] for s in services}
    return found + [
        finding(
            "PF-SERVICE-NOT-IN-INVENTORY",
            f"{survey['host']['name']}:{intent['home']}/services/{name}",
            f"the service {name} runs here, but the inventory does not name it",
            f"leave it, or take it down: playbooks/teardown.yml -e teardown_service={name}",
        )
        for name in sorted(set(survey["services"]) - known)
        if survey["services"][name]["pids"]
    ]


def _ports(service: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    found = []
    for instance in lookup.starting(service, survey):
        busy = survey["ports"].get(str(instance["port"]))
        # A gateway may take over a port of its own service's instances: they are stopped before it is started.
        if not busy or busy["service"] in (service["name"], service.get("of")):
            continue
        owner = (
            f"the service {busy['service']} of this project (pid {busy['pid']})"
            if busy["service"]
            else f"pid {busy['pid']} of user {busy['user']} ({busy['command']})"
            if busy["pid"]
            else f"a process of user {busy['user']} that this user may not look into"
        )
        found.append(
            finding(
                "PF-PORT-BUSY",
                f"{survey['host']['name']}:{instance['port']}",
                f"the port of {instance['name']} is in use by {owner}",
                f"ask that user, or choose another base_port for {service['name']}",
            )
        )
    return found


def _names(name: str, sessions: Sequence[str], ours: Set[str], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    """A screen, tmux or unit of the very name would be taken for the service; one with a similar name is only shown.

    `sessions`: names of those that are to be started. `ours`: units that belong to instances of the plan.
    """
    host = survey["host"]["name"]
    names = {_plain(title) for title in (name, *sessions)}
    taken, similar = [], []
    for session in survey["sessions"]:
        if session["pid"] is not None and lookup.owner(session["pid"], survey):
            continue
        if f"{session['pid']}.{session['name']}" in survey["supervisors"]["sessions"]:
            continue
        shown = f"{session['kind']} session {session['name']} of user {session['user']} (pid {session['pid'] or 'unknown'})"
        if _plain(session["name"]) in names:
            taken.append(shown)
        elif _similar(session["name"], name):
            similar.append(shown)
    for unit in survey["units"]:
        shown, title = f"{unit['scope']} unit {unit['name']} ({unit['state']})", _unescaped(unit["name"].rpartition(".")[0])
        if unit["name"] in ours:
            continue
        if _plain(title) in names:
            taken.append(shown)
        elif _similar(title, name):
            similar.append(shown)
    found = []
    if taken:
        do = "two of one name cannot be told apart: rename the service, or have the owner end the other"
        found.append(finding("PF-NAME-USED", f"{host}:{name}", f"the name is taken: {'; '.join(taken)}", do))
    if similar:
        do = "nothing, if it is somebody else's; it may also be an earlier run by hand that holds cards or ports"
        found.append(finding("PF-NAME-SIMILAR", f"{host}:{name}", f"similar names are there: {'; '.join(similar)}", do))
    return found


def _unescaped(name: str) -> str:
    """A unit's name as a person writes it: systemd may write a hyphen as \\x2d."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code.group(1), 16)), name)


def _plain(name: str) -> str:
    """For comparing: tmux writes a dot as an underscore, people write what they like."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def _similar(other: str, name: str) -> bool:
    other, name = _plain(other), _plain(name)
    # tmux calls its sessions 0, 1, 2: short names say nothing.
    return name in other or GENERAL in other or (len(other) >= NAME_SAYS_SOMETHING and other in name)
