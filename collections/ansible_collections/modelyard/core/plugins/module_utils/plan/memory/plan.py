"""The memory plan of a service: each of its cards, the verdict, what to change. Pure.

    {verdict, surely, tokens, ranks, share, batched, seqs, kv: {...}, weights: {...}, rows: [...], gaps: [...], change: [...]}

`rows`: a budget (budget.of_card) for each rank of each instance, with `instance`, `card` and `action`. On CPUs there is one row
for each instance, without a card: there the room for the KV cache is what the service sets, and weights lie in main memory.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, kv_cache, model
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import budget, estimates, weights
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory.budget import FITS, LESS, NOT, UNKNOWN
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import length, number

MIB = 2**20
#: From the best to the worst.
ORDER = (FITS, LESS, UNKNOWN, NOT)
#: The largest share of a card that is advised: the driver and the engine's first allocations need the rest.
MOST_SHARE = 0.95
LEAST_SHARE = 0.05


class Place(NamedTuple):
    """A card that a rank is to be on. `total` (None where the tool does not tell), `others`, `beside`: see budget.Card."""

    instance: int
    action: str
    card: Optional[int]
    total: Optional[int]
    others: Optional[int]
    beside: int = 0


class Wanted(NamedTuple):
    """A service as far as its memory is concerned. `cpu_bytes`: what an engine on CPUs takes for the KV cache where nothing is
    set; None on cards.
    """

    engine: Mapping[str, Any]
    tp: int
    backend: str
    release: str
    cpu_bytes: Optional[int] = None


def rank_of(listing: Mapping[str, Any], wanted: Wanted, total: int) -> budget.Rank:
    """A rank of the service on cards of `total` bytes (0: not known)."""
    config = listing.get("config") or {}
    set_as = estimates.engine(wanted.engine, wanted.release, total)
    options = {**wanted.engine, "max_num_batched_tokens": set_as.batched}
    return budget.Rank(
        weights=weights.of_rank(listing, wanted.engine, wanted.tp),
        besides=estimates.besides(config, wanted.engine, set_as, wanted.tp),
        engine=set_as,
        cache=kv_cache.cache(attention.layout(config, wanted.engine, wanted.tp), options, wanted.backend, wanted.release),
        tokens=length(wanted.engine.get("max_model_len")) or model.longest_context({**listing, "config": config}),
        options=wanted.engine,
    )


def plan(listing: Mapping[str, Any], wanted: Wanted, places: Sequence[Place]) -> Dict[str, Any]:
    """The whole plan. `listing`: survey.models.model_listing."""
    totals = [place.total for place in places if place.total]
    rank = rank_of(listing, wanted, min(totals) if totals else 0)
    rows = [_row(rank, wanted, place) for place in places]
    worst = max(rows, key=lambda row: ORDER.index(row["verdict"]), default=None)
    verdict = worst["verdict"] if worst else UNKNOWN
    found = {
        "verdict": verdict,
        "surely": any(row["surely"] for row in rows if row["verdict"] == verdict),
        "tokens": rank.tokens,
        "ranks": wanted.tp,
        "share": rank.engine.share,
        "batched": rank.engine.batched,
        "seqs": rank.engine.seqs,
        "graphs_inside": rank.engine.graphs_inside,
        "kv": cache_of(rank),
        "weights": {
            "rank": rank.weights.rank,
            "disk": rank.weights.disk,
            "source": rank.weights.source,
            "parts": dict(rank.weights.parts),
        },
        "rows": rows,
        "gaps": [*rank.weights.gaps, *rank.cache.layout.gaps],
    }
    return {**found, "change": _change(listing, wanted, places, found)}


def cache_of(rank: budget.Rank) -> Dict[str, Any]:
    """The KV cache of a rank, in bytes; None where config.json does not tell."""
    found, known = rank.cache, bool(rank.cache.layout.kinds)
    return {
        "token_bytes": kv_cache.token_bytes(found) if known else None,
        "block_tokens": found.block_size,
        "block_bytes": kv_cache.block_bytes(found) if known else None,
        "request_blocks": kv_cache.blocks(found, rank.tokens) if known and rank.tokens else None,
        "request_bytes": kv_cache.request_bytes(found, rank.tokens) if known and rank.tokens else None,
        "kinds": [kind._asdict() for kind in found.layout.kinds],
    }


def _row(rank: budget.Rank, wanted: Wanted, place: Place) -> Dict[str, Any]:
    named = {"instance": place.instance, "card": place.card, "action": place.action}
    if wanted.cpu_bytes is not None:
        return {**named, **_on_cpu(rank, wanted)}
    if not place.total:
        return {**named, **_unknown(rank)}
    return {**named, **budget.of_card(rank, budget.Card(place.total, place.others, place.beside))}


def _unknown(rank: budget.Rank) -> Dict[str, Any]:
    nothing = dict.fromkeys(("total", "others", "beside", "asked", "cache", "blocks", "fit", "longest"))
    told = {"weights": rank.weights.rank, "estimated": {**rank.besides._asdict(), "kept": 0}}
    return {**nothing, **told, "verdict": UNKNOWN, "surely": False, "lacks": ""}


def _on_cpu(rank: budget.Rank, wanted: Wanted) -> Dict[str, Any]:
    """On CPUs all of it is exact: the room for the cache is set, and PF-MEMORY looks at the main memory."""
    cache = number(wanted.engine.get("kv_cache_memory_bytes")) or wanted.cpu_bytes or 0
    known = bool(rank.cache.layout.kinds)
    blocks = number(wanted.engine.get("num_gpu_blocks_override"))
    if blocks is None and known:
        blocks = kv_cache.pool_of_bytes(rank.cache, cache)
    fit = kv_cache.fit(rank.cache, rank.tokens, blocks) if known and rank.tokens and blocks is not None else None
    longest = kv_cache.longest(rank.cache, blocks, rank.tokens) if known and rank.tokens and blocks and fit == 0 else None
    short = fit == 0
    verdict = UNKNOWN if fit is None else (LESS if longest else NOT) if short else FITS
    return {
        **_unknown(rank),
        **{"cache": cache, "blocks": blocks, "fit": fit, "longest": longest, "verdict": verdict},
        **{"surely": short, "lacks": "request" if short else ""},
    }


def _change(listing: Mapping[str, Any], wanted: Wanted, places: Sequence[Place], found: Mapping[str, Any]) -> List[str]:
    """What would make it fit, each by itself, tried by the same arithmetic; the gentlest first."""
    if found["verdict"] in (FITS, UNKNOWN):
        return []
    lines: List[str] = []
    longest = [row["longest"] for row in found["rows"] if row["longest"]]
    if longest and found["verdict"] == LESS:
        lines.append(f"engine.max_model_len: {min(longest)} is the longest that fits")
    tries: List[Dict[str, Any]] = [{"kv_cache_dtype": "fp8"}] if wanted.cpu_bytes is None else []
    if wanted.cpu_bytes is None:
        tries += [{"max_num_seqs": 64}, {"max_num_batched_tokens": 1024}, {"max_num_seqs": 64, "max_num_batched_tokens": 1024}]
        tries += [{"enforce_eager": True}, *({"gpu_memory_utilization": share} for share in _shares(listing, wanted, places))]
    elif found["kv"]["request_bytes"]:
        one = found["kv"]["request_bytes"] + found["kv"]["block_bytes"]
        tries += [{"kv_cache_memory_bytes": one}]
    seen: List[str] = []
    for change in tries:
        key = next(iter(change))
        if any(wanted.engine.get(name) == value for name, value in change.items()) or key in seen:
            continue
        if _fits(listing, wanted._replace(engine={**wanted.engine, **change}), places):
            lines.append("engine." + ", engine.".join(f"{name}: {value}" for name, value in change.items()) + " would fit")
            seen.append(key)
    larger = split_sizes(listing, wanted.tp) if wanted.cpu_bytes is None else []
    sizes = [size for size in larger if _fits(listing, wanted._replace(tp=size), places)]
    if sizes:
        lines.append(f"topology.tensor_parallel_size: {sizes[0]} would fit, on cards like these")
    return lines or ["a smaller or quantised checkpoint, or larger cards: nothing that can be set makes it fit"]


def _shares(listing: Mapping[str, Any], wanted: Wanted, places: Sequence[Place]) -> List[float]:
    """Shares of the card that leave others what they hold: what is left now, and the most that is advised at all."""
    known = [place for place in places if place.total]
    if not known:
        return []
    context = rank_of(listing, wanted, 0).besides.context
    free = min(
        (estimates.usable(place.total or 0) - (place.others or 0) - place.beside - context) / estimates.usable(place.total or 0)
        for place in known
    )
    return [share for share in (MOST_SHARE, math.floor(min(free, MOST_SHARE) * 100) / 100) if share > LEAST_SHARE]


def split_sizes(listing: Mapping[str, Any], above: int) -> List[int]:
    """Tensor parallel sizes above one that the heads of the model allow."""
    heads = attention.shape(listing.get("config") or {}).heads
    return [size for size in (2, 4, 8, 16) if size > above and (not heads or heads % size == 0)]


def _fits(listing: Mapping[str, Any], wanted: Wanted, places: Sequence[Place]) -> bool:
    totals = [place.total for place in places if place.total]
    rank = rank_of(listing, wanted, min(totals) if totals else 0)
    return bool(places) and all(_row(rank, wanted, place)["verdict"] == FITS for place in places)
