"""What a rank needs besides weights and KV cache. Estimates, and said to be: only a start shows the true figures. Pure.

The figures behind them, with who reported them, stand in data/memory.yml.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order

GIB = 2**30
#: A release that says nothing (`dev`) is taken for the newest.
NEWEST = order("99")


class Engine(NamedTuple):
    """How an engine is set, with the defaults of its release and card filled in."""

    share: float  # gpu_memory_utilization
    batched: int  # tokens of a batch
    seqs: int  # requests at once
    graphs_inside: bool  # graphs are taken off the share
    eager: bool  # no graphs at all


class Besides(NamedTuple):
    """Bytes on one rank: activations of the largest batch, graphs, the runtime's own (context, NCCL)."""

    activation: int
    graphs: int
    context: int


def engine(options: Mapping[str, Any], release: str, total: int) -> Engine:
    """`options`: of vLLM, as the service sets them; `total`: bytes of a card, 0 where it is not known."""
    rules, now = tables.memory(), order(release) or NEWEST
    size = "large" if total >= rules["large_card_gib"] * GIB else "usual"
    set_share = options.get("gpu_memory_utilization")
    try:
        share = float(set_share) if set_share is not None and not isinstance(set_share, bool) else 0.0
    except (TypeError, ValueError):
        share = 0.0
    default = [value for since, value in rules["share"].items() if order(since) <= now][-1]
    return Engine(
        share=share or float(default),
        batched=number(options.get("max_num_batched_tokens")) or int(rules["batched"][size]),
        seqs=number(options.get("max_num_seqs")) or int(rules["seqs"][size]),
        graphs_inside=order(rules["graphs_inside"]) <= now,
        eager=options.get("enforce_eager") is True,
    )


def besides(config: Mapping[str, Any], options: Mapping[str, Any], found: Engine, tp: int) -> Besides:
    """What a rank of `tp` needs besides, estimated."""
    rules = tables.memory()["estimates"]
    own, bytes_ = attention.text_part(config), attention.shape(config, options).bytes
    hidden = attention.whole(own, "hidden_size", "n_embd") or 4096
    inner = attention.whole(own, "intermediate_size", "moe_intermediate_size", "n_inner") or 4 * hidden
    experts = attention.whole(own, "num_experts_per_tok")
    if experts:  # each token goes through several experts at once
        inner = max(inner, experts * (attention.whole(own, "moe_intermediate_size") or 0))
    # The residual, what goes in and out of a layer, and the two halves of the gated layer with their product.
    layer = found.batched * bytes_ * (4 * hidden + 3 * -(-inner // tp))
    vocabulary = attention.whole(own, "vocab_size") or 128_000
    sampler = min(found.seqs, found.batched) * vocabulary * 4 * int(rules["logits_copies"])
    return Besides(
        activation=int(layer + sampler),
        graphs=0 if found.eager else int(rules["graphs"] * GIB),
        context=int(rules["context"]["split" if tp > 1 else "alone"] * GIB),
    )


def usable(total: int) -> int:
    """Bytes of a card that CUDA gives away, of the `total` that the vendor's tool shows."""
    return int(total * (1 - float(tables.memory()["estimates"]["of_total_kept"])))
