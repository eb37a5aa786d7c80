"""What comes in on a connection of a client: parsed, with its limits, and each head becomes an exchange."""

from __future__ import annotations

import traceback
from collections import deque
from typing import TYPE_CHECKING, Deque, List, Optional, Tuple, cast

import httptools

from modelyard_gateway import headers
from modelyard_gateway.answers import Refused
from modelyard_gateway.exchange import Exchange

if TYPE_CHECKING:
    from modelyard_gateway.client_side import Client
    from modelyard_gateway.gateway import Gateway

#: Requests that a client may have sent ahead.
AHEAD_LIMIT = 64


class Incoming:
    """The part of a client's connection that httptools calls. An error of a callback ends the parsing, and `_reason` says it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.address = ""
        self.current: Optional[Exchange] = None  # is being answered
        self._reading: Optional[Exchange] = None  # its body comes in
        self._ahead: Deque[Exchange] = deque()
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._lines: List[Tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._overhead = 0  # bytes since the last of a body
        self._deaf = False  # what still comes is thrown away

    def close(self, rude: bool = False) -> None:
        """Close when all is written. `rude`: the client may still be sending."""
        raise NotImplementedError

    def _receive(self, exchange: Exchange) -> None:
        raise NotImplementedError

    def _advance(self) -> None:
        raise NotImplementedError

    def on_message_begin(self) -> None:
        """A request begins."""
        self._target, self._lines, self._head_bytes = b"", [], 0
        self._reading = None

    def on_url(self, part: bytes) -> None:
        """A part of the target."""
        self._target += part
        if len(self._target) > headers.TARGET_LIMIT:
            raise Refused(414, "uri_too_long", f"The target is longer than {headers.TARGET_LIMIT} bytes", close=True)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head; lines after the body (trailers) are dropped."""
        if self._reading is not None:
            return
        self._head_bytes += len(name) + len(value) + 4
        self._lines.append((name, value))
        if len(self._lines) > headers.LINES_LIMIT or self._head_bytes > headers.HEAD_LIMIT:
            limits = f"{headers.LINES_LIMIT} lines or {headers.HEAD_LIMIT} bytes"
            raise Refused(431, "headers_too_large", f"The head of the request has more than {limits}", close=True)

    def on_headers_complete(self) -> None:
        """The head is complete: what it asks for begins, or waits for the request before it."""
        if len(self._ahead) >= AHEAD_LIMIT:
            raise Refused(400, "too_far_ahead", f"More than {AHEAD_LIMIT} requests were sent ahead of their answers", close=True)
        self._overhead = 0
        method = self._parser.get_method().decode("latin-1")
        http11 = self._parser.get_http_version() != "1.0"
        given = headers.request(method, self._target, http11, self._parser.should_keep_alive(), self._lines)
        self._receive(Exchange(self.gateway, cast("Client", self), given))

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._overhead = 0
        if self._reading is not None:
            self._reading.body(data)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._overhead = 0
        exchange = self._reading
        if exchange is not None:
            exchange.complete = True
            if exchange is self.current and exchange.over:
                self._advance()

    def _refuse(self, refused: Refused) -> None:
        self._deaf = True
        reading = self._reading
        if reading is not None and reading.over and not reading.complete:
            self.close(rude=True)
        elif reading is not None and not reading.complete:
            reading.refuse(refused)
        else:
            known = headers.Request("", self._target[: headers.TARGET_LIMIT], True, False, headers.new_id())
            exchange = Exchange(self.gateway, cast("Client", self), known)
            exchange.refuse(refused)
            self._receive(exchange)

    def _reason(self, error: Exception) -> Refused:
        cause = error.__context__
        if isinstance(cause, Refused):
            return cause
        if cause is not None:
            self.gateway.say("internal error: " + "".join(traceback.format_exception(type(cause), cause, cause.__traceback__)))
            return Refused(500, "internal_error", "The gateway has made a mistake; its log says more", close=True)
        return Refused(400, "bad_request", f"This is no HTTP request that is served here: {error}", close=True)
