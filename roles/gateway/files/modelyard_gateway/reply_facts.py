"""What of a reply goes into the result log, from the raw bytes of a backend. Pure; never a wrong answer, rather none.

Which kind of reply it is decides who reads it. All have `feed`, `finish` and `tokens_seen`, and none delays or changes a byte.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Optional

from modelyard_gateway.json_windows import Ends
from modelyard_gateway.reply_document import Document
from modelyard_gateway.reply_stream import Stream

NOTHING: Dict[str, Any] = {
    "finish_reason": None,
    "prompt_tokens": None,
    "completion_tokens": None,
    "thinking": None,
    "snippet": None,
    "error": None,
    "done": None,
}


class ReplyFacts:
    """Fed with the payload as it comes, after de-chunking; the same facts however it is cut."""

    def __init__(
        self,
        status: int,
        content_type: Optional[str],
        content_encoding: Optional[str] = None,
        snippet: int = 200,
        error_bytes: int = 8192,
    ) -> None:
        """`snippet`: characters of the beginning of the answer, 0 for none. `error_bytes`: kept of the body of an error."""
        kind = (content_type or "").split(";")[0].strip().lower()
        self._reader: Any
        if (content_encoding or "identity").strip().lower() not in ("identity", ""):
            self._reader = _Unread()
        elif status >= 400:
            self._reader = _Error(error_bytes)
        elif kind == "text/event-stream":
            self._reader = Stream(snippet, error_bytes)
        elif kind == "application/json" or kind.endswith("+json"):
            self._reader = Document(snippet)
        else:
            self._reader = _Unread()
        self.feed = self._reader.feed

    @property
    def tokens_seen(self) -> int:
        """Data events so far: the sign that an engine makes progress."""
        return int(self._reader.tokens_seen)

    def finish(self) -> Dict[str, Any]:
        """All facts, None where unknown. `done`: the stream has said [DONE], or the JSON document is complete."""
        return {**NOTHING, **self._reader.finish()}


class _Unread:
    """A body that cannot be read without work: compressed, or no text."""

    tokens_seen = 0

    def feed(self, data: bytes) -> None:
        pass

    def finish(self) -> Dict[str, Any]:
        return {}


class _Error:
    """The body of an error, of whatever form: it is kept as text."""

    tokens_seen = 0

    def __init__(self, limit: int) -> None:
        self._ends = Ends(head=limit, tail=1)
        self.feed = self._ends.feed

    def finish(self) -> Dict[str, Any]:
        text = self._ends.head().decode("utf-8", "replace")
        done: Optional[bool] = None
        if self._ends.whole():
            try:
                json.loads(text)
                done = True
            except (ValueError, RecursionError):
                # Plain text and HTML have no end that could be seen.
                done = False if text.lstrip()[:1] in ("{", "[") else None
        else:
            text += f" ... ({self._ends.size} bytes)"
        return {"error": text, "done": done}
