"""The answers of a run and the verdicts of a step: their words, signs and order. Data."""

from __future__ import annotations

from typing import Any, NamedTuple


class Answer(NamedTuple):
    """`sign`: said beside the colour; `level`: the class of the page that gives the colour."""

    id: str
    sign: str
    words: str
    level: str


#: Worst first: so hosts and services are ordered.
ANSWERS = (
    Answer("failed", "✕", "failed", "out"),
    Answer("error", "!", "could not be judged", "warn"),
    Answer("unreachable", "?", "unreachable", "warn"),
    Answer("busy", "…", "busy", "note"),
    Answer("accepted", "✓", "accepted", "ok"),
)
UNKNOWN = Answer("unknown", "?", "unknown", "warn")
VERDICTS = (
    Answer("fail", "✕", "failed", "out"),
    Answer("busy", "…", "busy", "note"),
    Answer("pass", "✓", "passed", "ok"),
    Answer("skipped", "–", "skipped", "none"),
)
_ANSWERS = {answer.id: answer for answer in ANSWERS}
_VERDICTS = {verdict.id: verdict for verdict in VERDICTS}
#: What the answer of a whole run means, for its headline.
HEADLINES = {
    "failed": "Not accepted",
    "error": "Could not be judged",
    "unreachable": "Not everything was reached",
    "busy": "Busy: not judged, and no failure",
    "accepted": "Accepted",
    "unknown": "No answer",
}


def answer(name: Any) -> Answer:
    """The answer of that id; `unknown` for everything else."""
    return _ANSWERS.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN


def verdict(name: Any, passed: Any) -> Answer:
    """The verdict of that id; one that is not known is told by `passed`."""
    if isinstance(name, str) and name in _VERDICTS:
        return _VERDICTS[name]
    return _VERDICTS["pass"] if passed is True else _VERDICTS["fail"] if passed is False else UNKNOWN


def rank(found: Answer) -> int:
    """Its place: worst first, and what is not known behind what has failed."""
    return ANSWERS.index(found) if found in ANSWERS else 1
