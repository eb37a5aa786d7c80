"""Which cards the plan wants, and words for cards and processes that all checks share."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import baseline, tables

#: A service or instance with this action runs as wanted: its cards are its own already.
KEPT = "keep"
#: Nothing is started for an instance with one of these actions.
NOT_STARTED = (KEPT, "leave", "stop")


def by_card(services: Sequence[Mapping[str, Any]], fresh: bool = False) -> Dict[Tuple[str, int], List[str]]:
    """Names of the services that use a card, by (backend, index). `fresh`: only where an instance is to be started on it."""
    found: Dict[Tuple[str, int], List[str]] = {}
    for service in services:
        for index in _fresh(service) if fresh else service["cards"]:
            found.setdefault((service["backend"], index), []).append(service["name"])
    return found


def _fresh(service: Mapping[str, Any]) -> List[int]:
    """Cards that something is to be started on, and those that an instance would have if it could."""
    resting = {card for i in service["instances"] if i["action"] in NOT_STARTED for rank in i["cards"] for card in rank}
    starting = {card for i in service["instances"] if i["action"] not in NOT_STARTED for rank in i["cards"] for card in rank}
    return [index for index in service["cards"] if index in starting or index not in resting]


def starting(service: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """Instances that are to be started, or would be, and that do not run: they need what the running ones have already."""
    seen = survey["services"].get(service["name"])
    alive = {i["index"] for i in (seen["instances"] if seen else []) if i["alive"]}
    return [i for i in service["instances"] if i["action"] not in NOT_STARTED and i["index"] not in alive]


def number(card: Mapping[str, Any], survey: Mapping[str, Any]) -> Optional[int]:
    """The card's number; of one that does not answer the number at the last deploy, if it was written down."""
    if card["index"] is not None:
        return int(card["index"])
    names = {name for name in (card["uuid"], card["bus_id"]) if name}
    entries = baseline.known(survey).items()
    return next((entry["index"] for key, entry in entries if key in names or entry["bus_id"] in names), None)


def asked(backend: str, services: Sequence[Mapping[str, Any]]) -> Set[str]:
    """What the services of a backend ask for: numbers of cards as text, and `all`."""
    return {str(card) for service in services if service["backend"] == backend for card in service["asked_cards"]}


def wants(card: Mapping[str, Any], backend: str, survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> bool:
    """Does a service use this card, or, where the card does not answer, ask for it? Without services every card counts."""
    if not services or (backend, card["index"]) in by_card(services):
        return True
    if card["index"] is not None:
        return False
    ask, known = asked(backend, services), number(card, survey)
    if known is None:  # it may be any that is asked for and not to be seen
        return bool(ask - {str(c["index"]) for c in survey["cards"].get(backend, []) if c["index"] is not None})
    return "all" in ask or str(known) in ask


def named(card: Mapping[str, Any], survey: Mapping[str, Any]) -> Dict[int, Optional[int]]:
    """MiB by pid of those that the vendor's tool names on a card, as far as the pids can be those that we see.

    In a container the tool tells numbers of the machine outside, which can be those of other processes here: there only who holds
    the card's device file is believed.
    """
    inside = bool(survey["platform"]["container"])
    return {p["pid"]: p["memory_mib"] for p in card.get("processes", ()) if not inside or p["pid"] in card["holders"]}


def integrated(backend: str, survey: Mapping[str, Any]) -> bool:
    """Is it only the graphics unit of a CPU, for which nobody installs a vendor's tool?"""
    seen, classes = survey["accelerators"][backend], tables.backend(backend).get("integrated_classes", ())
    found = [function["class"] for function in seen["on_bus"]]
    return bool(classes and found) and not seen["tool"]["path"] and set(found) <= set(classes)


def title(card: Mapping[str, Any]) -> str:
    """`card 1`, or its address where it has no number."""
    return f"card {card['index']}" if card["index"] is not None else f"the card at {card['bus_id'] or 'an unknown address'}"


def place(survey: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    """`box:card 1 (0000:01:00.0)`."""
    index = f"card {card['index']}" if card["index"] is not None else "card"
    return f"{survey['host']['name']}:{index}" + (f" ({card['bus_id']})" if card["bus_id"] else "")


def owner(pid: int, survey: Mapping[str, Any]) -> str:
    """Name of the service of this project that a process belongs to; empty for anybody else's."""
    return next((name for name, seen in survey["services"].items() if pid in seen["pids"]), "")


def process(pid: int, survey: Mapping[str, Any]) -> str:
    """`pid 4711 of user eve (python train.py)`, with unit or container when there is one."""
    seen = survey["processes"].get(str(pid))
    if seen is None:
        return f"pid {pid}, which is not to be seen here (gone, or in another container)"
    more = [f"unit {seen['unit']}"] if seen["unit"] else []
    more += [f"container {seen['container'][:12]}"] if seen["container"] else []
    more += [f"service {owner(pid, survey)} of this project"] if owner(pid, survey) else []
    shown = seen["command"] or f"[{seen['comm']}]"
    return f"pid {pid} of user {seen['user']} ({'; '.join([shown[:120], *more])})"


def is_zombie(pid: int, survey: Mapping[str, Any]) -> bool:
    """Has this process ended, though its entry is still there?"""
    return bool(survey["processes"].get(str(pid), {}).get("state") == "Z")
