"""From levels to an answer: where throughput tops out, what that is in a day, and whether the limits are kept. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge.load.figures import error_rate

#: More load that gives less than this much more throughput gives nothing.
GAIN = 0.05
#: What can be planned with: a server that is full all day has no room for the busy hour, a restart or a dead card.
FACTOR = 0.75
DAY_S = 86400
Level = Mapping[str, Any]


def sound(levels: Sequence[Level], limits: Mapping[str, Any]) -> List[Level]:
    """The levels at which no more requests failed than may: only those say what the service sustains."""
    return [level for level in levels if level["completed"] and error_rate(level) <= limits["error_rate"]]


def tops_out(levels: Sequence[Level]) -> Optional[Level]:
    """The first level after which more load gives less than GAIN more tokens a second; None while throughput still rises.

    `levels` in the order of their load. Noise at one level is no end: no later one may have gained it either.
    """
    for place, level in enumerate(levels[:-1]):
        best = max(_tokens(later) for later in levels[place + 1 :])
        if best < _tokens(level) * (1 + GAIN):
            return level
    return None


def _tokens(level: Level) -> float:
    return float(level["output_tokens_per_s"])


def sustained(levels: Sequence[Level]) -> Optional[Level]:
    """The level whose throughput the service holds: where it tops out, or the best one; None where every level failed."""
    return tops_out(levels) or max(levels, key=_tokens, default=None)


def per_day(level: Optional[Level]) -> Dict[str, Any]:
    """What can be planned with in a day."""
    requests, tokens = (float(level[key]) if level else 0.0 for key in ("requests_per_s", "output_tokens_per_s"))
    return {"factor": FACTOR, "requests": int(requests * DAY_S * FACTOR), "output_tokens": int(tokens * DAY_S * FACTOR)}


def judged(levels: Sequence[Level], limits: Mapping[str, Any]) -> Tuple[Optional[Level], str]:
    """(the level that the limits are held against, why there is none)."""
    at = limits["at"]
    if at:
        level = next((one for one in levels if one["value"] == at), None)
        known = ", ".join(f"{one['value']:g}" for one in levels) or "none"
        return level, "" if level else f"the limits are for level {at:g}, which was not run (levels: {known})"
    good = sound(levels, limits)
    level = sustained(good)
    if level is None:
        # The least load tells most of what is wrong.
        return (levels[0], "") if levels else (None, "no level was run")
    return level, ""


def complaints(levels: Sequence[Level], limits: Mapping[str, Any]) -> List[str]:
    """Why the limits are not kept; empty when they are."""
    level, problem = judged(levels, limits)
    if level is None:
        return [problem]
    found = []
    where = f"at {level['kind']} {level['value']:g}"
    if not level["completed"]:
        found.append(f"{where} not one of {level['requests']} requests was answered: {_most(level)}")
    elif error_rate(level) > limits["error_rate"]:
        share = f"{level['failed']} of {level['requests']} requests failed"
        found.append(f"{where} {share}, {limits['error_rate'] * 100:g} % may: {_most(level)}")
    for key, name, words in (("e2e_p95_ms", "e2e_ms", "the whole answer"), ("ttft_p95_ms", "ttft_ms", "the first token")):
        limit, value = limits[key], level[name]["p95"]
        if limit is not None and level["completed"] and (value is None or value > limit):
            said = "was not measured" if value is None else f"took {value:.0f} ms"
            found.append(f"{where} {words} {said} (P95), the limit is {limit:g} ms")
    wanted = limits["requests_per_s"]
    if wanted is not None and level["requests_per_s"] < wanted:
        found.append(f"{where} there were {level['requests_per_s']:.1f} requests/s, at least {wanted:g} are wanted")
    return found


def _most(level: Level) -> str:
    """The most frequent error, in words."""
    if not level["errors"]:
        return "no reason was told"
    error, count = next(iter(level["errors"].items()))
    said = f" ({level['error_example'][:160]})" if level.get("error_example") else ""
    return f"{count} x {error}{said}"
