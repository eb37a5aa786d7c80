"""The memory of one card: what the engine asks for, what others hold, what is left for the KV cache. Pure.

As the engine does it (vLLM 0.8 to 0.33, v1/worker/gpu_worker.py and v1/worker/utils.py): it asks for total x
gpu_memory_utilization and does not start unless so much is free; of that it takes off weights, activations, its own context and,
from 0.20 on, graphs. The rest is the KV cache. kv_cache_memory_bytes replaces this arithmetic and not the look at what is free.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import kv_cache
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import estimates
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory.weights import Weights
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

FITS, LESS, NOT, UNKNOWN = "fits", "fits with less", "does not fit", "unknown"


class Rank(NamedTuple):
    """What a rank is: the same on all cards of a service. `tokens`: max_model_len, None where nobody says it."""

    weights: Weights
    besides: estimates.Besides
    engine: estimates.Engine
    cache: kv_cache.Cache
    tokens: Optional[int]
    options: Mapping[str, Any]


class Card(NamedTuple):
    """Bytes of one card. `others`: held now by what is not this service, None where the tool does not say; `beside`: what other
    instances of the plan are to take on it.
    """

    total: int
    others: Optional[int]
    beside: int = 0

    @property
    def held(self) -> Optional[int]:
        """Bytes that are not to be had; None where that is not known."""
        return None if self.others is None else self.others + self.beside


def of_card(rank: Rank, card: Card) -> Dict[str, Any]:
    """The budget of a rank on a card, in bytes; what is an estimate stands under `estimated`.

    {total, others, beside, asked, weights, estimated: {activation, graphs, context, kept}, cache, blocks, fit, longest, verdict,
    surely, lacks}

    cache    what is left for the KV cache, estimated; less than 0 says how much is missing
    fit      requests of max_model_len at once; None where config.json does not tell
    longest  the longest request that fits, where max_model_len does not
    surely   the verdict rests on exact figures alone
    lacks    `free`: others hold so much that the engine does not start; `weights`, `request`: what has no room; empty
    """
    given = number(rank.options.get("kv_cache_memory_bytes"))
    usable = estimates.usable(card.total)
    asked = int(usable * rank.engine.share)
    graphs = rank.besides.graphs if rank.engine.graphs_inside else 0
    over = rank.besides.activation + rank.besides.context + graphs
    cache = given if given else asked - rank.weights.rank - over
    known = bool(rank.cache.layout.kinds)
    blocks = number(rank.options.get("num_gpu_blocks_override"))
    if blocks is None and known:
        blocks = kv_cache.pool_of_bytes(rank.cache, max(0, cache))
    fit = kv_cache.fit(rank.cache, rank.tokens, blocks) if known and rank.tokens and blocks is not None else None
    lacks, surely = _lacks(rank, card, asked, cache, fit)
    longest = kv_cache.longest(rank.cache, blocks, rank.tokens) if known and rank.tokens and blocks and not fit else None
    if not rank.weights.rank:
        verdict = UNKNOWN
    elif not lacks:
        verdict = FITS
    else:
        verdict = LESS if lacks == "request" and longest else NOT
    return {
        "total": card.total,
        "others": card.others,
        "beside": card.beside,
        "asked": asked,
        "weights": rank.weights.rank,
        "estimated": {**rank.besides._asdict(), "kept": card.total - usable},
        "cache": int(cache),
        "blocks": blocks,
        "fit": fit,
        "longest": longest if lacks == "request" else None,
        "verdict": verdict,
        "surely": surely and verdict != UNKNOWN,
        "lacks": lacks if verdict != UNKNOWN else "",
    }


def _lacks(rank: Rank, card: Card, asked: int, cache: int, fit: Optional[int]) -> Tuple[str, bool]:
    """(what has no room, is it sure). Sure is what holds with the whole card, nothing but weights and one request, and others."""
    most = card.total * rank.engine.share
    one = kv_cache.request_bytes(rank.cache, rank.tokens) if rank.cache.layout.kinds and rank.tokens else 0
    given = number(rank.options.get("kv_cache_memory_bytes"))
    exact = rank.weights.source == "headers"
    if card.held is not None and card.total - card.held < most:
        return "free", True
    room = card.total - (card.held or 0) if given else most
    if exact and rank.weights.least + (given or 0) >= room:
        return "weights", True
    if given:
        if fit == 0:
            return "request", True
        return ("weights", False) if rank.weights.rank + given + rank.besides.context > room else ("", False)
    if exact and one and rank.weights.least + one > room and not number(rank.options.get("num_gpu_blocks_override")):
        return "request", True
    if card.held is not None and estimates.usable(card.total) - card.held - rank.besides.context < asked:
        return "free", False
    if cache <= 0:
        return "weights", False
    return ("request", False) if fit == 0 else ("", False)
