"""Stand-ins for vLLM's HTTP server: several engines with slots in one process, with faults on demand.

usage: stub.py BASE_PORT COUNT SLOTS     (engines on BASE_PORT.., the control port after them; prints one line when all listen)

Engine: GET /health, GET /v1/models, POST /v1/chat/completions (stream or not, stream_options.include_usage), any method /echo.
A reply to a chat is `max_tokens` tokens "t0 ", "t1 ", ... so that a client sees what is missing or out of order. More requests
than slots wait in order of arrival. Fields of the body beside vLLM's own:
  x_ms, x_first_ms      milliseconds between tokens, before the first one (default 0: as fast as it goes)
  x_text                the text of every token instead of "tN "
  x_status              answer with this status and an error body; x_message: its text; x_fields: further fields of a whole reply
  x_die_after N         reset the connection after N tokens; 0: before a byte of the reply
  x_close_early N       the same with a clean end of the connection
  x_hang N              say nothing more after N tokens, until the client goes; x_bad_chunk N: a damaged chunk after N tokens
  x_until_close         a whole reply without a length, ended by closing
  x_headers             true: a whole reply has the request as it came under `x_request`; a dict: further headers of the reply
Control port, and each engine as well (so that a gateway which lets these paths through is seen):
  /reset, /stats -> a list with one figure per engine of each: now, peak (requests whose head has come and whose reply has not
  ended), count, done, aborted (the connection ended before the reply), queued, connections, health_asked
  /control?port=P&health=200|503|hang&slots=N&mode=ok|fast500|frozen|refuse|kill      (without port: all)
  frozen: health 200, no tokens; refuse: stop listening, close idle connections; kill: as refuse, and reset the others
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import struct
import sys
import urllib.parse
from collections import deque
from typing import Any

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


class Engine:
    """One port: what it counts, how it behaves."""

    def __init__(self, port: int, slots: int) -> None:
        self.port, self.slots = port, slots
        self.health, self.mode = "200", "ok"
        self.waiting: deque[Chat] = deque()
        self.wires: set[Wire] = set()
        self.server: asyncio.AbstractServer | None = None
        self.now = self.busy = 0
        self.reset()

    def reset(self) -> None:
        self.peak, self.count, self.done, self.aborted, self.health_asked = self.now, 0, 0, 0, 0

    queued = property(lambda self: len(self.waiting))
    connections = property(lambda self: len(self.wires))

    async def listen(self) -> None:
        if self.server is None:
            loop = asyncio.get_running_loop()
            self.server = await loop.create_server(lambda: Wire(self), "127.0.0.1", self.port, backlog=2048)

    async def control(self, health: str = "", mode: str = "", slots: str = "") -> None:
        self.health, self.mode = health or self.health, mode or self.mode
        self.slots = int(slots or self.slots)
        if self.mode not in ("refuse", "kill"):
            await self.listen()
            return
        if self.server:
            self.server.close()
            self.server = None
        for wire in list(self.wires):
            if mode == "kill":
                wire.cut()
            elif wire.chat is None:
                wire.transport.close()

    def enter(self, chat: Chat) -> None:
        if self.busy < self.slots:
            self.busy += 1
            chat.has_slot = True
            chat.start()
        else:
            self.waiting.append(chat)

    def leave(self, chat: Chat) -> None:
        if not chat.has_slot:
            with contextlib.suppress(ValueError):
                self.waiting.remove(chat)
            return
        self.busy -= 1
        if self.waiting and self.busy < self.slots:
            self.enter(self.waiting.popleft())


ENGINES: list[Engine] = []


class Wire(asyncio.Protocol):
    """One connection: requests one after the other."""

    def __init__(self, engine: Engine | None) -> None:
        self.engine = engine
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
        chosen = [e for e in ENGINES if query.get("port", str(e.port)) == str(e.port)]
        query.pop("port", "")
        for engine in chosen:
            if path == "/control":
                await engine.control(**query)
            elif path == "/reset":
                engine.reset()
        self.reply(200, {name: [getattr(e, name) for e in ENGINES] for name in COUNTED})

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        """A whole reply. GET, HEAD and POST get the same, but HEAD no body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        start = f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{start}content-length: {len(data)}\r\n{lines}\r\n".encode("latin-1") + data)
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


def failure(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def as_it_came(head: bytes, body: bytes) -> dict[str, Any]:
    return {"head": head.decode("latin-1").splitlines(), "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


class Chat:
    """One request for tokens, from its slot to its end."""

    def __init__(self, wire: Wire, head: bytes, body: bytes) -> None:
        self.wire, self.engine, self.head, self.raw = wire, wire.engine, head, body
        self.has_slot = self.stalled = self.over = False
        self.timer: asyncio.TimerHandle | None = None
        self.sent = 0

    def start(self) -> None:
        try:
            self.fields: dict[str, Any] = json.loads(self.raw)
            self.ask = self.fields.get
        except (ValueError, AttributeError):
            self.finish_whole(400, failure("The body is not JSON.", "BadRequestError", 400))
            return
        status = self.ask("x_status")
        if status:
            self.finish_whole(status, failure(self.ask("x_message", f"stub says {status}"), "StubError", status))
            return
        self.tokens = int(self.ask("max_tokens") or self.ask("max_completion_tokens") or 16)
        self.gap = self.ask("x_ms", 0) / 1000
        self.stream = bool(self.ask("stream"))
        faults = ("x_die_after", "x_close_early", "x_hang", "x_bad_chunk")
        self.fault = next((name for name in faults if self.ask(name) is not None), "")
        self.fault_at = int(self.fields[self.fault]) if self.fault else -1
        self.due = asyncio.get_running_loop().time() + self.ask("x_first_ms", 0) / 1000 + self.gap
        self.wait() if self.gap or self.ask("x_first_ms") else self.tick()

    def wait(self) -> None:
        self.timer = asyncio.get_running_loop().call_at(self.due, self.tick)

    def stop(self) -> None:
        """The client went away."""
        if self.timer:
            self.timer.cancel()
        self.leave()

    def leave(self) -> None:
        if not self.over and self.engine:
            self.over = True
            self.engine.leave(self)

    def tick(self) -> None:
        self.stalled = False
        while not self.over:
            if self.sent == self.fault_at and self.faulty():
                return
            if self.sent >= self.tokens:
                self.finish()
                return
            if self.stream:
                if not self.wire.writable:
                    self.stalled = True
                    return
                self.send_token()
            self.sent += 1
            if self.gap:
                self.due += self.gap
                if self.sent < self.tokens:
                    self.wait()
                    return

    def faulty(self) -> bool:
        transport = self.wire.transport
        if self.fault == "x_bad_chunk":
            transport.write(b"zz\r\nnot a chunk\r\n")
            transport.close()
        elif self.fault == "x_close_early":
            transport.close()
        elif self.fault == "x_die_after":
            # What was written shall arrive; then the reset.
            asyncio.get_running_loop().call_later(0.02, self.wire.cut)
        return True

    def text(self, index: int) -> str:
        return str(self.ask("x_text") or f"t{index} ")

    def event(self, data: dict[str, Any]) -> bytes:
        line = b"data: " + json.dumps({**self.base, **data}, separators=(",", ":")).encode() + b"\n\n"
        return b"%x\r\n%b\r\n" % (len(line), line)

    def choice(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return self.event({"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})

    def begin(self) -> bytes:
        self.base = {
            "id": f"chatcmpl-{id(self):x}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": self.ask("model", "stub"),
        }
        more = self.ask("x_headers")
        lines = "".join(f"{name}: {value}\r\n" for name, value in more.items()) if isinstance(more, dict) else ""
        start = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
        return f"{start}{lines}\r\n".encode("latin-1") + self.choice({"role": "assistant", "content": ""})

    def send_token(self) -> None:
        start = b"" if self.sent else self.begin()
        if not self.sent:
            before, after = self.choice({"content": "@"}).split(b"\r\n", 1)[1].split(b"@")
            self.around = before, after[:-2]
        text = json.dumps(self.text(self.sent))[1:-1].encode()
        line = self.around[0] + text + self.around[1]
        self.wire.transport.write(b"%b%x\r\n%b\r\n" % (start, len(line), line))

    def usage(self) -> dict[str, Any]:
        prompt = max(1, len(self.raw) // 4)
        return {"prompt_tokens": prompt, "completion_tokens": self.tokens, "total_tokens": prompt + self.tokens}

    def finish(self) -> None:
        if self.stream:
            end = self.choice({"content": ""}, "length")
            if (self.ask("stream_options") or {}).get("include_usage"):
                end += self.event({"choices": [], "usage": self.usage()})
            self.leave()
            self.wire.transport.write((b"" if self.sent else self.begin()) + end + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            self.wire.ended()
            return
        message = {"role": "assistant", "content": "".join(map(self.text, range(self.tokens)))}
        body = {"id": f"chatcmpl-{id(self):x}", "object": "chat.completion", "created": 1, "model": self.ask("model", "stub")}
        body["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}]
        self.finish_whole(200, {**body, "usage": self.usage(), **self.ask("x_fields", {})})

    def finish_whole(self, status: int, body: dict[str, Any]) -> None:
        self.leave()
        fields = getattr(self, "fields", {})
        more = fields.get("x_headers")
        if more is True:
            body["x_request"] = as_it_came(self.head, self.raw)
        if fields.get("x_until_close"):
            start = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n" % status
            self.wire.transport.write(start + json.dumps(body).encode())
            self.wire.close = True
            self.wire.ended()
            return
        self.wire.reply(status, body, more if isinstance(more, dict) else None)


async def main(base: int, count: int, slots: int) -> None:
    """Listen until the process is ended."""
    ENGINES.extend(Engine(base + index, slots) for index in range(count))
    for engine in ENGINES:
        await engine.listen()
    await asyncio.get_running_loop().create_server(lambda: Wire(None), "127.0.0.1", base + count)
    print(f"engines on {base}-{base + count - 1}, control on {base + count}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*map(int, sys.argv[1:4])))
