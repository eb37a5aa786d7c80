"""The run in a few plain lines, for terminals and mails. Pure functions."""

from __future__ import annotations

from typing import Any

from modelyard.report import answers, figures, reading, record
from modelyard.report.record import Run
from modelyard.report.trouble import Trouble, troubles

#: So many troubles are told; mails stay readable.
MOST = 10


def headline(run: Run) -> str:
    """One line, good as the subject of a mail: the answer, of what, and how much of it."""
    of = run.inventory or "an unnamed inventory"
    limit = f" (limit {run.limit})" if run.limit else ""
    return f"{answers.HEADLINES[run.answer.id]}: {of}{limit}, {tally(run)}"


def tally(run: Run) -> str:
    """`2 of 3 services on 2 hosts accepted`, and what the rest is."""
    hosts = figures.count(len(run.hosts), "host")
    if not run.services:
        silent = sum(1 for host in run.hosts if host.answer.id == "unreachable")
        return f"{hosts}, {silent} not reached" if silent else f"{hosts}, no services"
    accepted = sum(1 for service in run.services if service.answer.id == "accepted")
    silent = sum(1 for host in run.hosts if not host.services and host.answer.id != "accepted")
    more = f"; nothing known of {figures.count(silent, 'host')}" if silent else ""
    instances, passed = (sum(part) for part in zip(*((len(one.instances), one.passed) for one in run.services)))
    if len(run.services) < instances != passed:
        more += f"; {passed} of {instances} instances passed"
    return f"{accepted} of {figures.count(len(run.services), 'service')} on {hosts} accepted{more}"


def words(run: Any) -> str:
    """Who, what, where, and what to do next, from a run record; without control characters, lines of bounded length."""
    found = record.run(run)
    began = reading.moment(found.began) or "at an unknown time"
    by = " by the timer" if found.trigger == "timer" else ""
    lines = [headline(found), f"Run {found.id or 'without an id'}, {began}{by}"]
    if found.before is not None and found.before != found.answer:
        lines.append(f"Before: {found.before.words}")
    elif found.changed_since and found.changed_since != found.id:
        lines.append(f"The same answer since run {found.changed_since}")
    lines += found.words
    known = troubles(found)
    for trouble in known[:MOST]:
        lines += ["", *_trouble(trouble)]
    if len(known) > MOST:
        lines += ["", f"and {figures.count(len(known) - MOST, 'further trouble')}, in the report"]
    return "\n".join(lines) + "\n"


def _trouble(trouble: Trouble) -> list[str]:
    said = f": {reading.line(trouble.detail)}" if trouble.detail else ""
    lines = [f"{figures.some(trouble.where)}: {trouble.what}{said}", f"  next: {reading.line(trouble.next)}"]
    lines.append(f"  {trouble.restart}")
    if trouble.evidence:
        lines.append(f"  evidence: {figures.some(trouble.evidence, 2)}")
    return lines
