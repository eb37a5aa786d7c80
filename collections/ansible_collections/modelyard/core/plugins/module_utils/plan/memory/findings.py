"""What the memory plan refuses, and what it warns of. Pure.

Refused is what holds with exact figures alone: weights as their headers say, the KV cache of one request, memory that others hold
right now. An estimate warns.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import REFUSE, finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import size

#: Actions of an instance that something is started for; `refused`: it would be, with the admin's word.
STARTED = ("start", "restart", "refused")
#: Who or what holds the memory of a card; those of ANYWHERE name a process and not the card.
ANYWHERE = ("PF-LEFTOVER", "PF-ZOMBIE-HOLDS", "PF-NEEDS-ADMIN", "PF-STUCK", "PF-NAME-USED")
CAUSES = ("PF-STRANGER", "PF-MEMORY-HELD", "PF-CARD-LOST", "PF-CARD-NEEDS-RESET", *ANYWHERE)
CONSEQUENCES = ("PF-MEMORY-FREE", "PF-MEMORY-TIGHT")


def findings(found: Mapping[str, Any], name: str, places: Mapping[Any, str]) -> List[Dict[str, str]]:
    """Findings of a service by its memory plan (plan.plan); cards with the same trouble together.

    :param places: where a card is, by its index, and under None where the service is
    """
    groups: Dict[Tuple[Any, ...], List[Mapping[str, Any]]] = {}
    for row in found["rows"]:
        if row["lacks"] and row["action"] in STARTED:
            held = (row["card"],) if row["lacks"] == "free" else ()
            groups.setdefault((row["lacks"], row["surely"], *held), []).append(row)
    result = []
    for (lacks, surely, *_), rows in groups.items():
        id = "PF-MEMORY-FREE" if lacks == "free" else "PF-MEMORY-PLAN"
        id = id if surely else "PF-MEMORY-TIGHT"
        words = {"free": _free, "weights": _weights, "request": _request}[lacks](rows[0], found)
        where = ", ".join(dict.fromkeys(places.get(row["card"], places[None]) for row in rows))
        result.append(finding(id, where, f"{name}: {words}", _do(lacks, found)))
    return result


def without_explained(found: Sequence[Dict[str, str]]) -> List[Dict[str, str]]:
    """Without findings about memory that is not free, where it is refused already who holds it: one cause, one finding.

    When an admin switches that refusal off, what remains is that the engine will not start.
    """
    causes = [item for item in found if item["severity"] == REFUSE and item["id"] in CAUSES]
    places = {item["where"] for item in causes}
    anywhere = any(item["id"] in ANYWHERE for item in causes)
    return [item for item in found if item["id"] not in CONSEQUENCES or not (anywhere or item["where"] in places)]


def _free(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The engine looks whether so much is free before it does anything."""
    held = [f"{size(row['others'])} are in use"] if row["others"] else []
    held += [f"other instances of the plan take {size(row['beside'])}"] if row["beside"] else []
    held += [] if row["surely"] else ["its own context comes first (estimated)"]
    return (
        f"the engine asks for {size(row['asked'])} of the card ({found['share']:g} of {size(row['total'])}) and does not start "
        f"unless that is free; {', '.join(held)}"
    )


def _weights(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if row["surely"]:
        return (
            f"the weights alone take {size(row['weights'])} on each of {found['ranks']} rank(s), "
            f"{found['share']:g} of the card is {size(row['total'] * found['share'])}"
        )
    return (
        f"weights {size(row['weights'])}, and about {size(_besides(row, found))} for activations, graphs and context, leave "
        f"nothing of {size(row['asked'])} for the KV cache (estimated)"
    )


def _request(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    need = f"one request of {found['tokens']} tokens needs {size(found['kv']['request_bytes'])} KV cache"
    longest = f"; the longest that fits is {row['longest']}" if row["longest"] else ""
    if not row["total"]:
        return f"{need}, {size(row['cache'])} are set for it{longest}: the engine does not start"
    if row["surely"]:
        return (
            f"{need}, and the weights take {size(row['weights'])}: together more than the engine may take of the card "
            f"({found['share']:g} of {size(row['total'])})"
        )
    return f"{need}, about {size(row['cache'])} are left for it beside weights, activations and graphs (estimated){longest}"


def _besides(row: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    told = row["estimated"]
    return int(told["activation"] + told["context"] + (told["graphs"] if found["graphs_inside"] else 0))


def _do(lacks: str, found: Mapping[str, Any]) -> str:
    first = ["wait until that memory is free, or take other cards"] if lacks == "free" else []
    return "; or ".join([*first, *found["change"]]) + ". playbooks/memory.yml shows the whole plan"
