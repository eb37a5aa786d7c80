"""May the diagnostic window be opened? A person's word for it, and the state of the instance. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

Findings = List[Dict[str, str]]
VARIABLE = "confirm_diagnose"
_ENTRY = re.compile(r"([^:/\s,]+):([^:/\s,]+)(?:/([0-9]+))?")
FORM = f"write -e {VARIABLE}=HOST:SERVICE, and HOST:SERVICE/INDEX where it has several instances"
NOTHING = "Nothing was asked"
WHY = (
    "two JSON Schema requests at once are sent to a serving engine, and in a known case just these two have killed an engine of "
    "two cards, whose memory was then held until a person reloaded the driver"
)


class Target(NamedTuple):
    """The instance that a person has named."""

    host: str
    service: str
    instance: int


def confirmation(text: str, hosts: Mapping[str, Optional[Mapping[str, Sequence[int]]]]) -> Findings:
    """What is wrong with a confirmation.

    :param hosts: by host of the run the services with the indexes of their instances; None where that is not known
    """
    if not text:
        return [finding("DG-CONFIRM", VARIABLE, f"it is not given: {WHY}", f"when its users know: {FORM}. {NOTHING}")]
    named = _ENTRY.fullmatch(text)
    if named is None:
        return [finding("DG-CONFIRM", VARIABLE, f"{text!r} does not name one host and one service", f"{FORM}. {NOTHING}")]
    host, service, index = named.groups()
    where, look = f"{VARIABLE} {text}", f"correct it, one instance for each run. {NOTHING}"
    if host not in hosts:
        return [finding("DG-CONFIRM", where, f"{host} is no host of this run; there are: {', '.join(hosts)}", look)]
    services = hosts[host]
    if services is None:
        return [finding("DG-CONFIRM", where, f"what runs on {host} is not known: its survey or its plan failed", look)]
    if service not in services:
        return [
            finding("DG-CONFIRM", where, f"{service} is no service of {host}; there are: {', '.join(services) or 'none'}", look)
        ]
    indexes = list(services[service])
    if index is None and len(indexes) != 1:
        shown = ", ".join(str(one) for one in indexes)
        return [finding("DG-CONFIRM", where, f"{service} has {len(indexes)} instances ({shown})", f"{FORM}. {NOTHING}")]
    if index is not None and int(index) not in indexes:
        shown = ", ".join(str(one) for one in indexes)
        return [finding("DG-CONFIRM", where, f"{service} has no instance {index}; there are: {shown}", look)]
    return []


def target(text: str, hosts: Mapping[str, Any]) -> Target:
    """The instance that a sound confirmation names."""
    named = _ENTRY.fullmatch(text)
    assert named is not None
    host, service, index = named.groups()
    return Target(host, service, int(index) if index is not None else int(hosts[host][service][0]))


def readiness(seen: Mapping[str, Any], where: str) -> Findings:
    """Why the window may not be opened now. `seen`: the first look of survey.diagnose."""
    do = "read the engine's log, then playbooks/preflight.yml and deploy.yml; an engine that is down cannot be diagnosed"
    if not seen["started"] or not seen["alive"]:
        what = "the instance was never started here" if not seen["started"] else f"the engine has ended (log: {seen['log']})"
        return [finding("DG-STATE", where, what, do)]
    if seen["health"] != 200:
        return [finding("DG-STATE", where, f"the engine does not answer well on /health ({seen['health'] or 'no answer'})", do)]
    if seen["fatal"]:
        what = f"its log has become fatal before the window: {str(seen['fatal'][-1]).strip()[:200]} (log: {seen['log']})"
        do = (
            "read the log from there, then stop and start the instance (playbooks/teardown.yml, deploy.yml), and diagnose it then"
        )
        return [finding("DG-STATE", where, what, do)]
    first, second = (look or {} for look in seen["counters"])
    if "running" not in first or "running" not in second:
        what = "how busy the engine is cannot be seen: /metrics does not tell it (log statistics off, or an unknown build)"
        return [finding("DG-STATE", where, what, "without that nobody can say whether others would be disturbed")]
    work = max(look["running"] + look.get("waiting", 0.0) for look in (first, second))
    if work or second.get("generation_tokens", 0.0) > first.get("generation_tokens", 0.0):
        what = f"the service is busy: {work:.0f} request(s) of others run or wait; they would be lost with the engine"
        what = what if work else "the service was busy a moment ago: tokens came between two looks"
        do = "wait until nobody uses it; behind a gateway take the instance out first (docs/gateway.md)"
        return [finding("DG-STATE", where, what, do)]
    return []
