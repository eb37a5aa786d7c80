"""A model's folder on a host, as it lies there. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import safetensors

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
#: So many names of tensors are brought back of a long list.
FEW = 5


def model_listing(path: str) -> Dict[str, Any]:
    """A model folder: `files` by relative name and size, `shards` that its index names, `config` (config.json), and

    tensors   what the weights hold, summed up (safetensors.summed); None where no header could be read
    damaged   what is wrong with the weights' files: {name: words}
    absent    names of tensors that the index places in a file that lacks them: {count, first}

    `problem` says what this user may not read; the rest then holds what it may.
    """
    folder = Path(path)
    listing: Dict[str, Any] = {"path": path, "exists": False, "problem": "", "files": {}, "shards": [], "config": {}}
    listing.update(tensors=None, damaged={}, absent={"count": 0, "first": []})
    try:
        listing["exists"] = folder.is_dir()
        for file in sorted(folder.rglob("*")) if listing["exists"] else ():
            inside = file.relative_to(folder)
            if file.is_file() and inside.parts[0] not in (".cache", ".git"):
                listing["files"][str(inside)] = file.stat().st_size
                os.close(os.open(str(file), os.O_RDONLY))
    except OSError as exc:
        listing["problem"] = str(exc)
    index: Dict[str, Any] = {}
    for name in INDEXES:
        index = _mapping(layout.read_json(folder / name))
        if index:
            listing["shards"] = sorted({file for file in _mapping(index.get("weight_map")).values() if isinstance(file, str)})
            break
    listing["config"] = _mapping(layout.read_json(folder / "config.json"))
    listing.update(_weights(folder, listing, _mapping(index.get("weight_map"))))
    return listing


def _weights(folder: Path, listing: Mapping[str, Any], placed: Mapping[str, Any]) -> Dict[str, Any]:
    """What the headers of the weights say; see model_listing. `placed`: the index, file by tensor."""
    names = [name for name in weight_files(listing) if name.endswith(".safetensors") and name in listing["files"]]
    damaged: Dict[str, str] = {}
    held: Dict[str, Dict[str, safetensors.Tensor]] = {}
    for name in names:
        try:
            header = safetensors.read(folder / name)
        except OSError as exc:
            damaged[name] = exc.strerror or str(exc)
            continue
        held[name] = dict(header.tensors)
        if header.problem:
            damaged[name] = header.problem
    lacking = [tensor for tensor, file in placed.items() if file in held and file not in damaged and tensor not in held[file]]
    found: List[Tuple[str, safetensors.Tensor]] = [item for name in names for item in held.get(name, {}).items()]
    return {
        "tensors": safetensors.summed(found, layers(listing["config"])) if found else None,
        "damaged": damaged,
        "absent": {"count": len(lacking), "first": sorted(lacking)[:FEW]},
    }


def weight_files(listing: Mapping[str, Any]) -> List[str]:
    """Files of the weights that an engine reads: those of the index, else those in the folder itself. `consolidated` ones are a
    second copy in Mistral's own form, which is only read where nothing else is there.
    """
    if listing["shards"]:
        return list(listing["shards"])
    found = [name for name in listing["files"] if name.endswith(".safetensors") and "/" not in name]
    usual = [name for name in found if not name.startswith(("consolidated", "adapter_"))]
    return usual or found


def layers(config: Mapping[str, Any]) -> Optional[int]:
    """How many layers config.json counts, in the part that writes text; None where it does not say."""
    for part in (*(config.get(key) for key in ("text_config", "llm_config", "language_config")), config):
        value = part.get("num_hidden_layers") if isinstance(part, dict) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _mapping(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}
