"""Adapters that a service serves beside its base, as engine.lora_modules names them. Pure; also read on the host."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping


def modules(engine: Mapping[str, Any]) -> Dict[str, str]:
    """{name: folder or name on a hub}. `lora_modules` as vLLM takes it: name=path, or JSON with name and path."""
    said = engine.get("lora_modules") or []
    found = {}
    for entry in said if isinstance(said, list) else [said]:
        told: Any = entry
        if isinstance(entry, str) and entry.lstrip().startswith("{"):
            try:
                told = json.loads(entry)
            except ValueError:
                continue
        if isinstance(told, dict):
            found[str(told.get("name"))] = str(told.get("path"))
        elif isinstance(told, str) and "=" in told:
            name, _, path = told.partition("=")
            found[name] = path
    return found
