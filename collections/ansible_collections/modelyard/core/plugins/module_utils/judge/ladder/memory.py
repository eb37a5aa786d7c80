"""The step `memory`, and memory that moves wrongly between two steps. Pure.

Rows are {card, index, health, used_mib, total_mib, own_mib, unknown}: `own_mib` is what neither an idle card nor others use,
`unknown` why that cannot be told.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    Instance,
    Service,
    Step,
    Verdict,
    failed,
    passed,
    skipped,
)

#: Ranks of one instance may differ by so much: rank 0 keeps a few hundred MiB more, pipelines and graphs add to that.
SYMMETRY_MIB, SYMMETRY_SHARE = 1024, 0.03
#: CUDA graphs and the driver's context come on top of gpu_memory_utilization (up to 0.19 graphs are not part of it at all).
OVER_SHARE = 0.10
#: An engine takes its budget whole unless it was given fixed blocks.
UNDER_SHARE = 0.20
FIXED = ("--kv-cache-memory-bytes", "--num-gpu-blocks-override")
OPTION = "--gpu-memory-utilization"
#: What a running engine may give back or take without anything being wrong (caches of the allocator), of the card.
MOVES_SHARE = 0.05

Row = Mapping[str, Any]


def budget_share(argv: Sequence[str]) -> Optional[float]:
    """The share of a card that an engine with these words takes; None when its words do not decide that."""
    if any(word.partition("=")[0] in FIXED for word in argv):
        return None
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == OPTION:
            value = value if equals else "".join(argv[place + 1 : place + 2])
            try:
                return float(value)
            except ValueError:
                return None
    return None


def allowed_mib(row: Row, share: float) -> float:
    """What an engine may use of this card at most, with what comes on top."""
    return float(row["total_mib"]) * min(1.0, share + OVER_SHARE)


def broken(rows: Sequence[Row]) -> str:
    """Cards that do not work any more; empty for none."""
    return "; ".join(f"{row['card']} is {row['health'].replace('_', ' ')}" for row in rows if row["health"] in BROKEN)


BROKEN = ("lost", "needs_reset")
CARD_FIRST = "leave the service as it is and look at the card: playbooks/preflight.yml, then the admin of the host"


def memory(service: Service, _: Instance, seen: Dict[str, Any]) -> Verdict:
    """Every card of the instance holds about the planned budget, and its ranks about the same."""
    if seen["why"]:
        return skipped(seen["why"])
    rows: List[Row] = seen["cards"]
    wrong = broken(rows)
    if wrong:
        return failed(wrong, "card", CARD_FIRST)
    untold = [f"{row['card']}: {row['unknown']}" for row in rows if row["unknown"]]
    if untold:
        return skipped(f"not judged: {'; '.join(untold)}")
    shown = ", ".join(f"{row['card']} {row['own_mib']} MiB" for row in rows)
    own = [row["own_mib"] for row in rows]
    within = max(SYMMETRY_MIB, SYMMETRY_SHARE * max(row["total_mib"] for row in rows))
    if max(own) - min(own) > within:
        what = f"its cards are not used alike: {shown}; up to {within:.0f} MiB may differ"
        return failed(what, "asymmetric", "look for leftovers and others on these cards: playbooks/preflight.yml")
    share = seen["share"]
    if share is None:
        return passed(f"{shown}; the engine was given a fixed cache, so there is no budget to compare with")
    for row in rows:
        budget, most = share * row["total_mib"], allowed_mib(row, share)
        title = f"{row['card']} holds {row['own_mib']} MiB, planned were {budget:.0f}"
        if row["own_mib"] > most:
            return failed(
                f"{title} and {most:.0f} at most", "over_budget", "lower gpu_memory_utilization, or find what else grew"
            )
        if row["own_mib"] < budget * (1 - UNDER_SHARE):
            do = "compare the cards of the plan with those that the engine's log names"
            return failed(f"{title}: the engine did not take what it was given", "under_budget", do)
    return passed(f"{shown}; planned {share * rows[0]['total_mib']:.0f} of {rows[0]['total_mib']}")


def moved(before: Sequence[Row], now: Sequence[Row], share: Optional[float]) -> str:
    """What has moved wrongly since the ladder began: memory that is gone from a card, or that has grown beyond the budget."""
    first = {row["card"]: row for row in before}
    for row in now:
        then = first.get(row["card"])
        if then is None or row["unknown"] or then["unknown"] or row["own_mib"] is None or then["own_mib"] is None:
            continue
        step = max(SYMMETRY_MIB, MOVES_SHARE * row["total_mib"])
        change = f"{row['card']} went from {then['own_mib']} to {row['own_mib']} MiB"
        if then["own_mib"] - row["own_mib"] > step:
            return f"{change}: a part of the engine is gone from it"
        if row["own_mib"] - then["own_mib"] > step and share is not None and row["own_mib"] > allowed_mib(row, share):
            return f"{change}: more than the {share * row['total_mib']:.0f} MiB that were planned"
    return ""


STEP = Step("memory", lambda s, i: {"kind": "memory"}, memory, loads=False)
