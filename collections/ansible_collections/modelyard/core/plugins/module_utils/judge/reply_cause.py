"""Why a request failed, told from the status and the body of its answer. Pure; one table for everything that reads failures.

An unknown text gives a general cause for its status, never a guess. The table is in reply_rules.py.
"""

from __future__ import annotations

import json
from typing import Any, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_counters
from ansible_collections.modelyard.core.plugins.module_utils.judge.reply_rules import (
    ABORTED,
    BY_STATUS,
    CLIENT_GONE,
    CLOSED,
    ENDED,
    IN_STREAM,
    REFUSED,
    REOPENED,
    RULES,
    TIMEOUTS,
    TRUNCATED,
    UNANSWERED,
    Cause,
)

__all__ = ["ABORTED", "CLIENT_GONE", "TIMEOUTS", "TRUNCATED", "Cause", "cause", "ids", "of_answer", "words"]


def words(body: str) -> str:
    """The message of an error's body, whichever of the usual shapes it has; other text as it is."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def cause(status: Optional[int], body: str = "", truncated: bool = False, client_gone: bool = False) -> Optional[Cause]:
    """Why a request failed; None when it did not.

    :param status: of the answer; None or 0 for none
    :param body: what the answer said, or the error event of a stream
    :param truncated: the answer broke off
    :param client_gone: the client left before its end
    """
    if client_gone or status == 499:
        return CLIENT_GONE
    if not status:
        return UNANSWERED
    if truncated:
        return TRUNCATED
    if status < 400:
        return IN_STREAM if body else None
    for rule in RULES:
        match = rule.sign.search(body) if status in rule.statuses else None
        if match:
            return Cause(rule.id, rule.what.format(**match.groupdict()), rule.do, rule.fault, rule.restart)
    general = Cause(f"http_{status}", f"the answer was HTTP {status}", "read the body", "server" if status >= 500 else "client")
    return BY_STATUS.get(status, general)


def of_answer(
    answer: Mapping[str, Any],
    counters: Optional[Mapping[str, Any]] = None,
    engine: Optional[Mapping[str, Any]] = None,
) -> Optional[Cause]:
    """Why a request of our own failed; None when it was answered with status 200.

    :param answer: {status, body, error, ...} of survey/http.py or survey/stream.py
    :param counters: figures of the engine around a time-out, see engine_counters.state
    :param engine: {alive, listening}: the API server and its port after a refused connection
    """
    status, error = int(answer["status"]), str(answer["error"])
    if status == 200 and not error:
        return None
    if status and status != 200:
        body = answer["body"]
        said = json.dumps(body, ensure_ascii=False) if isinstance(body, (dict, list)) else str(body or "")
        found = cause(status, said) if status >= 400 else None
        return found or Cause(f"http_{status}", f"the answer was HTTP {status}, not 200", "see what listens there", "server")
    if error == "timeout":
        return TIMEOUTS[engine_counters.state(counters or {})]
    if error == "refused":
        if engine is None:
            return REFUSED
        if not engine["alive"]:
            return ENDED
        return REOPENED if engine["listening"] else CLOSED
    return UNANSWERED._replace(what=f"there was no whole answer ({error})")


def ids() -> List[str]:
    """All causes by their id, for documentation and tests."""
    known: List[Any] = [*RULES, *BY_STATUS.values(), *TIMEOUTS.values(), TRUNCATED, IN_STREAM, ABORTED, UNANSWERED]
    return sorted({one.id for one in [*known, ENDED, CLOSED, REOPENED, REFUSED]})
