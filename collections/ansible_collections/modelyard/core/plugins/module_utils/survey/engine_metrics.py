"""How loaded an engine is, as it says itself at /metrics. The names are those of its release (plan/data/vllm/metrics.yml)."""

from __future__ import annotations

import math
from typing import Dict, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey import http

#: Of several engine cores behind one port the fullest counts; everything else is added up.
HIGHEST = ("kv_usage",)


def read(text: str, names: Mapping[str, str]) -> Dict[str, float]:
    """{key: value} for each of `names` ({key: exported name}) that the text has; lines that are no sample are passed over."""
    wanted = {name: key for key, name in names.items() if name}
    found: Dict[str, float] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        key = wanted.get(name)
        if key is None:
            continue
        fields = (rest.rpartition("}")[2] if "}" in rest else rest).split()
        try:
            value = float(fields[0])
        except (IndexError, ValueError):
            continue
        if math.isfinite(value):
            before = found.get(key)
            found[key] = value if before is None else max(before, value) if key in HIGHEST else before + value
    return found


def ask(address: Tuple[str, int], names: Mapping[str, str], timeout_s: float = 1.0) -> Optional[Dict[str, float]]:
    """The same from an engine; None when it does not answer."""
    answer = http.request(address, "GET", "/metrics", timeout_s=timeout_s)
    return read(answer["body"], names) if answer["status"] == 200 and isinstance(answer["body"], str) else None
