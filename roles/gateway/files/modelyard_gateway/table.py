"""The backends as a table of words, for the page and for the command. Pure: made from the status as JSON gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional

from modelyard_gateway.problems import ended, failures
from modelyard_gateway.words import latency, span, tally

HEADINGS = ("state", "in flight", "last token", "TTFT p50 / p95", "duration p50 / p95", "answers", "failed")


@dataclass(frozen=True)
class Row:
    """One backend. `more` is the small print below the state; what ends in `_all` speaks of the time since the start."""

    name: str
    address: str
    level: str
    state: str
    more: str
    now: str
    last_token: str
    ttft: str
    duration: str
    answers: str
    failed: str
    answers_all: str
    failed_all: str
    draining: bool


def rows(state: Mapping[str, Any]) -> List[Row]:
    """One row for each backend, in the order of the configuration."""
    return [_row(backend) for backend in state["backends"]]


def caption(state: Mapping[str, Any]) -> str:
    """Say what time the columns from TTFT on speak of."""
    return f"TTFT, duration, answers and failed: of the last {span(state['recent_s'])}"


def _row(backend: Mapping[str, Any]) -> Row:
    lately = backend["recent"]
    healthy = "healthy " if backend["state"] == "up" else ""
    more = f"{healthy}for {span(backend['since_s'])}" + (f": {backend['why']}" if backend["why"] else "")
    limit = f" of {backend['limit']}" if backend["limit"] else ""
    return Row(
        name=backend["name"],
        address=backend["address"],
        level=backend["level"],
        state=backend["word"],
        more=more,
        now=f"{backend['in_flight']}{limit}",
        last_token="-" if backend["last_token_s"] is None else f"{span(backend['last_token_s'])} ago",
        ttft=_pair(lately["ttft_s"]),
        duration=_pair(lately["duration_s"]),
        answers=f"{lately['served']}",
        failed=_failed(lately),
        answers_all=str(backend["served"]),
        failed_all=str(sum(failures(backend).values())),
        draining=backend["draining"],
    )


def _pair(quantiles: Optional[Mapping[str, float]]) -> str:
    return "-" if quantiles is None else f"{latency(quantiles['p50'])} / {latency(quantiles['p95'])}"


def _failed(counts: Mapping[str, Any]) -> str:
    failed = failures(counts)
    number = sum(failed.values())
    return f"{number} of {ended(counts)} ({tally(failed)})" if number else "0"
