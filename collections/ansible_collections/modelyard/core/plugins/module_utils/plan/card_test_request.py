"""From a service of the plan to what the module card_test is asked, and from its answers to a text. Pure functions.

Needed of the plan: `name`, `action`, `backend`, `visibility` (the variable that says which cards are visible; "" where a card is
a core), `runtime.path`, and of each instance `name`, `action`, `cards` (by rank) and `environment`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import card_report
from ansible_collections.modelyard.core.plugins.module_utils.plan import text

TESTED = ("start", "restart")
#: Instances with these actions are not started: their cards are theirs already, or nobody's.
RESTING = ("keep", "leave", "stop")


def wanted(plan: Mapping[str, Any], names: Sequence[str] = ()) -> List[str]:
    """Services to test: those named, or those that the plan starts or restarts; raises ValueError for a name it does not have."""
    known = [service["name"] for service in plan["services"]]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"the plan for {plan['host']} has no service {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return list(names) or [service["name"] for service in plan["services"] if service["action"] in TESTED]


def request(service: Mapping[str, Any], cards: Any = ()) -> Dict[str, Any]:
    """{service, runtime, python, backend, device, running, cards, groups}.

    Of a service that runs in part, the instances to be started count. `running`: they may run while their cards are tested.
    `cards`: those of the survey, a list or one list for each backend; they say uuid and device files. Each card of any instance
    comes once: {index, uuid, environment, cores, device_files}. Groups are the instances with several ranks: {name, ranks:
    [{cards, environment, cores}]}.
    """
    known = cards.get(service["backend"], ()) if isinstance(cards, Mapping) else cards
    seen = {card["index"]: card for card in known}
    variable = service["visibility"]
    alone: Dict[int, Dict[str, Any]] = {}
    groups = []
    tested = [i for i in service["instances"] if i.get("action") not in RESTING] or service["instances"]
    for instance in tested:
        given = instance["environment"]
        for index, value in _visible(instance, variable).items():
            card = seen.get(index, {})
            alone.setdefault(
                index,
                {
                    "index": index,
                    "uuid": str(card.get("uuid") or ""),
                    "environment": {**given, variable: value} if variable else dict(given),
                    "cores": [] if variable else [index],
                    "device_files": [file["path"] for file in card.get("device_files") or ()],
                },
            )
        ranks = [
            {"cards": list(rank), "environment": dict(given), "cores": [] if variable else list(rank)}
            for rank in instance["cards"]
        ]
        if len(ranks) > 1:
            groups.append({"name": instance["name"], "ranks": ranks})
    return {
        "service": service["name"],
        "runtime": service["runtime"]["path"],
        "python": f"{service['runtime']['path']}/bin/python",
        "backend": service["backend"],
        "device": "cuda" if variable else "cpu",
        "running": any(instance.get("action", service["action"]) != "start" for instance in tested),
        "cards": [alone[index] for index in sorted(alone)],
        "groups": groups,
    }


def _visible(instance: Mapping[str, Any], variable: str) -> Dict[int, str]:
    """What makes each card of an instance visible alone: its own entry of the instance's list, which has them in this order."""
    cards = [index for rank in instance["cards"] for index in rank]
    values = [value.strip() for value in str(instance["environment"].get(variable, "")).split(",")] if variable else []
    return dict(zip(cards, values if len(values) == len(cards) else map(str, cards)))


def report(
    plan: Mapping[str, Any], requests: Mapping[str, Mapping[str, Any]], answers: Mapping[str, Mapping[str, Any]]
) -> Tuple[List[Dict[str, str]], str]:
    """(findings of all services, table). `answers`: {cards, groups} of the module card_test, by service."""
    findings: List[Dict[str, str]] = []
    lines: List[str] = []
    for name, answer in answers.items():
        found, rows = card_report.report(requests[name], answer, plan["host"])
        findings += found
        lines += [f"Card test of {name} on {plan['host']}"]
        lines += text.table([("what", "verdict", "seconds", "what was seen"), *rows])
    return findings, "\n".join(lines)
