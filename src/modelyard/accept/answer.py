"""From what a run has seen to one answer for each service, each host and the whole. Pure functions.

Answers, worst first: `failed` (asked, and something is wrong), `error` (could not be asked, for a reason that is not the
network's), `unreachable`, `busy` (loaded, so not judged: neither a failure nor a proof), `accepted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ACCEPTED, BUSY, UNREACHABLE, ERROR, FAILED = "accepted", "busy", "unreachable", "error", "failed"
#: Worst first.
ORDER = (FAILED, ERROR, UNREACHABLE, BUSY, ACCEPTED)
#: 2 is wrong usage, 6 another run that is under way; both without an answer.
EXIT = {ACCEPTED: 0, FAILED: 1, UNREACHABLE: 3, BUSY: 4, ERROR: 5}
PASS, FAIL, STEP_BUSY, SKIPPED = "pass", "fail", "busy", "skipped"
#: Steps that this tool adds, where the ladder could not be walked: what the plan refuses, and a probe without a result.
PLAN_STEP, PROBE_STEP = "plan", "probe"


def worst(answers: Iterable[str], none: str) -> str:
    """The worst of some answers; `none` where there are none."""
    found = set(answers)
    return next((answer for answer in ORDER if answer in found), none)


def step(seen: Mapping[str, Any]) -> dict[str, Any]:
    """One step with every key of the record. A step without `verdict` has passed or failed."""
    verdict = str(seen.get("verdict") or (PASS if seen.get("passed") else FAIL))
    return {
        "id": str(seen.get("id", "")),
        "instance": int(seen.get("instance", 0)),
        "passed": verdict == PASS,
        "verdict": verdict,
        "seconds": float(seen.get("seconds") or 0.0),
        "detail": str(seen.get("detail", "")),
        "cause": str(seen.get("cause") or ""),
        "next": str(seen.get("next") or ""),
        "restart": bool(seen.get("restart", False)),
    }


def added(id: str, instance: int, detail: str, next_step: str = "") -> dict[str, Any]:
    """A failed step that no ladder has walked."""
    return step({"id": id, "instance": instance, "passed": False, "detail": detail, "next": next_step})


def postponed(seen: Mapping[str, Any]) -> dict[str, Any]:
    """A failed step that proves nothing, because somebody is at work there."""
    return {**seen, "verdict": STEP_BUSY} if seen["verdict"] == FAIL else dict(seen)


def of_service(steps: Sequence[Mapping[str, Any]]) -> str:
    """A failure outweighs a load, and what only was skipped has proven nothing."""
    verdicts = {str(one["verdict"]) for one in steps}
    if verdicts - {PASS, STEP_BUSY, SKIPPED}:
        without_probe = {one["id"] for one in steps if one["verdict"] == FAIL} == {PROBE_STEP}
        return ERROR if without_probe else FAILED
    if STEP_BUSY in verdicts:
        return BUSY
    return ACCEPTED if PASS in verdicts else ERROR


def of_run(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """The worst of all hosts. A run in which no service was asked is an error: it has proven nothing."""
    answers = [str(host["answer"]) for host in hosts.values() if host["services"] or host["problem"]]
    return worst(answers, ERROR)


def first_failed(steps: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The step that a person looks at first."""
    return next((one for one in steps if one["verdict"] == FAIL), None)


def reason(service: Mapping[str, Any]) -> str:
    """Why a service has its answer, in words that stay the same while the cause does: `schema`, `chat:timeout`."""
    failed = first_failed(service["steps"])
    if failed is None:
        return ""
    return f"{failed['id']}:{failed['cause']}" if failed["cause"] else str(failed["id"])
