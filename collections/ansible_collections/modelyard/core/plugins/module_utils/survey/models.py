"""A model's folder on a host, as it lies there. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict

from ansible_collections.modelyard.core.plugins.module_utils.process import layout


def model_listing(path: str) -> Dict[str, Any]:
    """Files of a model folder by relative name and size, shards that its index names, and config.json.

    `problem` says what this user may not read; the rest then holds what it may.
    """
    folder = Path(path)
    listing: Dict[str, Any] = {"path": path, "exists": False, "problem": "", "files": {}, "shards": [], "config": {}}
    try:
        listing["exists"] = folder.is_dir()
        for file in sorted(folder.rglob("*")) if listing["exists"] else ():
            inside = file.relative_to(folder)
            if file.is_file() and inside.parts[0] not in (".cache", ".git"):
                listing["files"][str(inside)] = file.stat().st_size
                os.close(os.open(str(file), os.O_RDONLY))
    except OSError as exc:
        listing["problem"] = str(exc)
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        index = layout.read_json(folder / name)
        if index:
            listing["shards"] = sorted(set(index.get("weight_map", {}).values()))
            break
    listing["config"] = layout.read_json(folder / "config.json") or {}
    return listing
