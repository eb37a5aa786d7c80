"""Can the supervisors that the services want do their work on this host?"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import files
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

Findings = List[Dict[str, str]]
OTHER = "or choose another supervisor for the service; plain needs nothing"


def findings(intent: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> Findings:
    """For each kind that is needed by an instance which is not running as wanted already."""
    found: Findings = []
    seen = survey["supervisors"]
    for kind, look in (("screen", _screen), ("systemd", _systemd), ("systemd_user", _systemd_user)):
        starting = [s for s in services if s["supervisor"] == kind and s["action"] not in ("keep", "leave")]
        if starting and kind in seen:
            where = f"{survey['host']['name']}:{', '.join(s['name'] for s in starting)}"
            found += look(seen[kind], where, survey)
            found += _units(seen[kind], starting, intent, survey)
    return found


def _screen(seen: Mapping[str, Any], where: str, survey: Mapping[str, Any]) -> Findings:
    if seen["path"]:
        return []
    return [finding("PF-SUPERVISOR", where, "screen is not installed", f"install the package screen, {OTHER}")]


def _without_systemd(where: str, survey: Mapping[str, Any]) -> Findings:
    what = f"systemd does not run this host: process 1 is {survey['platform']['pid1'] or 'not to be seen'}"
    return [finding("PF-SUPERVISOR", where, what, "choose the supervisor plain or screen for the service")]


def _systemd(seen: Mapping[str, Any], where: str, survey: Mapping[str, Any]) -> Findings:
    if not seen["running"]:
        return _without_systemd(where, survey)
    if seen["root"] or seen["sudo"]:
        return []
    what = f"user {survey['host']['user']} is not root, and `sudo -n true` fails: a unit of the system cannot be installed"
    do = "let that user run install and systemctl by sudo without a password, or choose systemd_user, screen or plain"
    return [finding("PF-SUPERVISOR", where, what, do)]


def _systemd_user(seen: Mapping[str, Any], where: str, survey: Mapping[str, Any]) -> Findings:
    if not seen["running"]:
        return _without_systemd(where, survey)
    found = []
    if seen["problem"]:
        do = f"loginctl enable-linger {seen['user']} starts it (as root, where that user is refused), {OTHER}"
        found.append(finding("PF-SUPERVISOR", where, f"systemd of the user cannot be reached: {seen['problem']}", do))
    if not seen["lingers"]:
        what = f"user {seen['user']} does not linger: systemd ends the engines with the last login, and starts none at boot"
        do = f"loginctl enable-linger {seen['user']}, as that user or, where that is refused, as root"
        found.append(finding("PF-LINGER", where, what, do))
    return found


def _units(
    seen: Mapping[str, Any], services: Sequence[Mapping[str, Any]], intent: Mapping[str, Any], survey: Mapping[str, Any]
) -> Findings:
    """A unit file of the name that is not ours would be overwritten."""
    found = []
    for name, folder in own(services, intent).items():
        there = seen.get("units", {}).get(name)
        if there is None or (there and os.path.normpath(there) == folder):
            continue
        whose = f"was made for {there}" if there else "was not made by this project"
        what = f"there is a unit file {name}, which {whose}"
        do = "rename the service, or disable that unit and remove its file, if nobody needs it"
        found.append(finding("PF-SUPERVISOR", f"{survey['host']['name']}:{name}", what, do))
    return found


def own(services: Sequence[Mapping[str, Any]], intent: Mapping[str, Any]) -> Dict[str, str]:
    """Unit name -> folder of the instance that it is for."""
    pairs: List[Tuple[Mapping[str, Any], Mapping[str, Any]]] = [(s, i) for s in services for i in s["instances"]]
    return {
        f"modelyard-{instance['session']}.service": os.path.normpath(
            f"{intent['home']}/services/{service['name']}/instance-{instance['index']}"
        )
        for service, instance in pairs
        if service["supervisor"] in files.SYSTEMD
    }
