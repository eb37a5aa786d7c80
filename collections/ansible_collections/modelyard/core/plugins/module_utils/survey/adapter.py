"""What an adapter's folder (peft, LLaMA-Factory) holds: its adapter_config.json and the modules that its tensors belong to."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import safetensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
#: What of adapter_config.json is brought back.
KEYS = (
    *("base_model_name_or_path", "peft_type", "r", "lora_alpha", "target_modules", "modules_to_save", "rank_pattern", "use_dora"),
    *("bias", "lora_bias", "use_rslora", "layers_to_transform"),
)
#: `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` -> the module, and which half of it.
_HALF = re.compile(r"^(?P<module>.+)\.lora_(?P<half>A|B|embedding_A|embedding_B)(?:\.[a-z]+)*$")


def look(folder: Path) -> Optional[Dict[str, Any]]:
    """{config, modules, other, problem}; None for a folder without adapter_config.json.

    modules  by the last part of their names, as target_modules has them: {ranks, A, B, layers}; ranks found, how many halves, and
             the least and the highest layer
    other    names of tensors that are no LoRA (first ones), as modules_to_save leaves them
    """
    if not os.path.exists(str(folder / CONFIG)):  # unlike Path.exists, no error in a folder that may not be looked into
        return None
    said = layout.read_json(folder / CONFIG)
    found: Dict[str, Any] = {"config": {key: said[key] for key in KEYS if key in said} if said else None}
    found.update(modules={}, other=[], problem="")
    try:
        header = safetensors.read(folder / WEIGHTS)
    except OSError as exc:
        return {**found, "problem": f"{WEIGHTS}: {exc.strerror or exc}"}
    modules, other = sorted_out(header.tensors)
    return {**found, "modules": modules, "other": other, "problem": f"{WEIGHTS}: {header.problem}" if header.problem else ""}


def sorted_out(tensors: Mapping[str, safetensors.Tensor]) -> Tuple[Dict[str, Dict[str, Any]], List[str]]:
    """(modules, other tensors) of an adapter; see look. Pure."""
    modules: Dict[str, Dict[str, Any]] = {}
    other: List[str] = []
    for name, tensor in sorted(tensors.items()):
        match = _HALF.match(name)
        if not match:
            other.append(name)
            continue
        module, half = match.group("module"), match.group("half")[-1]
        entry = modules.setdefault(module.rpartition(".")[2], {"ranks": [], "A": 0, "B": 0, "layers": None})
        rank = tensor.shape[0 if half == "A" else -1] if tensor.shape else 0
        entry["ranks"] = sorted({*entry["ranks"], rank})
        entry[half] += 1
        place = safetensors.LAYER.search(f".{name}")
        if place:
            layer = int(place.group(1))
            least, most = entry["layers"] or (layer, layer)
            entry["layers"] = [min(least, layer), max(most, layer)]
    return modules, other[:5]
