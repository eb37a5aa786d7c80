"""One HTTP connection of the load generator: streamed chats one after the other, with the time of every token.

Raw sockets, because the time of a token is when its bytes arrive, and because a client of many layers would be measured too.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

clock = time.perf_counter
#: The beginning of the body of an error that is kept.
SAID_BYTES = 300
#: A head, or a line of a stream, that is longer than this is no reply of an engine.
LONGEST_BYTES = 4 * 2**20
CONNECT_LIMIT_S = 10.0
#: Fields of a delta that hold what the model says; the names differ by release.
TEXTS = ("content", "reasoning_content", "reasoning", "tool_calls")


class Reply:
    """What came back. Times are of time.perf_counter(), in seconds."""

    __slots__ = ("backend", "began", "ended", "error", "input_tokens", "marks", "output_tokens", "said", "status")

    def __init__(self) -> None:
        self.began = clock()
        self.ended = 0.0
        self.status = 0
        self.backend = ""  # X-Backend: which instance answered
        self.error = ""  # why it is no whole answer; empty for a whole one
        self.said = ""  # the beginning of the body of an error
        self.marks: List[float] = []  # when each part with text came
        self.input_tokens = self.output_tokens = 0


class Body:
    """Takes a body out of what arrives: chunked, of an announced length, or up to the end of the connection."""

    def __init__(self, headers: Dict[bytes, bytes]) -> None:
        self.chunked = b"chunked" in headers.get(b"transfer-encoding", b"").lower()
        length = headers.get(b"content-length", b"")
        self.left = int(length) if length.isdigit() and not self.chunked else None
        self.over = self.left == 0
        self.data = b""
        self.payload = self.skip = 0
        self.trailer = False

    def feed(self, data: bytes) -> bytes:
        """What of it belongs to the body; `over` afterwards says whether that was all. Raises ValueError for a broken framing."""
        if not self.chunked:
            if self.left is not None:
                data = data[: self.left]
                self.left -= len(data)
                self.over = self.left == 0
            return data
        self.data += data
        parts = []
        while self.data and not self.over:
            if self.payload or self.skip:
                piece, self.data = self.data[: self.payload], self.data[self.payload :]
                parts.append(piece)
                self.payload -= len(piece)
                if not self.payload:
                    dropped = min(self.skip, len(self.data))
                    self.data, self.skip = self.data[dropped:], self.skip - dropped
                continue
            line, end, rest = self.data.partition(b"\r\n")
            if not end:
                break
            self.data = rest
            if self.trailer:
                self.over = not line
            else:
                self.payload = int(line.split(b";")[0], 16)
                self.trailer, self.skip = not self.payload, 2 if self.payload else 0
        return b"".join(parts)


class Wire(asyncio.Protocol):
    """A connection. `ask` gives the reply, whatever becomes of it; one request at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.usable = False
        self.reply: Optional[Reply] = None
        self.done: Optional[asyncio.Future[Reply]] = None
        self.body: Optional[Body] = None
        self.head = self.rest = b""
        self.whole = False  # the closing [DONE] came

    def connection_made(self, transport: Any) -> None:
        """Connected."""
        self.transport, self.usable = transport, True

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """A request in work is over with it; one without an announced length may be whole."""
        self.usable = False
        if self.reply is not None:
            until_close = self.body is not None and not self.body.chunked and self.body.left is None
            self._finish("" if until_close and self.whole else "cut off")

    async def ask(self, request: bytes, limit_s: float) -> Reply:
        """Send a request; its time begins now."""
        loop = asyncio.get_running_loop()
        self.reply, self.done = Reply(), loop.create_future()
        self.head, self.rest, self.whole, self.body = b"", b"", False, None
        timer = loop.call_later(limit_s, self._late, limit_s)
        self.transport.write(request)
        try:
            return await self.done
        finally:
            timer.cancel()

    def close(self) -> None:
        """Let go of the connection."""
        self.usable = False
        if self.transport is not None:
            self.transport.abort()

    def _late(self, limit_s: float) -> None:
        self._finish(f"not ended within {limit_s:g} s")
        self.close()

    def _finish(self, error: str) -> None:
        reply, done = self.reply, self.done
        self.reply = None
        if reply is None or done is None or done.done():
            return
        reply.ended = clock()
        if not reply.error:
            reply.error = error
        done.set_result(reply)

    def data_received(self, data: bytes) -> None:
        """Follow the reply."""
        if self.reply is None:
            self.close()  # it speaks without being asked
            return
        try:
            self._take(data)
        except ValueError:
            self._finish("a reply that is no HTTP")
            self.close()

    def _take(self, data: bytes) -> None:
        now = clock()
        if self.body is None:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                if len(self.head) > LONGEST_BYTES:
                    raise ValueError
                return
            self._begin(head)
        assert self.body is not None and self.reply is not None
        text = self.body.feed(data)
        if self.reply.status == 200:
            self._events(text, now)
        elif len(self.reply.said) < SAID_BYTES:
            self.reply.said += text[:SAID_BYTES].decode("utf-8", "replace")
        if self.body.over:
            whole = self.whole or bool(self.reply.error)
            self._finish("" if whole else "a stream without an end")

    def _begin(self, head: bytes) -> None:
        """Status and headers."""
        reply = self.reply
        assert reply is not None
        lines = head.split(b"\r\n")
        reply.status = int(lines[0].split(b" ", 2)[1]) if lines[0].startswith(b"HTTP/1.") else int("")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        reply.backend = headers.get(b"x-backend", b"").decode("latin-1")
        if reply.status != 200:
            reply.error = f"HTTP {reply.status}"
        if b"close" in headers.get(b"connection", b"").lower():
            self.usable = False
        self.body = Body(headers)

    def _events(self, text: bytes, now: float) -> None:
        """The lines of a stream of events that are whole by now."""
        reply = self.reply
        assert reply is not None
        *lines, self.rest = (self.rest + text).split(b"\n")
        if len(self.rest) > LONGEST_BYTES:
            raise ValueError
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            said = line[5:].strip()
            if said == b"[DONE]":
                self.whole = True
                continue
            event = json.loads(said)
            if not isinstance(event, dict):
                raise ValueError
            if "error" in event:
                reply.error, reply.said = "an error in the stream", str(event["error"])[:SAID_BYTES]
            usage = event.get("usage")
            if usage:
                reply.input_tokens = int(usage.get("prompt_tokens") or 0)
                reply.output_tokens = int(usage.get("completion_tokens") or 0)
            choices = event.get("choices")
            if choices and any((choices[0].get("delta") or {}).get(name) for name in TEXTS):
                reply.marks.append(now)


async def connect(address: Tuple[str, int]) -> Wire:
    """A new connection; raises OSError or asyncio.TimeoutError."""
    make: Callable[[], Wire] = Wire
    loop = asyncio.get_running_loop()
    _, wire = await asyncio.wait_for(loop.create_connection(make, address[0], address[1]), CONNECT_LIMIT_S)
    return wire


def request(address: Tuple[str, int], body: Dict[str, Any], key: str) -> bytes:
    """The bytes of a POST to the chat API. Raises ValueError, without the key in it, for a key that no header can carry."""
    data = json.dumps(body).encode()
    if not key.isascii() or not (key + "x").isprintable():
        raise ValueError("the API key holds characters that no HTTP header can carry")
    secret = f"Authorization: Bearer {key}\r\n" if key else ""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n{secret}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode("ascii") + data
