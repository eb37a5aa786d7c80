"""Is a model folder complete for an offline start? Pure: judges a listing that the survey made."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence

#: One of these sets must be there whole. Source: transformers' fast, SentencePiece, BPE and Mistral tokenizers.
TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"), ("tekken.json",))
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def missing_files(listing: Mapping[str, Any]) -> List[str]:
    """What a start without internet would lack, by name. `listing`: see survey.models.model_listing."""
    sizes: Mapping[str, int] = listing["files"]
    missing = [] if sizes.get("config.json") else ["config.json"]
    if not any(all(sizes.get(name) for name in group) for group in TOKENIZERS):
        missing.append(" or ".join("+".join(group) for group in TOKENIZERS))
    if not sizes.get("tokenizer_config.json") and not sizes.get("tekken.json"):
        missing.append("tokenizer_config.json")
    shards = listing["shards"]
    if shards:
        missing += [name for name in shards if not sizes.get(name)]
    elif not any(name.endswith(WEIGHTS) and size for name, size in sizes.items()):
        missing.append("weights (*.safetensors)")
    return missing


def weights_mib(listing: Mapping[str, Any]) -> float:
    """Size of the weights on disk in MiB; what a load needs in memory, over all ranks together."""
    sizes: Mapping[str, int] = listing["files"]
    names = listing["shards"] or [n for n in sizes if n.endswith(WEIGHTS)]
    return sum(sizes.get(n, 0) for n in names) / 2**20


def fingerprint(listing: Optional[Mapping[str, Any]], adapters: Sequence[Mapping[str, Any]] = ()) -> str:
    """Changes when the model does: names and sizes of all files and the content of config.json. '' without a model.

    `adapters`: listings of those that are served beside it.
    """
    if not listing or not listing["exists"]:
        return ""
    beside = [[sorted(one["files"].items()), (one["adapter"] or {}).get("config")] for one in adapters]
    text = json.dumps([sorted(listing["files"].items()), listing["config"], *beside], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def longest_context(listing: Mapping[str, Any]) -> Optional[int]:
    """The context length that the model was made for, from config.json; None when it does not say."""
    config: Dict[str, Any] = listing["config"] or {}
    value = config.get("max_position_embeddings") or (config.get("text_config") or {}).get("max_position_embeddings")
    return int(value) if isinstance(value, int) else None
