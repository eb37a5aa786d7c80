"""An engine's figures: how much it has in work, and whether tokens come out of it. Reads only."""

from __future__ import annotations

import time
from typing import Dict, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_counters
from ansible_collections.modelyard.core.plugins.module_utils.survey import engine_metrics

LIMIT_S = 3.0
#: Between two looks at an engine that may hang; a step of a big model on slow cards takes less.
STEP_S = 2.0


def read(address: Tuple[str, int], names: Mapping[str, str]) -> Dict[str, float]:
    """{our name: value}; empty when they cannot be read. No key is wanted for them."""
    return engine_metrics.ask(address, names, LIMIT_S) or {}


def after_time_out(
    address: Tuple[str, int], names: Mapping[str, str], before: Mapping[str, float]
) -> Dict[str, Dict[str, float]]:
    """What engine_counters.state wants to know of an engine that has just not answered in time."""
    return all_after_time_out({0: address}, names, {0: before})[0]


def all_after_time_out(
    addresses: Mapping[int, Tuple[str, int]], names: Mapping[str, str], before: Mapping[int, Mapping[str, float]]
) -> Dict[int, Dict[str, Dict[str, float]]]:
    """The same of several engines, of which each may have had the request."""
    after = {index: read(address, names) for index, address in addresses.items()}
    time.sleep(STEP_S)
    return {
        index: {"before": dict(before[index]), "after": after[index], "later": read(address, names)}
        for index, address in addresses.items()
    }


def wait_for_room(
    address: Tuple[str, int], names: Mapping[str, str], slots: Optional[int], limit_s: float
) -> Dict[str, Dict[str, float]]:
    """Wait until one more request need not wait, `limit_s` at most; empty when there is room, or nothing could be seen.

    Else the first and the last look, as engine_counters.state wants them.
    """
    first = seen = read(address, names)
    until = time.monotonic() + max(limit_s, STEP_S)
    while engine_counters.is_full(seen, slots):
        if time.monotonic() >= until:
            return {"before": first, "after": first, "later": seen}
        time.sleep(STEP_S)
        # One look that fails says nothing: an engine at work answers late.
        seen = read(address, names) or seen
    return {}
