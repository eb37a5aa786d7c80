"""What of a request's body goes into the result log: who asks, for which model, how. Pure; never a wrong answer, rather none."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional

from modelyard_gateway.json_windows import Ends, entries

NAME_CHARACTERS = 200
#: Keys of the body, and how many bytes of JSON their values may have.
WANTED = {"user": 2000, "model": 2000, "stream": 10, "max_tokens": 20, "max_completion_tokens": 20, "max_output_tokens": 20}
NOTHING: Dict[str, Any] = {"user": None, "model": None, "stream": None, "max_tokens": None}


class RequestFacts:
    """Fed with the body as it comes; the same facts however it is cut into chunks."""

    def __init__(self, content_type: Optional[str]) -> None:
        """`content_type`: as the client sent it; a form (audio) has no facts."""
        self._form = (content_type or "").lstrip().lower().startswith("multipart/")
        self._ends = Ends()
        self.feed = self._ends.feed

    def finish(self) -> Dict[str, Any]:
        """`user`, `model`, `stream`, `max_tokens`; None where it is not known."""
        if self._form:
            return dict(NOTHING)
        head = self._ends.head()
        if not self._ends.whole():
            return _facts(*entries(head, self._ends.tail(), WANTED))
        try:
            body = json.loads(head.decode())
        except (ValueError, RecursionError):
            return dict(NOTHING)
        return _facts(body, True) if isinstance(body, dict) else dict(NOTHING)


def _facts(body: Mapping[str, Any], whole: bool) -> Dict[str, Any]:
    """The facts; a client that does not mention `stream` at all gets no stream."""
    limits = (body.get(key) for key in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
    stream = body.get("stream", False if whole else None)
    return {
        "user": _name(body.get("user")),
        "model": _name(body.get("model")),
        "stream": stream if isinstance(stream, bool) else None,
        "max_tokens": next((limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool)), None),
    }


def _name(value: Any) -> Optional[str]:
    return value[:NAME_CHARACTERS] if isinstance(value, str) else None
