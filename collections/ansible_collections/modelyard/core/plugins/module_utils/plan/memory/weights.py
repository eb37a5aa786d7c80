"""Bytes of a model's weights on one rank, from what the headers of its files say. Pure.

Which tensors are split over the ranks of tensor parallelism, and which each rank has whole, is told by their names
(data/memory.yml). Types: numbers that are computed with get the type of the model, as the engine loads them; packed and 8-bit
numbers, and their scales, stay as they lie on the disk.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, model, tables

#: Types that the engine turns into the type of the model.
FLOATS = ("F64", "F32", "F16", "BF16")
#: Options `quantization` that make the layers of a model in 16 bits smaller while they are loaded: bytes of a number.
WHILE_LOADING = {"fp8": 1.0}


class Weights(NamedTuple):
    """`rank`: bytes of the fullest rank; `least`: those that are surely needed; `disk`: bytes of the tensors in the files.

    `source`: headers, sizes (of files, where no header tells more) or nothing. `gaps`: what the figures do not show.
    """

    rank: int
    least: int
    disk: int
    source: str
    parts: Mapping[str, int] = {}
    gaps: Tuple[str, ...] = ()


def of_rank(listing: Mapping[str, Any], engine: Mapping[str, Any], tp: int) -> Weights:
    """The weights of one rank of `tp`. `listing`: survey.models.model_listing."""
    config = listing.get("config") or {}
    tensors = listing.get("tensors")
    if not tensors:
        size = int(model.weights_mib(listing) * 2**20) if listing.get("exists") else 0
        if not size:
            return Weights(0, 0, 0, "nothing", {}, ("the weights are not there yet",))
        gap = "the headers of the weights were not read: sizes of files, split evenly"
        return Weights(-(-size // tp), -(-size // tp), size, "sizes", {"weights": -(-size // tp)}, (gap,))
    rules, kept, gaps = tables.memory(), _kept(config), _gaps(config, engine)
    parts = {"split": 0.0, "whole": 0.0}
    rank = least = 0.0
    for entry in tensors:
        if _passed_over(entry, config, rules):
            continue
        held = _bytes(entry, config, engine, rules)
        share, sure = _share(entry["name"], kept, tp, rules)
        rank += held * share
        least += held * sure
        parts["split" if share < 1 else "whole"] += held * share
    padded = _padding(config, engine, tp, rules, tensors)
    parts["split"] += padded
    disk = sum(int(entry["bytes"]) for entry in tensors)
    shown = {name: int(count) for name, count in parts.items()}
    return Weights(int(rank + padded), int(least), disk, "headers", shown, tuple(gaps))


def _passed_over(entry: Mapping[str, Any], config: Mapping[str, Any], rules: Mapping[str, Any]) -> bool:
    """Is it in the files and not in memory? Layers beyond those of config.json are a draft model's."""
    if entry["beyond"] or any(re.search(rule, entry["name"]) for rule in rules["not_loaded"]):
        return True
    return bool(re.search(rules["output"], entry["name"])) and tied(config)


def tied(config: Mapping[str, Any]) -> bool:
    """Is the output layer the embedding? Only where config.json says so: the defaults of architectures differ."""
    own = attention.text_part(config)
    return bool(own.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))


def _bytes(entry: Mapping[str, Any], config: Mapping[str, Any], engine: Mapping[str, Any], rules: Mapping[str, Any]) -> float:
    """Bytes of a kind of tensor in the engine's memory, over all ranks."""
    if entry["dtype"] not in FLOATS or re.search(rules["keep"], entry["name"]):
        return float(entry["bytes"])
    if re.search(rules["wide"], entry["name"]):
        return float(entry["numbers"]) * 4
    number = float(attention.BYTES.get(attention.dtype(config, engine), 2))
    smaller = WHILE_LOADING.get(str(engine.get("quantization") or ""))
    inside = entry["dims"] >= 2 and not re.search(rules["embedding"], entry["name"])
    if smaller and inside and not config.get("quantization_config") and _share(entry["name"], None, 2, rules)[0] < 1:
        number = smaller
    return float(entry["numbers"]) * number


def _share(name: str, kv_heads: Optional[int], tp: int, rules: Mapping[str, Any]) -> Tuple[float, float]:
    """(part of a tensor that a rank has, part that it surely has)."""
    if tp <= 1:
        return 1.0, 1.0
    if re.search(rules["towers"], name):
        return 1.0, 1.0 / tp
    if any(re.search(rule, name) for rule in rules["replicated"]):
        return 1.0, 1.0
    if kv_heads and kv_heads < tp and re.search(rules["kv"], name):
        return 1.0 / kv_heads, 1.0 / kv_heads
    return 1.0 / tp, 1.0 / tp


def _kept(config: Mapping[str, Any]) -> Optional[int]:
    return attention.shape(config).kv_heads


def _padding(
    config: Mapping[str, Any],
    engine: Mapping[str, Any],
    tp: int,
    rules: Mapping[str, Any],
    tensors: List[Dict[str, Any]],
) -> float:
    """Bytes of the rows that the vocabulary is padded with on a rank."""
    own = attention.text_part(config)
    size, hidden = attention.whole(own, "vocab_size"), attention.whole(own, "hidden_size", "n_embd")
    if not (size and hidden):
        return 0.0
    multiple = int(rules["vocabulary_multiple"])
    rows = (-(-size // multiple) * multiple - size) / tp
    held = sum(
        int(entry["count"])
        for entry in tensors
        if re.search(rules["embedding"], entry["name"]) and entry["dtype"] in FLOATS and not _passed_over(entry, config, rules)
    )
    return rows * hidden * float(attention.BYTES.get(attention.dtype(config, engine), 2)) * held


def _gaps(config: Mapping[str, Any], engine: Mapping[str, Any]) -> List[str]:
    """What takes or saves memory besides and is not in the figures."""
    found = []
    asked = str(engine.get("quantization") or "")
    if asked and asked not in WHILE_LOADING and not config.get("quantization_config"):
        found.append(
            f"how much quantization {asked} makes of the weights while they are loaded is not worked out: counted as they are"
        )
    for key, words in (
        ("speculative_config", "the weights of the model that drafts are not in the figures"),
        ("enable_lora", "places for adapters (max_loras x max_lora_rank) are not in the figures"),
        ("cpu_offload_gb", "cpu_offload_gb moves weights to main memory, which the figures do not show"),
        ("pipeline_parallel_size", "pipeline parallelism is not in the figures"),
        ("enable_expert_parallel", "with enable_expert_parallel experts are shared out whole; the figures split them evenly"),
    ):
        if engine.get(key) not in (None, False, 0, 1, "") or engine.get(key) is True:
            found.append(words)
    return found
