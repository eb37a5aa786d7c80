"""What people read about a diagnostic window. Pure functions."""

from __future__ import annotations

from typing import Any, Collection, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import text


def report(
    name: str, verdict: Mapping[str, Any], stages: Mapping[str, Optional[Mapping[str, Any]]], cards: Collection[int] = ()
) -> str:
    """A line for each request, what was watched, the verdict, and what next. `cards`: those of the instance."""
    rows: List[Sequence[Any]] = [("requests", "answer", "seconds", "running", "tokens", "processes at the end", "cards, MiB")]
    for stage, seen in stages.items():
        if seen is not None:
            rows.append((stage, *_row(seen, cards)))
    lines = [f"Diagnostic window of {name}", *text.table(rows), f"  verdict: {verdict['what']}"]
    lines += [f"      {line}" for line in verdict["why"]]
    return "\n".join([*lines, *(f"  -> {line}" for line in verdict["do"])])


def _row(seen: Mapping[str, Any], cards: Collection[int]) -> List[str]:
    answers = ", ".join(str(answer["status"] or answer["error"]) for answer in seen["answers"])
    seconds = ", ".join(f"{answer['seconds']:.2f}" for answer in seen["answers"])
    counters = [one["counters"] for one in seen["samples"] if one["counters"]]
    running = max((one.get("running", 0.0) for one in counters), default=None)
    tokens = [one["generation_tokens"] for one in counters if "generation_tokens" in one]
    states = [one["state"] for one in seen["samples"][-1]["processes"]]
    shown = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "none"
    used = [_memory(one, cards) for one in (seen["samples"][0], seen["samples"][-1])]
    moved = f"{used[0]} to {used[1]}" if used[0] != used[1] else used[0]
    return [
        answers,
        seconds,
        "?" if running is None else f"{running:.0f}",
        f"{tokens[-1] - tokens[0]:.0f}" if tokens else "?",
        shown,
        moved or "-",
    ]


def _memory(sample: Mapping[str, Any], cards: Collection[int]) -> str:
    own = [card["memory_used_mib"] for card in sample["cards"] if card["index"] in cards]
    return " + ".join("?" if used is None else str(used) for used in own)
