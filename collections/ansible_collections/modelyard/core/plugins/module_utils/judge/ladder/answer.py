"""Reading the answers of an engine: why one is none, its text, its count of tokens. Pure functions."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import reply_cause
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import Verdict, busy, failed

BODY_CHARACTERS = 600


def unanswered(answer: Mapping[str, Any], seen: Mapping[str, Any], before: str = "") -> Optional[Verdict]:
    """Why an answer is no answer; None when it came with status 200.

    `seen` may hold `counters` (of an engine that did not answer in time) and `engine` (of one that refused the connection).
    `before`: words that begin the complaint.
    """
    why = reply_cause.of_answer(answer, seen.get("counters"), seen.get("engine"))
    if why is None:
        return None
    status = answer["status"]
    if status not in (0, 200):
        words = f"HTTP {status}: {why.what}. Body: {_said(answer['body'])}"
    elif answer["error"] == "timeout":
        words = f"no answer within {answer['seconds']:.0f} s: {why.what}"
    else:
        words = why.what
    if why.fault == "load":
        return busy(f"{before}{words}", why.id, why.do)
    return failed(f"{before}{words}", why.id, why.do, why.restart)


def last(seen: Mapping[str, Any]) -> Tuple[Mapping[str, Any], Optional[Verdict]]:
    """The last answer, and why it is none."""
    answer = seen["answers"][-1]
    return answer, unanswered(answer, seen)


def _said(body: Any) -> str:
    return (json.dumps(body) if isinstance(body, (dict, list)) else str(body or "").strip())[:BODY_CHARACTERS] or "(empty)"


def message(answer: Mapping[str, Any]) -> Tuple[Dict[str, Any], str]:
    """(first choice, its text); empty when the reply has another shape.

    A thinking part is called `reasoning`, and `reasoning_content` in older releases.
    """
    try:
        choice = answer["body"]["choices"][0]
        said = choice["message"]
        text = said["content"] or said.get("reasoning") or said.get("reasoning_content") or ""
    except (KeyError, IndexError, TypeError, AttributeError):
        return {}, ""
    return (choice, text) if isinstance(text, str) else ({}, "")


def tokens(answer: Mapping[str, Any], which: str = "completion_tokens") -> int:
    """Tokens that the reply counts; 0 when it does not."""
    usage = answer["body"].get("usage") if isinstance(answer["body"], dict) else None
    count = usage.get(which) if isinstance(usage, dict) else 0
    return count if isinstance(count, int) and not isinstance(count, bool) else 0
