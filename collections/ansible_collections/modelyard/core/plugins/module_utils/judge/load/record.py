"""The record of a load test, out of what was measured: verdict, advice and comparison. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge.load import advice, compare, verdict

SCHEMA = 1
#: What must be the same kind in a file so that it can be compared; people and full disks touch files.
SHAPE = {"id": str, "shape": dict, "entry": dict, "levels": list, "sustained": dict, "tool": dict}


def complete(
    measured: Mapping[str, Any], troubles: Sequence[str], earlier: Sequence[Mapping[str, Any]], gateway_limit: int
) -> Dict[str, Any]:
    """The whole record.

    `measured`: id, at, service, tool, seed, entry, shape, slots, instances, runtime, parameters, parameters_digest, levels,
    limits, notes.
    `troubles`: what went wrong beside the figures (an instance ended, the run was cut short); each is a complaint.
    `earlier`: records of the service, oldest first.
    """
    levels, limits = measured["levels"], measured["limits"]
    good = verdict.sound(levels, limits)
    best = verdict.sustained(good)
    top = verdict.tops_out(good)
    complaints = [*troubles, *verdict.complaints(levels, limits)]
    record = {
        "schema": SCHEMA,
        **measured,
        "tops_out_at": top["value"] if top else None,
        "sustained": {key: best[key] for key in ("value", "requests_per_s", "output_tokens_per_s")} if best else None,
        "per_day": verdict.per_day(best),
        "passed": not complaints,
        "complaints": complaints,
        "compared_with": None,
    }
    record["advice"] = advice.advise(record, gateway_limit)
    old = compare.last_passed(record, [one for one in earlier if usable(one)])
    if old is not None:
        record["compared_with"] = compare.compared(record, old)
    return record


def usable(found: Any) -> bool:
    """Is it a record of which the parts that are compared are there?"""
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return False
    if not all(isinstance(found.get(key), kind) for key, kind in SHAPE.items()):
        return False
    levels: List[Any] = found["levels"]
    return all(isinstance(level, dict) and "value" in level for level in levels)
