"""Is the topology of a service a good one for its model and its cards? By the memory plan, estimates and all. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import estimates
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import plan as memory
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory.budget import FITS, UNKNOWN


def findings(wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]], where: str) -> List[Dict[str, str]]:
    """A tensor parallel size that the model cannot be split by."""
    tp = int(wanted["topology"]["tensor_parallel_size"])
    heads = attention.shape(listing["config"] or {}).heads if listing and "hf_overrides" not in wanted["engine"] else None
    if not heads or heads % tp == 0:
        return []
    fitting = ", ".join(str(size) for size in range(1, heads + 1) if heads % size == 0 and size <= max(8, tp))
    what = f"the model has {heads} attention heads (config.json), which {tp} ranks cannot share evenly"
    return [finding("PL-TOPOLOGY", f"{where}.topology.tensor_parallel_size", what, f"set one of {fitting}")]


def topology(
    wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]], cards: Sequence[Mapping[str, Any]], release: str = ""
) -> List[str]:
    """One line: data parallel or tensor parallel, and why. `cards`: those of the backend that answer; cores have no advice.

    Whole cards are compared: who else is on them today decides about a start and not about a topology.
    """
    totals = [int(card["memory_total_mib"]) * 2**20 for card in cards if card.get("memory_total_mib")]
    if not totals:
        return []
    tp, replicas = int(wanted["topology"]["tensor_parallel_size"]), int(wanted["topology"]["replicas"])
    if not listing or not listing["exists"] or _verdict(listing, wanted, 1, min(totals), release) == UNKNOWN:
        return ["whether the model fits on one card is not known: its weights are not there yet"]
    alone, split = (_need(listing, wanted, size, min(totals), release) for size in (1, tp))
    engine = estimates.engine(wanted["engine"], release, min(totals))
    room = f"the {_gib(estimates.usable(min(totals)) * engine.share)} that {engine.share:g} of a card allows (estimated)"
    card = f"about {_gib(alone)} of {room}"
    if _verdict(listing, wanted, 1, min(totals), release) == FITS:
        return [_alone(f"the model fits on one card: {card}", tp, replicas)]
    if tp > 1 and _verdict(listing, wanted, tp, min(totals), release) == FITS:
        return [
            f"tensor parallel is right: the model does not fit on one card ({card}), and over {tp} it takes about {_gib(split)} "
            "of each (estimated)"
        ]
    larger = memory.split_sizes(listing, tp)
    sizes = [size for size in larger if _verdict(listing, wanted, size, min(totals), release) == FITS]
    more = f"tensor_parallel_size {sizes[0]} would fit" if sizes else "playbooks/memory.yml says what to change"
    place = "one card" if tp == 1 else f"{tp} cards"
    return [f"the model may not fit on {place}: about {_gib(split)} of each are needed, of {room}; {more}"]


def _alone(fits: str, tp: int, replicas: int) -> str:
    """What is said of a model that fits on one card."""
    if tp == 1 and replicas == 1:
        return fits
    if tp == 1:
        return (
            f"data parallel is right: {fits}. No request pays for an all-reduce between cards, throughput adds up over "
            f"{replicas} instances, and a dead card costs 1/{replicas}"
        )
    costs = "the whole service" if replicas == 1 else f"1/{replicas}"
    return (
        f"data parallel would do: {fits}. {replicas * tp} x 1 instead of {replicas} x {tp} serves more requests at once, "
        f"none pays for an all-reduce, and a dead card costs 1/{replicas * tp} instead of {costs}. "
        "Tensor parallel gives one request more memory and a shorter answer time"
    )


def _row(listing: Mapping[str, Any], wanted: Mapping[str, Any], tp: int, total: int, release: str) -> Dict[str, Any]:
    """The plan of one rank of `tp` on a card of its own."""
    service = memory.Wanted(wanted["engine"], tp, wanted["backend"], release)
    return memory.plan(listing, service, [memory.Place(0, "start", 0, total, 0)])


def _verdict(listing: Mapping[str, Any], wanted: Mapping[str, Any], tp: int, total: int, release: str) -> str:
    return str(_row(listing, wanted, tp, total, release)["verdict"])


def _need(listing: Mapping[str, Any], wanted: Mapping[str, Any], tp: int, total: int, release: str) -> int:
    """Bytes that a rank needs at least: weights, one request, and the rest as estimated."""
    found = _row(listing, wanted, tp, total, release)
    told = found["rows"][0]["estimated"]
    besides = told["activation"] + told["context"] + (told["graphs"] if found["graphs_inside"] else 0)
    return int(found["weights"]["rank"] + (found["kv"]["request_bytes"] or 0) + besides)


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
