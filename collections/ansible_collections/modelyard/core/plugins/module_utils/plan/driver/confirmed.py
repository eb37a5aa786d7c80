"""A reboot needs a person's word, for this run and by the host's own name."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

VARIABLE = "confirm_reboot"
FORM = "write -e confirm_reboot=HOST, several with a comma between, each by its name in the inventory. Nothing was changed"


def names(text: str) -> List[str]:
    """The hosts that are named."""
    return [word.strip() for word in text.split(",")] if text else []


def without_use(name: str, state: str) -> List[Dict[str, str]]:
    """A reboot belongs to a change of the driver: confirmed for a host that is only judged, it would not come."""
    if state != "judged":
        return []
    what = f"nothing is changed on {name} (nvidia_driver_state: judged), so nothing would reboot it"
    do = "ask for the change, for example -e nvidia_driver_state=installed, or leave the confirmation out. Nothing was changed"
    return [finding("DR-CONFIRM", f"{VARIABLE} {name}", what, do)]


def judge(text: str, hosts: Mapping[str, Optional[Any]]) -> List[Dict[str, str]]:
    """What is wrong with a confirmation: all of it. `hosts`: of this run; None for one of which nothing is known."""
    found = []
    named = names(text)
    for name in dict.fromkeys(named):
        where = f"{VARIABLE} {name}"
        if name not in hosts:
            what = f"{name!r} is no host of this run; there are: {', '.join(hosts)}"
            found.append(finding("DR-CONFIRM", where, what, FORM))
        elif hosts[name] is None:
            what = f"what runs on {name} is not known: its survey or its plan failed"
            found.append(finding("DR-CONFIRM", where, what, "correct that first. Nothing was changed"))
        if named.count(name) > 1:
            found.append(finding("DR-CONFIRM", where, "it is named twice", FORM))
    return found
