"""Adapters (LoRA): a folder of a training in place of a model, and adapters that are served beside one. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, lora
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

#: What vLLM takes where nothing is set (vllm/config/lora.py).
MAX_RANK = 16
#: Parts that a training may save whole and vLLM takes (vllm/lora/peft_helper.py).
SAVED = ("classifier", "score")
CHECKPOINT = re.compile(r"^(checkpoint-[0-9]+)/")


def training(listing: Mapping[str, Any], where: str, name: str) -> List[Dict[str, str]]:
    """A folder that a training (peft, LLaMA-Factory) has written, in place of a model's."""
    if listing["files"].get("config.json"):
        return []
    checkpoints = training_checkpoints(listing)
    if listing["adapter"]:
        base = (listing["adapter"]["config"] or {}).get("base_model_name_or_path") or "a base that it does not name"
        what = f"the folder of {name} holds an adapter of {base}, and no model"
        do = "merge it into its base and name the result, or name the base and serve it with engine.enable_lora and lora_modules"
        return [finding("PF-MODEL-ADAPTER", where, what, do)]
    if not checkpoints:
        return []
    what = f"the folder of {name} is one of a training, with {', '.join(checkpoints)}, and holds no model itself"
    return [finding("PF-MODEL-ADAPTER", where, what, "name the checkpoint that you mean; none is chosen for you")]


def training_checkpoints(listing: Mapping[str, Any]) -> List[str]:
    """Folders `checkpoint-N` in a folder of a training, in order."""
    seen = {match.group(1) for match in map(CHECKPOINT.match, listing["files"]) if match}
    return sorted(seen, key=lambda one: int(one.partition("-")[2]))


def paths(engine: Mapping[str, Any]) -> Dict[str, str]:
    """Adapters of a service that lie on the host: {name: folder}."""
    return {name: path for name, path in lora.modules(engine).items() if path.startswith("/")}


def findings(wanted: Mapping[str, Any], listing: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Adapters that are served beside the model of a service."""
    found = []
    for name, path in paths(wanted["engine"]).items():
        seen = survey["models"].get(path)
        troubles = _judged(seen, listing, wanted["engine"]) if seen else []
        where = f"{survey['host']['name']}:{path}"
        found += [finding("PF-MODEL-ADAPTER", where, f"adapter {name} of {wanted['name']}: {what}", do) for what, do in troubles]
    return found


def _judged(seen: Mapping[str, Any], base: Mapping[str, Any], engine: Mapping[str, Any]) -> List[Any]:
    adapter = seen["adapter"]
    if not seen["exists"] or not adapter:
        return [
            ("there is no adapter_config.json", "name the folder that holds adapter_config.json and adapter_model.safetensors")
        ]
    if adapter["problem"]:
        return [(adapter["problem"], "fetch that file again")]
    config = adapter["config"]
    if config is None:
        return [("adapter_config.json is no JSON", "fetch that file again")]
    return [*_consistent(config, adapter), *_taken(config, adapter, engine), *_of_base(config, adapter, base)]


def for_merging(listing: Mapping[str, Any], base: Optional[Mapping[str, Any]]) -> List[Any]:
    """What is wrong with an adapter that is to be merged: [(what, do)]. `base`: the model it is for, None if not known yet."""
    adapter = listing["adapter"]
    if not adapter:
        checkpoints = training_checkpoints(listing)
        there = f"; it holds {', '.join(checkpoints)}: name the one that you mean" if checkpoints else ""
        return [(f"there is no adapter_config.json{there}", "name the folder that holds adapter_config.json itself")]
    if adapter["problem"] or adapter["config"] is None:
        return [(adapter["problem"] or "adapter_config.json is no JSON", "fetch that file again")]
    config = adapter["config"]
    if config.get("peft_type") not in ("LORA", None):
        return [(f"it is no LoRA but {config['peft_type']}", "merge it with the tool that made it")]
    return [*_consistent(config, adapter), *(_of_base(config, adapter, base) if base else [])]


def _consistent(config: Mapping[str, Any], adapter: Mapping[str, Any]) -> List[Any]:
    """adapter_config.json against the tensors: what was never trained cannot be there, whatever the config says."""
    modules, found = adapter["modules"], []
    targets = config.get("target_modules")
    if isinstance(targets, list):
        lacking = sorted({str(name).rpartition(".")[2] for name in targets} - set(modules))
        beyond = sorted(set(modules) - {str(name).rpartition(".")[2] for name in targets})
        if lacking:
            what = f"target_modules names {', '.join(lacking)}, for which it has no tensors: they were not trained"
            found.append(
                (what, "take the adapter_config.json that the training wrote; names that are added by hand train nothing")
            )
        if beyond:
            what = f"it has tensors for {', '.join(beyond)}, which target_modules does not name"
            found.append((what, "take the adapter_config.json that the training wrote"))
    uneven = sorted(name for name, entry in modules.items() if entry["A"] != entry["B"])
    if uneven:
        found.append(
            (f"of {', '.join(uneven)} one half is missing (lora_A and lora_B differ in number)", "fetch its tensors again")
        )
    ranks = sorted({rank for entry in modules.values() for rank in entry["ranks"]})
    rank = number(config.get("r"))
    if rank and ranks and not config.get("rank_pattern") and ranks != [rank]:
        what = f"adapter_config.json says rank {rank}, its tensors have {', '.join(map(str, ranks))}"
        found.append((what, "take the adapter_config.json that the training wrote"))
    return found


def _taken(config: Mapping[str, Any], adapter: Mapping[str, Any], engine: Mapping[str, Any]) -> List[Any]:
    """What vLLM does not take (vllm/lora/peft_helper.py), and what this service would have to allow."""
    found = []
    if not engine.get("enable_lora"):
        found.append(("lora_modules without enable_lora does nothing", "set engine.enable_lora: true"))
    merge = "merge the adapter into its base and serve the result"
    saved = config.get("modules_to_save") or []
    unknown = [str(name) for name in saved if name not in SAVED] if isinstance(saved, list) else []
    if unknown:
        found.append((f"the training saved {', '.join(unknown)} whole (modules_to_save), which vLLM does not take", merge))
    if config.get("use_dora"):
        found.append(("it is a DoRA adapter, which vLLM does not take", merge))
    if config.get("bias", "none") not in ("none", None) or config.get("lora_bias"):
        found.append(("it has trained biases, which vLLM does not take", merge))
    ranks = [rank for entry in adapter["modules"].values() for rank in entry["ranks"]]
    most = number(engine.get("max_lora_rank")) or MAX_RANK
    if ranks and max(ranks) > most:
        found.append((f"its rank is {max(ranks)}, the service allows {most}", f"set engine.max_lora_rank: {_rank(max(ranks))}"))
    return found


def _rank(wanted: int) -> int:
    """The next value that max_lora_rank takes."""
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= wanted), wanted)


def _of_base(config: Mapping[str, Any], adapter: Mapping[str, Any], base: Mapping[str, Any]) -> List[Any]:
    """Is it an adapter of this very base?"""
    layers = attention.whole(attention.text_part(base["config"] or {}), "num_hidden_layers")
    most: Optional[int] = max((entry["layers"][1] for entry in adapter["modules"].values() if entry["layers"]), default=None)
    if layers is None or most is None or most < layers:
        return []
    named = config.get("base_model_name_or_path") or "no base"
    what = f"it trains layer {most}, the model has {layers} layers: it is an adapter of another base (it names {named})"
    return [(what, "serve it beside the base that it was trained on")]
