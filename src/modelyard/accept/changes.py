"""What is news to a person: the answers of a run against what was told before. Pure functions.

A subject is a service (`HOST/SERVICE`), a host (`HOST`: can it be asked at all?) or the whole (`*`). For each is remembered
which answer was told last, and for which reasons. News is

- another answer than the one that was told last; before the first run everything counts as accepted;
- the same answer for a reason that was not told since that answer began (failed at `schema`, then at `chat`);
- an answer that needs patience (`busy`, and `unreachable` where wanted) once it lasts; before that it is no news, neither when it
  begins nor when it ends.

So a service that fails now for one reason and now for another is told once for each, and not at every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from modelyard.accept import answer

WHOLE = "*"
REASONS_KEPT = 50
#: What was told about each subject: {answer, reasons, since (a run), waiting, seen (seconds)}.
#: `waiting`: an answer that has not lasted for long enough, {answer, since (seconds)}, or None.
Told = dict[str, dict[str, Any]]


class Subject(NamedTuple):
    """One that is judged in a run."""

    key: str
    answer: str
    reason: str
    words: str


def subjects(run: Mapping[str, Any], reasons: Mapping[str, str]) -> Iterator[Subject]:
    """All subjects of a run. `reasons`: why hosts could not be asked. The services of such a host are not judged."""
    for host, seen in run["hosts"].items():
        problem = str(seen["problem"])
        alone = answer.ACCEPTED
        if problem:
            alone = answer.UNREACHABLE if seen["answer"] == answer.UNREACHABLE else answer.ERROR
        yield Subject(host, alone, reasons.get(host, alone) if problem else "", problem)
        for service in seen["services"]:
            failed = answer.first_failed(service["steps"]) or {}
            words = f"step {failed['id']} on instance {failed['instance']}: {failed['detail']}" if failed else ""
            yield Subject(f"{host}/{service['name']}", service["answer"], answer.reason(service), words)
    yield Subject(WHOLE, run["answer"], "", " ".join(run["words"]) if not run["hosts"] else "")


def compare(
    told: Told, run: Mapping[str, Any], reasons: Mapping[str, str], patience: Mapping[str, float]
) -> tuple[list[dict[str, Any]], Told]:
    """(news, what will have been told then). News: [{where, answer, before, words}], services and hosts first, then the whole.

    Subjects that the run was not about keep what they have. `patience`: for how many seconds an answer must last, by answer.
    """
    news, after = [], {key: dict(value) for key, value in told.items()}
    for subject in subjects(run, reasons):
        before = {"answer": answer.ACCEPTED, "reasons": [], "since": run["id"], "waiting": None, **told.get(subject.key, {})}
        entry, said = _judged(subject, before, run, patience.get(subject.answer, 0.0))
        after[subject.key] = {**entry, "seen": run["began"]}
        if said:
            news.append({"where": subject.key, "answer": subject.answer, "before": before["answer"], "words": said})
    return news, after


def _judged(subject: Subject, before: Mapping[str, Any], run: Mapping[str, Any], patience_s: float) -> tuple[dict[str, Any], str]:
    """(what will have been told, the news in words or nothing)."""
    entry = {**before, "reasons": list(before["reasons"]), "waiting": None}
    if subject.answer != before["answer"] and patience_s > 0:
        waiting = before["waiting"] or {}
        since = waiting["since"] if waiting.get("answer") == subject.answer else run["began"]
        lasting = run["began"] - since
        if lasting < patience_s:
            entry["waiting"] = {"answer": subject.answer, "since": since}
            return entry, ""
        entry.update(answer=subject.answer, reasons=[subject.reason], since=run["id"])
        return entry, " ".join(f"{subject.answer} for {_time(lasting)}. {subject.words}".split())
    if subject.answer != before["answer"]:
        entry.update(answer=subject.answer, reasons=[subject.reason], since=run["id"])
        return entry, subject.words or f"{before['answer']} -> {subject.answer}"
    if subject.answer not in (answer.ACCEPTED, answer.BUSY) and subject.reason not in before["reasons"]:
        entry["reasons"] = [*entry["reasons"], subject.reason][-REASONS_KEPT:]
        return entry, f"still {subject.answer}, for another reason: {subject.words}"
    return entry, ""


def _time(seconds: float) -> str:
    """`15 min`, `2.0 h`."""
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"


def without_old(told: Told, now: float, days: float) -> Told:
    """Without subjects that no run was about for so long: hosts and services that are gone from the inventory."""
    return {key: value for key, value in told.items() if now - float(value.get("seen") or 0) <= days * 86400}


def usable(data: Any) -> bool:
    """Is this what `compare` has returned? People and full disks touch files."""
    return isinstance(data, dict) and all(
        isinstance(key, str)
        and isinstance(value, dict)
        and value.get("answer") in answer.ORDER
        and isinstance(value.get("reasons"), list)
        and _waits(value.get("waiting"))
        and isinstance(value.get("seen"), (int, float))
        for key, value in data.items()
    )


def _waits(data: Any) -> bool:
    return data is None or (
        isinstance(data, dict) and data.get("answer") in answer.ORDER and isinstance(data.get("since"), (int, float))
    )


def headline(run: Mapping[str, Any], news: list[dict[str, Any]]) -> str:
    """One line for a subject: what is new, else what the answer is."""
    own = [item for item in news if item["where"] != WHOLE]
    if not own:
        return f"Modelyard acceptance: {run['answer']}, {run['inventory']}"
    first = own[0]
    more = f" and {len(own) - 1} more" if len(own) > 1 else ""
    return f"Modelyard acceptance: {first['where']} {first['answer']}{more} (was {first['before']})"
