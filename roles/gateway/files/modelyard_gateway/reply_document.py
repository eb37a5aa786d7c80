"""Facts of a reply that is one JSON document. It may be huge (logprobs, embeddings), so a large one is read at its ends alone."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Tuple

from modelyard_gateway import reply_shapes as shapes
from modelyard_gateway import thinking
from modelyard_gateway.json_windows import Ends, entries

# In JSON a quote inside a text has a backslash before it. So these can only be keys, wherever in the document they stand.
FINISH = re.compile(rb'(?<!\\)"finish_reason"\s{0,4}:\s{0,4}(?:"([\w-]{1,40})"|null)')
FINISH_KEY = b'"finish_reason"'
TEXT = re.compile(rb'(?<!\\)"(?:content|text)"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)("?)', re.DOTALL)
REASONING = re.compile(rb'(?<!\\)"reasoning(?:_content)?"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)', re.DOTALL)
PARTIAL_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}$")
#: More than the longest match of FINISH.
LONGEST = 80


class Document:
    """Fed with the bytes of one JSON document."""

    tokens_seen = 0

    def __init__(self, snippet: int) -> None:
        self._ends, self._snippet = Ends(), snippet
        self._carry = b""
        self._reasons: List[str] = []

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._ends.feed(data)
        data = self._carry + data
        place = 0
        while True:
            hit = data.find(FINISH_KEY, place)
            if hit < 0:
                # One byte more than the key: whether a backslash stands before it.
                self._carry = data[max(place, len(data) - len(FINISH_KEY)) :]
                return
            match = FINISH.match(data, hit)
            if match is None and len(data) - hit < LONGEST:
                self._carry = data[max(hit - 1, 0) :]
                return
            if match is not None and match.group(1):
                self._reasons.append(match.group(1).decode())
            place = match.end() if match is not None else hit + 1

    def finish(self) -> Dict[str, Any]:
        """The facts; see ReplyFacts."""
        head = self._ends.head()
        if not self._ends.whole():
            return self._of_ends(head)
        try:
            body = json.loads(head.decode())
        except (ValueError, RecursionError):
            return {"done": False}
        return {**_of_body(body, self._snippet), "done": True}

    def _of_ends(self, head: bytes) -> Dict[str, Any]:
        tail = self._ends.tail()
        ends, _ = entries(head, tail, {"usage": 4000})
        told, shown = _of_head(head)
        return {
            "finish_reason": ",".join(self._reasons) or None,
            **shapes.tokens(ends.get("usage")),
            "thinking": told,
            "snippet": shapes.clean(shown, self._snippet),
            "done": tail.rstrip().endswith(b"}"),
        }


def _of_head(head: bytes) -> Tuple[Optional[bool], str]:
    """(thinking, beginning of the text) of the first choice of a reply of which only the beginning is known."""
    begin = head.find(b'"choices"')
    if begin < 0:
        return None, ""
    content, reasoning = TEXT.search(head, begin), REASONING.search(head, begin)
    text = _unescaped(content.group(1)) if content else ""
    parted = _unescaped(reasoning.group(1)) if reasoning else ""
    if parted:
        return True, text or parted
    if content is None:
        return None, ""
    whole = bool(content.group(2))
    told = thinking.in_text(text, whole)
    # A reasoning field may follow the text as long as the message has not ended.
    ended = any(key in head[content.end() :] for key in (b'"logprobs"', FINISH_KEY))
    return (told or (told if ended else None)), text


def _unescaped(raw: bytes) -> str:
    """The text of a JSON string that may be cut off."""
    text = raw.decode("utf-8", "ignore")
    for attempt in (text, PARTIAL_ESCAPE.sub("", text)):
        try:
            return str(json.loads(f'"{attempt}"', strict=False))
        except ValueError:
            continue
    return ""


def _of_body(body: Any, snippet: int) -> Dict[str, Any]:
    found = shapes.choices(body)
    reasons = [str(choice["finish_reason"]) for choice in found if choice.get("finish_reason")]
    texts = [(shapes.text(choice), shapes.reasoning(choice)) for choice in found]
    told = any(reasoning or thinking.in_text(text, True) for text, reasoning in texts) if found else None
    shown = next((text or reasoning for text, reasoning in texts), "")
    return {
        "finish_reason": ",".join(reasons) or None,
        **shapes.tokens(shapes.mapping(body).get("usage")),
        "thinking": told,
        "snippet": shapes.clean(shown, snippet),
    }
