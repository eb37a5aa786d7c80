"""What is wrong, in words, for a person who looks at night. Pure functions of the status."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional

from modelyard_gateway.backends import BLAMED
from modelyard_gateway.words import count, span, tally

ORDER = ("out", "warn", "note")
#: From how many failed requests on, and from which share of all, a backend is named although it takes requests.
FAILED_MIN, FAILED_SHARE = 3, 0.05
#: Share of the allowed open files from which on it is said.
FILES_SHARE = 0.9


def find(state: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """List what is wrong, the worst first: `{level, backend, text}`."""
    found = [
        *_of_gateway(state),
        *(problem for backend in state["backends"] for problem in _of_backend(backend, state["recent_s"])),
    ]
    return sorted(found, key=lambda problem: ORDER.index(problem["level"]))


def summary(state: Mapping[str, Any]) -> str:
    """Say in one sentence how many backends take requests."""
    backends = state["backends"]
    able = sum(backend["able"] for backend in backends)
    if not able:
        return "No backend takes requests"
    if able == len(backends):
        return "The backend takes requests" if able == 1 else f"All {able} backends take requests"
    return f"{able} of {count(len(backends), 'backend')} {'takes' if able == 1 else 'take'} requests"


def failures(counts: Mapping[str, Any]) -> Dict[str, int]:
    """Of the errors counted there, those that are the backend's fault."""
    return {kind: number for kind, number in counts["errors"].items() if kind in BLAMED or kind == "refused"}


def ended(counts: Mapping[str, Any]) -> int:
    """Count the requests that have ended, well or not. A server error is an answer and stands in both counts."""
    errors: Mapping[str, int] = counts["errors"]
    return int(counts["served"]) + sum(errors.values()) - errors.get("server_error", 0)


def failing(counts: Mapping[str, Any]) -> bool:
    """Say whether so many requests failed that somebody should know, although the backend takes requests."""
    number = sum(failures(counts).values())
    return number >= FAILED_MIN and number >= FAILED_SHARE * ended(counts)


def _problem(level: str, text: str, backend: Optional[str] = None) -> Dict[str, Any]:
    return {"level": level, "backend": backend, "text": text}


def _of_gateway(state: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    gateway, log = state["gateway"], state["log"]
    if not any(backend["able"] for backend in state["backends"]):
        yield _problem("out", "Clients get 503, because no backend takes requests")
    if gateway["stopping"]:
        yield _problem(
            "warn", f"The gateway is stopping: {count(gateway['in_flight'], 'request')} in flight, no new ones are taken"
        )
    if gateway["queue_size"] and gateway["waiting"] >= gateway["queue_size"]:
        yield _problem("warn", f"The queue is full: {count(gateway['waiting'], 'request')} waiting, further ones get 429")
    elif gateway["waiting"]:
        yield _problem("note", f"{count(gateway['waiting'], 'request')} waiting: all backends are at their limit")
    files, limit = gateway["open_files"], gateway["open_files_limit"]
    if files and limit and files >= FILES_SHARE * limit:
        yield _problem("warn", f"{files} of {limit} files and connections are open: raise the limit (ulimit -n) and start again")
    if log and log["problem"]:
        yield _problem("warn", f"The result log cannot be written: {log['problem']}")
    if log and log["dropped"]:
        yield _problem("warn", f"{count(log['dropped'], 'line')} of the result log lost since the start")


def _of_backend(backend: Mapping[str, Any], recent_s: float) -> Iterator[Dict[str, Any]]:
    name, level = backend["name"], backend["level"]
    why = f": {backend['why']}" if backend["why"] else ""
    running = f"{count(backend['in_flight'], 'request')} in flight"
    if backend["draining"]:
        if backend["gone"]:
            yield _problem(level, f"{name} is no longer in the configuration and goes when it is free: {running}", name)
        elif backend["in_flight"]:
            yield _problem(level, f"{name} is draining: {running}, no new ones", name)
        else:
            yield _problem(level, f"{name} is drained and gets no requests until somebody says undrain", name)
    elif backend["state"] == "unknown":
        yield _problem(level, f"{name} has not been looked at yet", name)
    elif backend["state"] != "up":
        yield _problem(level, f"{name} is {backend['word']} for {span(backend['since_s'])}{why}", name)
    elif backend["hung"]:
        silent = backend["last_token_s"]
        since = "yet" if silent is None else f"for {span(silent)}"
        yield _problem(level, f"{name} seems to hang: {running}, no token {since}, though /health is well", name)
    lately = backend["recent"]
    if failing(lately):
        failed = failures(lately)
        share = f"{sum(failed.values())} of {count(ended(lately), 'request')}"
        yield _problem("warn", f"{name}: {share} failed in the last {span(recent_s)} ({tally(failed)})", name)
