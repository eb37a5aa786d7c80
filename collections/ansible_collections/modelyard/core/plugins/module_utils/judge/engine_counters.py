"""What the figures of /metrics say about an engine that does not answer: does it still generate? Pure functions.

Names differ by release; they come from plan/data/vllm/facts.yml and are given here by ours.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Mapping, Optional

#: For hosts and builds of which nothing is known: those of the newest release.
USUAL = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "generated": "vllm:generation_tokens_total",
    "prompted": "vllm:prompt_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "kv_usage": "vllm:kv_cache_usage_perc",
}
LOADED, HUNG, SLOW, IDLE, UNKNOWN = "loaded", "hung", "slow", "idle", "unknown"
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})?[ \t]+(\S+)")


def parse(text: str, names: Mapping[str, str]) -> Dict[str, float]:
    """{our name: value}; several engines behind one port are added up. What is not there is left out."""
    wanted = {theirs: ours for ours, theirs in names.items()}
    found: Dict[str, float] = {}
    for line in text.splitlines():
        said = _SAMPLE.match(line)
        if said is None or said.group(1) not in wanted:
            continue
        try:
            value = float(said.group(2))
        except ValueError:
            continue
        if math.isfinite(value):
            ours = wanted[said.group(1)]
            found[ours] = found.get(ours, 0.0) + value
    return found


def in_work(seen: Mapping[str, float]) -> float:
    """Requests that run or wait."""
    return seen.get("running", 0.0) + seen.get("waiting", 0.0)


def is_full(seen: Mapping[str, float], slots: Optional[int]) -> bool:
    """Would one more request have to wait? `slots`: max_num_seqs, where it is known."""
    return seen.get("waiting", 0.0) > 0 or bool(slots and slots > 0 and in_work(seen) >= slots)


def state(counters: Mapping[str, Any]) -> str:
    """Of an engine that did not answer in time. `counters`: {before, after, later}, each as `parse` has it, or empty.

    before: when the request was sent; after: when the time was up; later: a moment after that, when the engine has let go of it.
    """
    before, after, later = (counters.get(name) or {} for name in ("before", "after", "later"))
    if not after or not later or "generated" not in after or "generated" not in later:
        return UNKNOWN
    moved = later["generated"] > after["generated"] or later["generated"] > before.get("generated", later["generated"])
    moved = moved or later.get("prompted", 0.0) > before.get("prompted", later.get("prompted", 0.0))
    if in_work(later) > 0:
        return LOADED if moved else HUNG
    return SLOW if moved else IDLE
