"""The reply as it goes to a client: its head, its framing, and an honest end when the backend breaks off."""

from __future__ import annotations

import asyncio

from modelyard_gateway import answers
from modelyard_gateway.headers import ReplyHead, Request


class Reply:
    """One reply of a backend on its way. Its bytes go on unchanged and at once, the head in one write with the first of them."""

    def __init__(self, transport: asyncio.Transport, request: Request, head: ReplyHead, marks: bytes, close: bool) -> None:
        self._transport = transport
        self.status = head.status
        self.bytes_out = 0
        self.begun = False
        self.must_close = close
        self._head_only = request.method == "HEAD"
        bodiless = head.bodiless or self._head_only
        self._chunked = head.length is None and not bodiless and request.http11
        # Only events can be followed by one more, and only where nobody has been told how long all of it is.
        self._can_add = head.is_stream and head.length is None and head.content_encoding in ("", "identity")
        self._tail = b"\n\n"
        parts = [answers.status_line(head.status), head.lines, marks]
        if self._chunked:
            parts.append(b"Transfer-Encoding: chunked\r\n")
        elif head.length is not None and head.status != 204:
            parts.append(b"Content-Length: %d\r\n" % head.length)
        elif not bodiless:
            self.must_close = True  # HTTP/1.0: the end is where we close
        if self.must_close:
            parts.append(b"Connection: close\r\n")
        elif not request.http11:
            parts.append(b"Connection: keep-alive\r\n")
        parts.append(b"\r\n")
        self._head = b"".join(parts)

    def pass_on(self, payload: bytes, ended: bool) -> None:
        """Send what has come, in one write."""
        self.bytes_out += len(payload)
        if self._chunked:
            if payload:
                self._tail = payload
                data = b"%b%x\r\n%b\r\n%b" % (self._head, len(payload), payload, b"0\r\n\r\n" if ended else b"")
            else:
                data = self._head + b"0\r\n\r\n" if ended else self._head
        else:
            if payload:
                self._tail = payload
            data = self._head + payload if self._head else payload
        self._head = b""
        self.begun = True
        if data:
            self._transport.write(data)

    def break_off(self, status: int, reason: str, message: str) -> None:
        """End what the backend has not ended. An event, or a connection that breaks, shows the client that it is not whole."""
        self.must_close = True
        if not self._can_add or self._transport.is_closing():
            self._transport.abort()
            return
        # An event that came only in part is ended first, so that ours is one of its own.
        gap = b"" if self._tail.endswith((b"\n\n", b"\r\n\r\n")) else b"\n\n"
        self.pass_on(gap + answers.error_event(status, reason, message), True)
