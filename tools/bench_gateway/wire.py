"""One HTTP connection of the load generator: requests one after the other, as little work per byte as Python allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

clock = time.perf_counter
#: What has not ended by then has failed.
CONNECT_LIMIT_S = 10


class Reply:
    """What came back. Times are of time.perf_counter()."""

    __slots__ = ("began", "broken", "ended", "marks", "status", "tail")

    def __init__(self) -> None:
        self.began = clock()
        self.ended = 0.0
        self.status = 0
        #: Why there is no whole reply; empty when there is one.
        self.broken = ""
        #: (when, events) of each read that had events of a stream in it.
        self.marks: list[tuple[float, int]] = []
        self.tail = b""

    @property
    def good(self) -> bool:
        """Is it a whole 200?"""
        return self.status == 200 and not self.broken


class Wire(asyncio.Protocol):
    """A connection. `ended(wire, reply)` is called once for each request, whatever becomes of it."""

    def __init__(self, ended: Callable[[Wire, Reply], None]) -> None:
        self.on_end = ended
        self.transport: Any = None
        self.reply: Reply | None = None
        self.open = False
        self.head = b""
        self.left = 0

    def connection_made(self, transport: Any) -> None:
        """Connected."""
        self.transport, self.open = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        """A request in work has failed then."""
        self.open = False
        if self.reply:
            self.finish(str(exc or "closed before the end"))

    def ask(self, request: bytes) -> None:
        """Send a request; the time begins now."""
        self.reply = Reply()
        self.head = b""
        self.transport.write(request)

    def finish(self, broken: str = "") -> None:
        """The reply is over."""
        reply, self.reply = self.reply, None
        if reply:
            reply.broken, reply.ended = broken, clock()
            self.on_end(self, reply)

    def data_received(self, data: bytes) -> None:
        """Count events and find the end."""
        reply = self.reply
        if reply is None:
            return
        if not reply.status:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            data = self.head[end + 4 :]
            lower = self.head[:end].lower()
            reply.status = int(lower[9:12])
            if b"connection: close" in lower:
                self.open = False
            at = lower.find(b"content-length:")
            self.left = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else -1
        if self.left >= 0:
            self.left -= len(data)
            if self.left <= 0:
                self.finish()
            return
        seen = reply.tail + data
        events = seen.count(b"data:")
        if events:
            reply.marks.append((clock(), events))
        reply.tail = seen[-4:]
        if seen.endswith(b"0\r\n\r\n"):
            self.finish()


async def connect(host: str, port: int, ended: Callable[[Wire, Reply], None]) -> Wire:
    """A new connection; raises OSError or TimeoutError."""
    loop = asyncio.get_running_loop()
    _, wire = await asyncio.wait_for(loop.create_connection(lambda: Wire(ended), host, port), CONNECT_LIMIT_S)
    return wire


def request(port: int, body: bytes, headers: dict[str, str]) -> bytes:
    """The bytes of a POST to the chat API."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{lines}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
