"""Is the topology of a service a good one for its model and its cards? Estimates, and said to be. Pure functions.

Sources: how vLLM plans a card's memory (vLLM 0.33, v1/worker/gpu_worker.py and v1/core/kv_cache_utils.py): the share of the
card that gpu_memory_utilization allows must hold the weights, what a pass over the longest batch needs, and the KV cache of at
least one request of max_model_len tokens (kv_cache.py).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, kv_cache, model
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

#: Activations, the runtime's own memory and graphs of one rank, MiB. Not to be known before a start; engines of 7B to 14B models
#: print 1 to 3 GiB for them.
OVERHEAD_MIB = 2048
#: Where config.json does not tell enough for the KV cache.
WEIGHTS_FACTOR = 1.2
#: The share of a card that an engine takes where nothing is set: 0.9 up to vLLM 0.19, 0.92 from 0.20. The smaller one.
SHARE = 0.9


def kv_mib(config: Mapping[str, Any], engine: Mapping[str, Any], tp: int, tokens: int) -> Optional[float]:
    """MiB of KV cache that one rank needs for a request of so many tokens; None where config.json does not tell."""
    layout = attention.layout(config, engine, tp)
    found = kv_cache.cache(layout, engine, "")
    return kv_cache.request_bytes(found, tokens) / 2**20 if layout.kinds else None


def need_mib(listing: Mapping[str, Any], engine: Mapping[str, Any], tp: int) -> float:
    """MiB that one rank needs at least, estimated."""
    weights = model.weights_mib(listing) / tp
    tokens = number(engine.get("max_model_len")) or model.longest_context(listing)
    cache = kv_mib(listing["config"] or {}, engine, tp, tokens) if tokens else None
    return weights * WEIGHTS_FACTOR if cache is None else weights + cache + OVERHEAD_MIB


def share(engine: Mapping[str, Any]) -> float:
    """The part of a card that the engine may take."""
    value = engine.get("gpu_memory_utilization")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else SHARE


def findings(wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]], where: str) -> List[Dict[str, str]]:
    """A tensor parallel size that the model cannot be split by."""
    tp = int(wanted["topology"]["tensor_parallel_size"])
    heads = attention.shape(listing["config"] or {}).heads if listing and "hf_overrides" not in wanted["engine"] else None
    if not heads or heads % tp == 0:
        return []
    fitting = ", ".join(str(size) for size in range(1, heads + 1) if heads % size == 0 and size <= max(8, tp))
    what = f"the model has {heads} attention heads (config.json), which {tp} ranks cannot share evenly"
    return [finding("PL-TOPOLOGY", f"{where}.topology.tensor_parallel_size", what, f"set one of {fitting}")]


def topology(wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]], cards: Sequence[Mapping[str, Any]]) -> List[str]:
    """One line: data parallel or tensor parallel, and why. `cards`: those of the backend that answer; cores have no advice."""
    totals = [card["memory_total_mib"] for card in cards if card.get("memory_total_mib")]
    weights = model.weights_mib(listing) if listing and listing["exists"] else 0.0
    if not totals:
        return []
    tp, replicas = int(wanted["topology"]["tensor_parallel_size"]), int(wanted["topology"]["replicas"])
    if not listing or not weights:
        return ["whether the model fits on one card is not known: its weights are not there yet"]
    engine, total = wanted["engine"], min(totals)
    room = total * share(engine)
    alone, split = need_mib(listing, engine, 1), need_mib(listing, engine, tp)
    card = f"about {_gib(alone)} of the {_gib(room)} that {share(engine):g} of a card allows (estimated)"
    if alone <= room:
        fits = f"the model fits on one card: {card}"
        if tp == 1 and replicas == 1:
            return [fits]
        if tp == 1:
            return [
                f"data parallel is right: {fits}. No request pays for an all-reduce between cards, throughput adds up over "
                f"{replicas} instances, and a dead card costs 1/{replicas}"
            ]
        costs = "the whole service" if replicas == 1 else f"1/{replicas}"
        return [
            f"data parallel would do: {fits}. {replicas * tp} x 1 instead of {replicas} x {tp} serves more requests at once, "
            f"none pays for an all-reduce, and a dead card costs 1/{replicas * tp} instead of {costs}. "
            "Tensor parallel gives one request more memory and a shorter answer time"
        ]
    if split <= room:
        return [
            f"tensor parallel is right: the model does not fit on one card ({card}), and over {tp} it takes about {_gib(split)} "
            "of each (estimated)"
        ]
    sizes = [size for size in _sizes(listing) if size > tp and need_mib(listing, engine, size) <= room]
    more = (
        f"tensor_parallel_size {sizes[0]} would fit" if sizes else "give the engine more of the card, or a shorter max_model_len"
    )
    place = "one card" if tp == 1 else f"{tp} cards"
    return [f"the model may not fit on {place}: about {_gib(split)} of each are needed, {_gib(room)} allowed (estimated); {more}"]


def _sizes(listing: Mapping[str, Any]) -> List[int]:
    heads = attention.shape(listing["config"] or {}).heads
    return [size for size in (2, 4, 8, 16) if not heads or heads % size == 0]


def _gib(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB"
