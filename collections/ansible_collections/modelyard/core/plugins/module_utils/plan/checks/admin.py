"""What a stop has handed over to an admin: does it still stand in the way, or is it over?"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_records import TOLERANCE_MIB


def findings(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """One for each service with a needs_admin.json. Whether it is over is read from what is there now, not from that file."""
    found = []
    for name, seen in sorted(survey["services"].items()):
        known = seen.get("needs_admin")
        if not known:
            continue
        where = f"{survey['host']['name']}:{name}"
        remains = _remains(known, survey)
        since = f"since {known.get('at', 'a time that cannot be read')}"
        if not remains:
            what = f"what a stop had handed over to an admin {since} is over: its processes are gone, the memory is back"
            found.append(finding("PF-ADMIN-DONE", where, what, "nothing: the next deploy removes needs_admin.json"))
        elif _in_the_way(name, known, services):
            what = f"{since} a stop of this service waits for an admin: {'; '.join(remains)}"
            do = f"see {known.get('report', 'its folder in evidence')}/report.txt; over when this is gone and memory is back"
            found.append(finding("PF-NEEDS-ADMIN", where, what, do))
    return found


def _remains(known: Mapping[str, Any], survey: Mapping[str, Any]) -> List[str]:
    """What of it is still there."""
    remains = [lookup.process(pid, survey) for pid in known["left"]]
    for entry in _cards(known):
        backend = str(entry.get("backend"))
        card = next((c for c in survey["cards"].get(backend, []) if _same(entry, c)), None)
        name = f"card {entry.get('index')}"
        if card is None or card["memory_used_mib"] is None or card["health"] in ("lost", "unknown", "needs_reset"):
            remains.append(f"{name} does not tell its memory")
            continue
        named = lookup.named(card, survey)
        rest = card["memory_used_mib"] - sum(amount or 0 for amount in named.values()) - int(entry.get("idle_mib") or 0)
        if rest > TOLERANCE_MIB and None not in named.values():
            remains.append(f"{name} holds {card['memory_used_mib']} MiB, {rest} more than idle and than its users take")
    return remains


def _cards(known: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    cards = known.get("cards")
    return [entry for entry in cards if isinstance(entry, dict)] if isinstance(cards, list) else []


def _same(entry: Mapping[str, Any], card: Mapping[str, Any]) -> bool:
    for key in ("uuid", "bus_id"):
        if entry.get(key) and card[key]:
            return bool(entry[key] == card[key])
    return entry.get("index") is not None and entry.get("index") == card["index"]


def _in_the_way(name: str, known: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> bool:
    """Is something to be started on those cards? Without cards in it: is this service to be started?

    One card that is stuck costs one card: what is planned on the others goes on. On a host without services all is judged.
    """
    if not services:
        return True
    fresh = lookup.by_card(services, fresh=True)
    cards = _cards(known)
    if not cards:
        return any(service["name"] == name and service["action"] != lookup.KEPT for service in services)
    return any((entry.get("backend"), entry.get("index")) in fresh for entry in cards)
