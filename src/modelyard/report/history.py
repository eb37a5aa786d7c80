"""The strip of the last runs: the answer of each, and since when the answer is what it is. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Sequence

from modelyard.report import answers, reading
from modelyard.report.answers import Answer
from modelyard.report.record import Run

#: So many runs are shown.
MOST = 60
#: Names of pages beside this one; nothing that leads elsewhere.
_BESIDE = re.compile(r"(?:[\w-][\w.-]*/)*[\w-][\w.-]*\.html", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """One run. `page`: the file beside this page, empty for none; `is_this`: the run that the page is about."""

    id: str
    began: float | None
    answer: Answer
    page: str
    is_this: bool

    @property
    def words(self) -> str:
        """For tooltips and screen readers."""
        when = reading.moment(self.began) or self.id or "unknown time"
        return f"{when}: {self.answer.words}{', this run' if self.is_this else ''}"


@dataclass(frozen=True)
class Strip:
    """The last runs, newest last. `since`: the oldest one known with this answer without a break, `runs`: how many have it since,
    `is_start`: whether another answer is known before."""

    entries: Sequence[Entry]
    left_out: int
    since: Entry
    runs: int
    is_start: bool


def strip(run: Run, history: Any) -> Strip:
    """`history`: entries {id, began, answer}, whole run records too, with `html` where a page of it lies beside.

    Runs with another limit are left out.
    """
    mine = Entry(run.id, run.began, run.answer, "", True)
    # A run of some hosts says nothing about the others.
    same = [one for one in reading.mappings(history) if reading.line(one.get("limit", run.limit)) == run.limit]
    others = [entry for entry in map(_entry, same) if not run.id or entry.id != run.id]
    began = run.began
    earlier = [one for one in others if began is None or one.began is None or one.began <= began]
    later = [one for one in others if one not in earlier]
    ordered = [*sorted(earlier, key=_order), mine, *sorted(later, key=_order)]
    place = first = ordered.index(mine)
    while first and ordered[first - 1].answer == mine.answer:
        first -= 1
    shown = ordered[-MOST:]
    return Strip(shown, len(ordered) - len(shown), ordered[first], place - first + 1, first > 0)


def _order(entry: Entry) -> float:
    return entry.began if entry.began is not None else 0.0


def _entry(found: dict[str, Any]) -> Entry:
    name = reading.line(found.get("id"))
    began = reading.number(found.get("began"))
    page = found.get("html")
    beside = page if isinstance(page, str) and _BESIDE.fullmatch(page) else ""
    return Entry(name, began if began is not None else reading.stamp(name), answers.answer(found.get("answer")), beside, False)
