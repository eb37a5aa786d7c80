"""The state of the gateway as plain data: what `GET /gateway/status` answers, and what page and command are made from.

Pure: clock and figures of the process are handed in. Times that end in `_s` are seconds, those in `_at` are UTC.

    schema          1; grows when a key changes its meaning or goes
    time_at         when this was true
    level, summary  `ok`, `note`, `warn` or `out`, the worst of the problems, and one sentence
    problems        [{level, backend (or null), text}], the worst first
    gateway         host, port, pid, started_at, uptime_s, stopping, in_flight, waiting, queue_size, connections, memory_bytes,
                    open_files, open_files_limit, totals {kind: count}
    log             {path, written, dropped, problem}, or null when there is no result log
    recent_s        how long the time is that `recent` speaks of
    backends        [{name, address, level, word, state, why, since_at, since_s, able (gets requests), draining, gone, hung,
                    in_flight, limit (0: none), peak, last_token_s (ago, or null), recent, and, since the start: picked, served,
                    errors {kind: count}, statuses {code: count}, ttft_s and duration_s ({p50, p95} or null)}];
                    `recent` has the same six of the last minutes
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, Mapping, Optional, Protocol, Tuple

from modelyard_gateway import problems
from modelyard_gateway.backends import DOWN, EJECTED, HALF_OPEN, UNKNOWN, UP, Backend, Backends
from modelyard_gateway.histogram import Histogram
from modelyard_gateway.recent import Recent
from modelyard_gateway.settings import Settings

SCHEMA = 1


class LogView(Protocol):
    """What is looked at of the result log."""

    def state(self) -> Mapping[str, Any]:
        """Give path, written, dropped and problem."""


class GatewayView(Protocol):
    """What is looked at of the gateway. The admin listener needs nothing else of it."""

    @property
    def settings(self) -> Settings:
        """What it was configured with."""

    @property
    def backends(self) -> Backends:
        """State and counters of the backends."""

    @property
    def started_at(self) -> float:
        """When it began, Unix time."""

    @property
    def waiting(self) -> int:
        """How many requests wait for a backend."""

    @property
    def in_flight(self) -> int:
        """How many requests run."""

    @property
    def connections(self) -> int:
        """How many connections of clients are open."""

    @property
    def log(self) -> Optional[LogView]:
        """The result log, if there is one."""

    @property
    def totals(self) -> Mapping[str, int]:
        """Counters of the gateway by kind, since the start."""

    @property
    def stopping(self) -> bool:
        """Whether it ends and takes no new requests."""


@dataclass(frozen=True)
class ProcessFigures:
    """What the kernel says of this process. None: not known."""

    pid: int
    cpu_s: Optional[float] = None
    memory_bytes: Optional[int] = None
    open_files: Optional[int] = None
    open_files_limit: Optional[int] = None


def report(gateway: GatewayView, recent: Recent, process: ProcessFigures, now: float, unix: float) -> Dict[str, Any]:
    """Put all together. `now` is the clock of `recent`, `unix` is Unix time."""
    settings = gateway.settings
    log = gateway.log
    state: Dict[str, Any] = {
        "schema": SCHEMA,
        "time_at": _utc(unix),
        "gateway": {
            "host": settings.host,
            "port": settings.port,
            "pid": process.pid,
            "started_at": _utc(gateway.started_at),
            "uptime_s": _seconds(unix - gateway.started_at),
            "stopping": gateway.stopping,
            "in_flight": gateway.in_flight,
            "waiting": gateway.waiting,
            "queue_size": settings.queue_size,
            "connections": gateway.connections,
            "memory_bytes": process.memory_bytes,
            "open_files": process.open_files,
            "open_files_limit": process.open_files_limit,
            "totals": dict(gateway.totals),
        },
        "log": dict(log.state()) if log is not None else None,
        "recent_s": _seconds(recent.length_s(now)),
        "backends": [_backend(backend, recent, unix) for backend in gateway.backends.all],
    }
    found = problems.find(state)
    return {**state, "problems": found, "level": found[0]["level"] if found else "ok", "summary": problems.summary(state)}


def condition(state: str, draining: bool, gone: bool, hung: bool, in_flight: int) -> Tuple[str, str]:
    """Say in a word how it is with a backend, and how much it matters."""
    if draining:
        word = ("going" if gone else "draining") if in_flight else "drained"
        return "note", word if state == UP else f"{word}, {_WORDS[state]}"
    if state == UP:
        return ("warn", "hangs") if hung else ("ok", "up")
    return ("out" if state in (DOWN, EJECTED) else "warn"), _WORDS[state]


_WORDS = {UNKNOWN: "not looked at yet", DOWN: "out", EJECTED: "out", HALF_OPEN: "on trial"}


def _backend(backend: Backend, recent: Recent, unix: float) -> Dict[str, Any]:
    level, word = condition(backend.state, backend.draining, backend.gone, backend.hung, backend.in_flight)
    lately = recent.of(backend)
    counts = _counts(lately.picked, lately.served, lately.errors, lately.statuses, lately.ttft, lately.duration)
    if level == "ok" and problems.failing(counts):
        level, word = "warn", "up, failing"
    return {
        "name": backend.name,
        "address": backend.address,
        "level": level,
        "word": word,
        "state": backend.state,
        "able": backend.able,
        "why": backend.why,
        "since_at": _utc(backend.since),
        "since_s": _seconds(unix - backend.since),
        "draining": backend.draining,
        "gone": backend.gone,
        "hung": backend.hung,
        "in_flight": backend.in_flight,
        "limit": backend.limit,
        "peak": backend.peak,
        "last_token_s": None if backend.last_token_at is None else _seconds(unix - backend.last_token_at),
        **_counts(backend.picked, backend.served, backend.errors, backend.statuses, backend.ttft, backend.duration),
        "recent": counts,
    }


def _counts(
    picked: int,
    served: int,
    errors: Mapping[str, int],
    statuses: Mapping[int, int],
    ttft: Histogram,
    duration: Histogram,
) -> Dict[str, Any]:
    return {
        "picked": picked,
        "served": served,
        "errors": dict(errors),
        "statuses": {str(code): count for code, count in sorted(statuses.items())},
        "ttft_s": _quantiles(ttft),
        "duration_s": _quantiles(duration),
    }


def _quantiles(histogram: Histogram) -> Optional[Dict[str, float]]:
    p50, p95 = histogram.quantile(0.5), histogram.quantile(0.95)
    return None if p50 is None or p95 is None else {"p50": round(p50, 4), "p95": round(p95, 4)}


def _utc(unix: float) -> str:
    return datetime.fromtimestamp(unix, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(seconds: float) -> float:
    return round(max(0.0, seconds), 1)
