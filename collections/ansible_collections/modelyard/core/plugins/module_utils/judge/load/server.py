"""What the engines, the cards and the generator itself did during a level, out of samples. Pure functions.

A sample is {at, instances: {index: figures of survey/engine_metrics.py or None}, client_cpu: cores that the generator used since
the last sample, or None}; a card sample {loaded: whether requests ran, cards: [{index, utilization,
memory_used_mib}]}.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Dict, List, Mapping, Optional, Sequence

Sample = Mapping[str, Any]


def queue(sample: Sample, key: str) -> Optional[float]:
    """Requests that run or wait in all instances together; None where not a single one says so."""
    known = [figures[key] for figures in sample["instances"].values() if figures and key in figures]
    return sum(known) if known else None


def _highest(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def grown(first: Sample, last: Sample, key: str) -> Dict[str, int]:
    """How much a counter of each instance grew; one that was started anew in between, or did not answer, is left out."""
    found = {}
    for index, before in first["instances"].items():
        after = last["instances"].get(index)
        if before and after and key in before and key in after and after[key] >= before[key]:
            found[str(index)] = int(after[key] - before[key])
    return found


def seen(samples: Sequence[Sample]) -> Dict[str, Any]:
    """`server` of a level; None for what no engine told. The first sample is from before the load, the last from after it."""
    lost = grown(samples[0], samples[-1], "preemptions") if samples else {}
    samples = samples[1:-1]
    told = [f for s in samples for f in s["instances"].values() if f]
    usage = _highest([f.get("kv_usage") for f in told])
    return {
        "running_max": _whole(_highest([queue(s, "running") for s in samples])),
        "waiting_max": _whole(_highest([queue(s, "waiting") for s in samples])),
        "kv_usage_max": None if usage is None else round(usage, 4),
        "preemptions": sum(lost.values()) if lost else None,
    }


def _whole(value: Optional[float]) -> Optional[int]:
    return None if value is None else int(value)


def client_cpu(samples: Sequence[Sample]) -> Optional[float]:
    """Cores that the generator used while requests ran, as a median; None where it was never measured."""
    known = [s["client_cpu"] for s in samples if s["client_cpu"] is not None and (queue(s, "running") or 0) > 0]
    return round(median(known), 3) if known else None


def cards(samples: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Each card with its median utilisation (percent) and its highest use of memory (MiB); None for what was not told.

    How busy it was counts only while requests ran: a generator may need a minute to start.
    """
    found = {}
    for index in sorted({card["index"] for sample in samples for card in sample["cards"]}):
        mine = [card for sample in samples for card in sample["cards"] if card["index"] == index]
        loaded = [card for sample in samples if sample["loaded"] for card in sample["cards"] if card["index"] == index]
        busy = [card["utilization"] for card in loaded if card["utilization"] is not None]
        memory = [card["memory_used_mib"] for card in mine if card["memory_used_mib"] is not None]
        found[index] = {
            "index": index,
            "utilization_median": round(median(busy)) if busy else None,
            "memory_used_max_mib": max(memory) if memory else None,
        }
    return list(found.values())
