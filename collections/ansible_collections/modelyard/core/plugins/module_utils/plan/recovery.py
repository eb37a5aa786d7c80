"""After a person's intervention: are the cards back at their baseline? Pure functions.

Stricter than a preflight, and without switches. A preflight asks whether a start would work, a recovery whether the intervention
did: what is not known counts as not done, and memory is not explained away by who holds it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import baseline, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding, ordered, refusals
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_records import TOLERANCE_MIB

Findings = List[Dict[str, str]]

DO = (
    "nothing else was tried. Look again in a minute, memory can come back late; otherwise a person's choices are, in this order "
    "and after asking everybody who uses the host: end what holds it (playbooks/teardown.yml for what is ours); reset the card, "
    "when nobody is on it (-e confirm_gpu_reset={reset}); unload and load the driver's modules; reboot"
)


def resting(service: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """Instances of a planned service that do not run: their cards have to be free."""
    seen = survey["services"].get(service["name"]) or {"instances": []}
    alive = {instance["index"] for instance in seen["instances"] if instance["alive"]}
    return [instance for instance in service["instances"] if instance["index"] not in alive]


def findings(plan: Mapping[str, Any], survey: Mapping[str, Any]) -> Findings:
    """All that stands in the way: what the plan refuses, and cards and services that are not back at their baseline."""
    found = list(refusals(plan["findings"]))
    for service in plan["services"]:
        left = (survey["services"].get(service["name"]) or {}).get("leftovers") or []
        if left:
            pids = ", ".join(f"{p['pid']} {p['comm']} (state {p['state']}, parent {p['ppid']})" for p in left)
            do = f"nothing else was tried: playbooks/teardown.yml -e teardown_service={service['name']}, then run again"
            where = f"{survey['host']['name']}:{service['name']}"
            found.append(finding("RC-BASELINE", where, f"processes of an earlier run live on: {pids}", do))
    host = survey["host"]["name"]
    for backend, card in wanted(plan, survey):
        reasons = _reasons(backend, card, survey)
        if reasons:
            reset = f"{host}:{card['index']}"
            found.append(finding("RC-BASELINE", lookup.place(survey, card), "; ".join(reasons), DO.format(reset=reset)))
    return ordered(found)


def wanted(plan: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Tuple[str, Mapping[str, Any]]]:
    """(backend, card) of every card that an instance which does not run is to get; once each."""
    found: List[Tuple[str, Mapping[str, Any]]] = []
    for service in plan["services"]:
        backend = service["backend"]
        if tables.backend(backend).get("cores_as_cards"):
            continue
        idle = resting(service, survey)
        indexes: Set[int] = {card for instance in idle for rank in instance["cards"] for card in rank}
        if idle and not indexes:  # it could not be planned; then all that it asks for
            indexes = set(service["cards"])
        for card in survey["cards"].get(backend, []):
            if card["index"] in indexes and (backend, card) not in found:
                found.append((backend, card))
    return found


def _reasons(backend: str, card: Mapping[str, Any], survey: Mapping[str, Any]) -> List[str]:
    """Why a card is not back at its baseline; empty when it is."""
    reasons = []
    if card["health"] not in ("ok", "degraded"):
        reasons.append(f"its health is {card['health']}")
    idle, written = baseline.idle_mib(card, survey, backend)
    base = f"{idle} MiB, {'as written down' if written else 'assumed, none was written down'}"
    if card["memory_used_mib"] is None:
        reasons.append(f"how much of its memory is in use is not known (idle is {base})")
    elif _held(card, backend, survey) - idle > TOLERANCE_MIB:
        reasons.append(f"{card['memory_used_mib']} MiB are in use (idle is {base})")
    pids = baseline.users(card, survey, backend)
    if pids:
        reasons.append(f"still on it: {'; '.join(lookup.process(pid, survey) for pid in pids)}")
    return reasons


def _held(card: Mapping[str, Any], backend: str, survey: Mapping[str, Any]) -> int:
    """MiB in use without those of displays and monitors, which belong there."""
    on_it = set(baseline.users(card, survey, backend))
    return int(card["memory_used_mib"] - sum(p["memory_mib"] or 0 for p in card["processes"] if p["pid"] not in on_it))


def to_test(plan: Mapping[str, Any], survey: Mapping[str, Any]) -> List[str]:
    """Services whose cards can be tested now: something of them does not run, and their runtime is there."""
    return [s["name"] for s in plan["services"] if resting(s, survey) and s["runtime"]["present"]]


def report(plan: Mapping[str, Any], survey: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    """Rows for a table: each wanted card with its memory and its verdict; the heading first."""
    rows: List[Sequence[Any]] = [("card", "bus", "in use", "idle", "verdict")]
    for backend, card in wanted(plan, survey):
        idle, written = baseline.idle_mib(card, survey, backend)
        used = "unknown" if card["memory_used_mib"] is None else f"{card['memory_used_mib']} MiB"
        verdict = "not back" if _reasons(backend, card, survey) else "pass"
        rows.append((card["index"], card["bus_id"], used, f"{idle} MiB{'' if written else ' (assumed)'}", verdict))
    return rows
