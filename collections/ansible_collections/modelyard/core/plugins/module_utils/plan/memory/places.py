"""Which card each rank of a service is to be on, and who else takes memory there: from plan and survey. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import estimates, plan
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

MIB = 2**20
NO_MODEL = {"exists": False, "files": {}, "shards": [], "config": {}}


def of_services(services: Sequence[Mapping[str, Any]], survey: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The memory plan (plan.plan) of each service of a host, in their order. `services`: as planned."""
    found = []
    for service in services:
        backend = tables.backend(service["backend"])
        listing = survey["models"].get(service["model"]["path"]) or NO_MODEL
        cores = bool(backend.get("cores_as_cards"))
        found.append(plan.plan(listing, wanted(service, backend), _places(service, services, survey, cores)))
    return found


def names(service: Mapping[str, Any], survey: Mapping[str, Any]) -> Dict[Optional[int], str]:
    """Where the cards of a service are, by index; under None where the service is."""
    cards = [card for card in survey["cards"].get(service["backend"], []) if "bus_id" in card]  # cores have none
    return {**{card["index"]: lookup.place(survey, card) for card in cards}, None: f"{survey['host']['name']}:{service['name']}"}


def wanted(service: Mapping[str, Any], backend: Mapping[str, Any]) -> plan.Wanted:
    """What of a service concerns its memory."""
    cpu = int(backend["kv_cache_default_mib"]) * MIB if backend.get("cores_as_cards") else None
    return plan.Wanted(
        _options(service), int(service["topology"]["tensor_parallel_size"]), service["backend"], _release(service), cpu
    )


def _places(
    service: Mapping[str, Any], services: Sequence[Mapping[str, Any]], survey: Mapping[str, Any], cores: bool
) -> List[plan.Place]:
    found = []
    cards = {card["index"]: card for card in survey["cards"].get(service["backend"], [])}
    for instance in service["instances"]:
        if cores:
            found.append(plan.Place(instance["index"], instance["action"], None, None, None))
            continue
        for index in sorted({index for rank in instance["cards"] for index in rank}):
            card = cards.get(index) or {}
            total = int(card["memory_total_mib"]) * MIB if card.get("memory_total_mib") else None
            beside = _beside(index, total or 0, (service["name"], instance["index"]), services, str(service["backend"]))
            others = _others(card, services, survey) if card else None
            found.append(plan.Place(instance["index"], instance["action"], index, total, others, beside))
    return found


def _others(card: Mapping[str, Any], services: Sequence[Mapping[str, Any]], survey: Mapping[str, Any]) -> Optional[int]:
    """Bytes in use that stay when the services of this run have ended; None where it cannot be told."""
    used, takes = card.get("memory_used_mib"), lookup.named(card, survey)
    planned = {entry["name"] for entry in services if entry["concerned"]}
    own = [pid for pid in {*takes, *card["holders"]} if lookup.owner(pid, survey) in planned]
    if used is None or any(takes.get(pid) is None for pid in own):
        return None
    return max(0, int(used - sum(takes[pid] or 0 for pid in own))) * MIB


def _beside(index: int, total: int, this: Tuple[str, int], services: Sequence[Mapping[str, Any]], backend: str) -> int:
    """Bytes that other instances of the plan are to take on a card. `this`: (service, instance) that is asked for."""
    return sum(
        _asked(entry, total)
        for entry in services
        if entry["backend"] == backend and entry["concerned"]
        for other in entry["instances"]
        if (entry["name"], other["index"]) != this and other["action"] not in ("stop", "leave")
        if any(index in rank for rank in other["cards"])
    )


def _asked(service: Mapping[str, Any], total: int) -> int:
    """Bytes that an instance of a service takes of a card: its share, or with kv_cache_memory_bytes at least that."""
    options = _options(service)
    return number(options.get("kv_cache_memory_bytes")) or int(total * estimates.engine(options, _release(service), total).share)


def _options(service: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the engine is started with: also what is written out where the inventory says nothing."""
    table = tables.vllm(service["runtime"]["vllm_release"])
    return launch.engine_options(service, table) if table["known"] else dict(service["engine"])


def _release(service: Mapping[str, Any]) -> str:
    return str(service["runtime"]["vllm_release"]).partition("+")[0]
