"""What people read about an acceptance: a line for each step, why it failed, a table at the end. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import shortened

WORDS = {"pass": "pass", "fail": "FAIL", "busy": "BUSY", "skipped": "skip"}


def word(step: Mapping[str, Any]) -> str:
    """The verdict on a step in four letters."""
    return WORDS[str(step.get("verdict") or ("pass" if step["passed"] else "fail"))]


def lines(found: Mapping[str, Any]) -> List[str]:
    """A line for each step of a result, and what to do next below one that does not hold."""
    shown = []
    for step in found["steps"]:
        shown.append(f"{word(step)}  {found['service']}/{step['instance']} {step['id']}: {step['detail']}")
        if step.get("next"):
            shown.append(f"      -> {step['next']}")
    return shown


def failure(name: str, step: Mapping[str, Any], evidence: str, lost: str) -> str:
    """The message of a run in which a step failed."""
    kept = f"Evidence: {evidence}" + (f" ({lost})" if lost else "")
    restart = "A restart of the instance may help after that." if step.get("restart") else "A restart would not help."
    return (
        f"{name} was not accepted: step {step['id']} failed on instance {step['instance']}: {step['detail'].rstrip('.')}. "
        f"Next: {step['next']}. {restart} {kept}. The service was left as it is."
    )


def refused(name: str, indexes: Sequence[int], findings: Sequence[Mapping[str, Any]]) -> str:
    """The message of a run that did not ask these instances, because the plan refuses them. `findings`: of the plan."""
    refusing = [f for f in findings if f.get("severity") == "refuse"]
    found = [f for f in refusing if name in f"{f['where']} {f['what']}"] or refusing
    why = "; ".join(f"{f['id']} {f['what']} -> {f['do']}" for f in found)
    which = f"instance {', '.join(map(str, indexes))} {'was' if len(indexes) == 1 else 'were'} not asked"
    return f"{name} was not accepted: {which}, because the plan refuses it: {why}. The service was left as it is."


def not_kept(answer: Mapping[str, Any]) -> str:
    """What could not be written down on the host; empty for nothing."""
    return f"not written down: {'; '.join(answer['problems'])}" if answer["problems"] else ""


def rows(steps: Sequence[Mapping[str, Any]], few: int) -> List[Sequence[Any]]:
    """The ladder as rows of a table. What many instances have passed alike is one row, with its longest time."""
    found: List[Sequence[Any]] = [("step", "instance", "verdict", "seconds", "what was seen")]
    alike: Dict[Any, List[Mapping[str, Any]]] = {}
    for step in steps:
        if step["passed"]:
            alike.setdefault((step["id"], word(step)), []).append(step)
    for step in steps:
        same = alike.get((step["id"], word(step)), []) if step["passed"] else []
        if len(same) <= few:
            found.append((step["id"], step["instance"], word(step), _seconds(step), step["detail"]))
        elif step is same[0]:
            longest = max(same, key=lambda one: float(one["seconds"]))
            seen = "" if len({one["detail"] for one in same}) == 1 else f" (instance {longest['instance']})"
            indexes = shortened.numbers([one["instance"] for one in same])
            found.append((step["id"], indexes, word(step), _seconds(longest), f"{longest['detail']}{seen}"))
    return found


def _seconds(step: Mapping[str, Any]) -> str:
    return f"{step['seconds']:.2f}"
