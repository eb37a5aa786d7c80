"""Facts of a stream of events (SSE). Each chunk costs microseconds, because hundreds of streams bring tens of them a second each.

Events are not decoded as they pass. A chunk is looked through for a few words that only matter at the end of a choice or in a
failure; the beginning and the end of the stream are kept, and decoded when it is over.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from modelyard_gateway import reply_shapes as shapes
from modelyard_gateway import thinking
from modelyard_gateway.json_windows import Ends

HEAD = 32 * 1024
TAIL = 16 * 1024
#: Events are looked through when so many bytes of them have come: that costs less than one by one, and nothing waits for it.
GATHER = 16 * 1024
#: A line that is longer is not looked into (all logprobs of a large vocabulary).
LONGEST_LINE = 256 * 1024
DONE = (b"data: [DONE]", b"data:[DONE]")
#: So many characters of the text tell how it begins.
ENOUGH = 64
_DECODE = json.JSONDecoder().raw_decode
# In JSON a quote inside a text has a backslash before it, so the first three can only be keys.
SIGNS = (b'"finish_reason":"', b'"finish_reason": "', b'"error"', b"think>")


class Stream:
    """Fed with the bytes of an event stream."""

    def __init__(self, snippet: int, error_bytes: int) -> None:
        self._events = 0
        self._ends = Ends(HEAD, TAIL)
        self._gathered: List[bytes] = []
        self._size = 0
        self._snippet, self._error_bytes = snippet, error_bytes
        self._rest = b""
        self._skipping = False
        self._reasons: Dict[int, str] = {}
        self._error: Optional[str] = None
        self._opened = self._thought = False

    @property
    def tokens_seen(self) -> int:
        """Data events so far."""
        self._look_through()
        return self._events

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._gathered.append(data)
        self._size += len(data)
        if self._size >= GATHER:
            self._look_through()

    def _look_through(self) -> None:
        """Look through what has been gathered."""
        data = b"".join(self._gathered)
        self._gathered, self._size = [], 0
        self._ends.feed(data)
        if self._rest:
            data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if len(self._rest) > LONGEST_LINE:
            self._rest = b""
            self._skipping = True
        if not end:
            return
        lines = data[:end]
        if self._skipping:  # the rest of a line that was too long
            lines = lines[lines.find(b"\n") + 1 :]
            self._skipping = False
            self._events += 1
        self._events += lines.count(b"\ndata:") + lines.startswith(b"data:")
        self._look(lines)

    def _look(self, lines: bytes) -> None:
        """Decode the lines in which something is to be seen."""
        place = 0
        while True:
            hits = [hit for hit in (lines.find(sign, place) for sign in SIGNS) if hit >= 0]
            if not hits:
                return
            begin, end = lines.rfind(b"\n", 0, min(hits)) + 1, lines.find(b"\n", min(hits))
            place = end + 1 if end >= 0 else len(lines)
            for event in _events([lines[begin:place]]):
                self._note(event)

    def _note(self, event: Mapping[str, Any]) -> None:
        if event.get("error") and self._error is None:
            self._error = json.dumps(event["error"], ensure_ascii=False)[: self._error_bytes]
        for choice in shapes.choices(event):
            index, reason = choice.get("index"), choice.get("finish_reason")
            if isinstance(reason, str):
                self._reasons[index if isinstance(index, int) else 0] = reason
            text = shapes.text(choice)
            if thinking.CLOSE in text and not self._opened:
                self._thought = True
            self._opened = self._opened or thinking.OPEN in text

    def finish(self) -> Dict[str, Any]:
        """The facts; see ReplyFacts."""
        self._look_through()
        if self._rest:
            self._look(self._rest)
        head, tail = self._ends.head(), self._ends.tail()
        last = head + tail if self._ends.size <= HEAD + TAIL else tail[tail.find(b"\n") + 1 :]
        usage: Any = None
        done = False
        for line in reversed(last.split(b"\n")):
            done = done or line.rstrip() in DONE
            if usage is None and b'"usage"' in line:
                usage = next((event["usage"] for event in _events([line]) if event.get("usage")), None)
        told, shown = self._beginning(head)
        if told is None and (self._thought or (done and (shown or self._reasons))):
            told = self._thought
        return {
            "finish_reason": ",".join(self._reasons[index] for index in sorted(self._reasons)) or None,
            **shapes.tokens(usage),
            "thinking": told,
            "snippet": shapes.clean(shown, self._snippet),
            "error": self._error,
            "done": done,
        }

    def _beginning(self, head: bytes) -> Tuple[Optional[bool], str]:
        """(thinking, beginning of the text) as far as the first events tell; None where what follows may tell otherwise."""
        text, reasoning, any_choice = "", "", False
        enough = max(self._snippet, ENOUGH)
        for event in _events(head.split(b"\n")):
            plain = shapes.plain_text(event)
            if plain is not None:
                any_choice = True
                text += plain
            else:
                for choice in shapes.choices(event):
                    any_choice = True
                    if choice.get("index", 0) == 0:
                        text += shapes.text(choice)
                        reasoning += shapes.reasoning(choice)
            if len(text) > enough and len(text.strip()) > enough:
                break
        if not any_choice:
            return None, ""
        told = True if reasoning else thinking.in_text(text, False)
        return told, text or reasoning


def _events(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """The decoded data of lines; what is no whole JSON object is passed over."""
    for line in lines:
        if line.startswith(b"data:"):
            try:
                data = line[5:].strip().decode()
                event, end = _DECODE(data)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and end == len(data):
                yield event
