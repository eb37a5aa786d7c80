"""Memory of an idle card: what was written down for it, and what would be written down now. Pure functions.

"0 MiB" is no baseline: a display, a driver's own reserve or a leak of the driver hold memory on an idle card, and it differs
from host to host. A deploy writes down what an idle card holds, in cards.json of the home; later looks compare with that.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_records import TOLERANCE_MIB

#: What has the name of a display or a monitor and takes more is a user like any other.
BYSTANDER_MIB = 512


def key(card: Mapping[str, Any]) -> str:
    """What names a card for good: its uuid, else its PCI address."""
    return str(card["uuid"] or card["bus_id"])


def known(survey: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """The entries of cards.json that are whole; people may have edited the file."""
    return {
        str(name): {
            "memory_mib": int(entry["memory_mib"]),
            "index": entry.get("index") if isinstance(entry.get("index"), int) else None,
            "bus_id": entry.get("bus_id") if isinstance(entry.get("bus_id"), str) else "",
            "backend": entry.get("backend") if isinstance(entry.get("backend"), str) else "",
        }
        for name, entry in survey["baseline"].items()
        if isinstance(entry, dict) and isinstance(entry.get("memory_mib"), (int, float)) and math.isfinite(entry["memory_mib"])
    }


def idle_mib(card: Mapping[str, Any], survey: Mapping[str, Any], backend: str) -> Tuple[int, bool]:
    """(MiB that this card holds when nobody uses it, was it written down on this host?)."""
    entry = known(survey).get(key(card))
    return (int(entry["memory_mib"]), True) if entry else (int(tables.backend(backend)["idle_mib"]), False)


def is_bystander(pid: int, survey: Mapping[str, Any], backend: str) -> bool:
    """Has it the name of a program that is on cards as a matter of course (persistence daemon, display, exporters)?"""
    return survey["processes"].get(str(pid), {}).get("comm") in tables.backend(backend)["bystanders"]


def users(card: Mapping[str, Any], survey: Mapping[str, Any], backend: str) -> List[int]:
    """Pids that the tool names on the card or that hold its own device files, without bystanders that take little."""
    takes = {p["pid"]: p["memory_mib"] or 0 for p in card["processes"]}
    pids = dict.fromkeys([*takes, *card["holders"]])
    return [pid for pid in pids if takes.get(pid, 0) > BYSTANDER_MIB or not is_bystander(pid, survey, backend)]


def is_idle(card: Mapping[str, Any], survey: Mapping[str, Any], backend: str) -> bool:
    """Nobody is on it, as far as can be told, what it says can be believed, and it holds no more than idle cards do.

    Memory that somebody left must not become the baseline; where a driver keeps more for good, an admin edits cards.json.
    """
    sure = survey["accelerators"][backend]["process_list"] in ("none", "listed")
    if not sure or card["memory_used_mib"] is None or card["health"] != "ok" or not key(card) or users(card, survey, backend):
        return False
    return bool(_without_processes(card) <= tables.backend(backend)["idle_mib"] + TOLERANCE_MIB)


def _without_processes(card: Mapping[str, Any]) -> int:
    """MiB in use beside those of the processes that the tool names (a display, as a rule)."""
    return max(0, int(card["memory_used_mib"] - sum(p["memory_mib"] or 0 for p in card["processes"])))


def recorded(survey: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """What a deploy writes to cards.json: memory of entries that are there stays, cards that are idle now are added.

    {uuid or PCI address: {backend, index, bus_id, memory_mib}}; empty on a host without accelerators.
    """
    entries = known(survey)
    for backend in survey["accelerators"]:
        for card in survey["cards"].get(backend, []):
            if card["index"] is None:
                continue
            if key(card) not in entries and is_idle(card, survey, backend):
                entries[key(card)] = {"memory_mib": _without_processes(card)}
            if key(card) in entries:
                entries[key(card)].update(backend=backend, index=card["index"], bus_id=card["bus_id"])
    return entries
