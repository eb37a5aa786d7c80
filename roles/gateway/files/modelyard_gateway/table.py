"""The backends as a table of words, for the page and for the command. Pure: made from the status as JSON gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional

from modelyard_gateway.problems import ended, failures
from modelyard_gateway.words import latency, span, tally


@dataclass(frozen=True)
class Row:
    """One backend. `more` is the small print below the state."""

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
    draining: bool


def rows(state: Mapping[str, Any]) -> List[Row]:
    """One row for each backend, in the order of the configuration."""
    return [_row(backend) for backend in state["backends"]]


def headings(state: Mapping[str, Any]) -> List[str]:
    """Name the columns: state, now, last token, TTFT, duration, answers, failed. The last four speak of the last minutes."""
    lately = f"last {span(state['recent_s'])}"
    return [
        "state",
        "in flight",
        "last token",
        f"TTFT p50 / p95, {lately}",
        f"duration p50 / p95, {lately}",
        f"answers, {lately}",
        "failed",
    ]


def _row(backend: Mapping[str, Any]) -> Row:
    lately = backend["recent"]
    more = f"for {span(backend['since_s'])}" + (f": {backend['why']}" if backend["why"] else "")
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
        draining=backend["draining"],
    )


def _pair(quantiles: Optional[Mapping[str, float]]) -> str:
    return "-" if quantiles is None else f"{latency(quantiles['p50'])} / {latency(quantiles['p95'])}"


def _failed(counts: Mapping[str, Any]) -> str:
    failed = failures(counts)
    number = sum(failed.values())
    return f"{number} of {ended(counts)} ({tally(failed)})" if number else "0"
