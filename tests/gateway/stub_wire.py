"""One connection to a stand-in for vLLM: requests one after the other (part of stub.py)."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import urllib.parse
from typing import Any

from stub_chat import Chat, as_it_came, failure

RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: closing sends RST
COUNTED = ("now", "peak", "count", "done", "aborted", "queued", "connections", "health_asked")
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Unavailable",
}


class Wire(asyncio.Protocol):
    """Reads requests, answers the simple ones itself."""

    def __init__(self, engine: Any, engines: list[Any]) -> None:
        self.engine = engine  # None: the control port
        self.engines = engines
        self.data = bytearray()
        self.chat: Chat | None = None
        self.head = b""
        self.writable = True
        self.counted = self.answering = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.engine:
            self.engine.wires.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.engine:
            return
        self.engine.wires.discard(self)
        if self.chat:
            self.chat.stop()
        if self.counted:
            self.engine.aborted += 1
            self.release()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.chat and self.chat.stalled:
            self.chat.tick()

    def cut(self) -> None:
        """Reset the connection."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()

    def release(self) -> None:
        if self.counted and self.engine:
            self.counted = False
            self.engine.now -= 1

    def data_received(self, data: bytes) -> None:
        self.data += data
        while not self.answering and self.read_one():
            pass

    def read_one(self) -> bool:
        if not self.head:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return False
            self.head = bytes(self.data[: end + 2])
            del self.data[: end + 4]
            lower = self.head.lower()
            self.target = self.head.split(b" ", 2)[1].decode("latin-1")
            self.only_head = self.head.startswith(b"HEAD ")
            self.chunked = b"\r\ntransfer-encoding: chunked" in lower
            self.old = b" http/1.0\r\n" in lower
            self.close = b"\r\nconnection: close" in lower or (self.old and b"keep-alive" not in lower)
            at = lower.find(b"\r\ncontent-length:")
            self.need = int(lower[at + 17 : lower.index(b"\r\n", at + 17)]) if at >= 0 else 0
            if self.engine and self.target.startswith(("/v1/chat/", "/echo")):
                engine, self.counted = self.engine, True
                engine.now += 1
                engine.count += 1
                engine.peak = max(engine.peak, engine.now)
            if b"\r\nexpect: 100-continue" in lower:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self.body()
        if body is None:
            return False
        head, self.head = self.head, b""
        self.answering = True
        self.answer(head, body)
        return True

    def body(self) -> bytes | None:
        if not self.chunked:
            if len(self.data) < self.need:
                return None
            body = bytes(self.data[: self.need])
            del self.data[: self.need]
            return body
        if not self.data.endswith(b"0\r\n\r\n"):  # good enough: no test pipelines after a chunked request
            return None
        parts, at = [], 0
        while True:
            end = self.data.index(b"\r\n", at)
            size = int(self.data[at:end].split(b";")[0], 16)
            if not size:
                break
            if end + 4 + size > len(self.data):
                return None
            parts.append(bytes(self.data[end + 2 : end + 2 + size]))
            at = end + 4 + size
        self.data.clear()
        return b"".join(parts)

    def answer(self, head: bytes, body: bytes) -> None:
        path, _, query = self.target.partition("?")
        engine = self.engine
        if path in ("/stats", "/reset", "/control"):
            self.steering = asyncio.ensure_future(self.steer(path, dict(urllib.parse.parse_qsl(query))))
        elif engine is None:
            self.reply(404, {"detail": "this is the control port"})
        elif path == "/health":
            engine.health_asked += 1
            if engine.health != "hang":
                self.reply(int(engine.health), b"")
        elif engine.mode == "fast500":
            self.reply(500, failure("EngineCore encountered an issue.", "InternalServerError", 500))
        elif engine.mode == "fast503":
            self.reply(503, failure("The server is overloaded.", "ServiceUnavailableError", 503))
        elif engine.mode == "frozen":
            return
        elif path == "/v1/models":
            self.reply(
                200, {"object": "list", "data": [{"id": "stub", "object": "model", "owned_by": "vllm", "max_model_len": 4096}]}
            )
        elif path == "/v1/chat/completions":
            self.chat = Chat(self, head, body)
            engine.enter(self.chat)
        elif path == "/echo":
            self.reply(200, as_it_came(head, body))
        else:
            self.reply(404, {"detail": "Not Found"})

    async def steer(self, path: str, query: dict[str, str]) -> None:
        chosen = [e for e in self.engines if query.get("port", str(e.port)) == str(e.port)]
        query.pop("port", "")
        for engine in chosen:
            if path == "/control":
                await engine.control(**query)
            elif path == "/reset":
                engine.reset()
        self.reply(200, {name: [getattr(e, name) for e in self.engines] for name in COUNTED})

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        """A whole reply. GET, HEAD and POST get the same, but HEAD no body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        start = f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}\r\ncontent-type: application/json\r\n"
        self.transport.write(
            f"{start}content-length: {len(data)}\r\n{lines}\r\n".encode("latin-1") + (b"" if self.only_head else data)
        )
        self.ended()

    def ended(self) -> None:
        """The reply is out: the next request, or the end."""
        if self.counted and self.engine:
            self.engine.done += 1
        self.release()
        self.chat, self.answering = None, False
        if self.close:
            self.transport.close()
        elif self.data:
            asyncio.get_running_loop().call_soon(self.data_received, b"")
