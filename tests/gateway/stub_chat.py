"""One request for tokens at a stand-in for vLLM, from its slot to its end (part of stub.py)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any


def failure(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def as_it_came(head: bytes, body: bytes) -> dict[str, Any]:
    return {"head": head.decode("latin-1").splitlines(), "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


class Chat:
    """One request for tokens, from its slot to its end."""

    def __init__(self, wire: Any, head: bytes, body: bytes) -> None:
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
