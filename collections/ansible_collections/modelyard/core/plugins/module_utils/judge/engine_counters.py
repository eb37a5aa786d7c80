"""What the figures of /metrics say about an engine that does not answer: does it still generate? Pure functions.

Names differ by release; they come from plan/data/vllm/metrics.yml and are given here by ours.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

GENERATED, READ = "generation_tokens", "prompt_tokens"
LOADED, HUNG, SLOW, IDLE, UNKNOWN = "loaded", "hung", "slow", "idle", "unknown"


def in_work(seen: Mapping[str, float]) -> float:
    """Requests that run or wait."""
    return seen.get("running", 0.0) + seen.get("waiting", 0.0)


def is_full(seen: Mapping[str, float], slots: Optional[int]) -> bool:
    """Would one more request have to wait? `slots`: max_num_seqs, where it is known."""
    return seen.get("waiting", 0.0) > 0 or bool(slots and slots > 0 and in_work(seen) >= slots)


def state(counters: Mapping[str, Any]) -> str:
    """Of an engine that did not answer in time. `counters`: {before, after, later}, each of survey/engine_metrics.py, or empty.

    before: when the request was sent; after: when the time was up; later: a moment after that, when the engine has let go of it.
    An engine tells them at the end of a step: one that hangs in the first step after a pause is IDLE by them (seen with 0.32.0).
    """
    before, after, later = (counters.get(name) or {} for name in ("before", "after", "later"))
    if GENERATED not in after or GENERATED not in later:
        return UNKNOWN
    moved = later[GENERATED] > min(after[GENERATED], before.get(GENERATED, later[GENERATED]))
    moved = moved or later.get(READ, 0.0) > before.get(READ, later.get(READ, 0.0))
    if in_work(later) > 0:
        return LOADED if moved else HUNG
    return SLOW if moved else IDLE
