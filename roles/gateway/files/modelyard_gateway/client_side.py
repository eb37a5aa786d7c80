"""Connections of clients: one exchange after the other, and an end for each connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Optional, cast

import httptools

from modelyard_gateway import answers, descriptors, headers, routes
from modelyard_gateway.answers import Refused
from modelyard_gateway.exchange import Exchange
from modelyard_gateway.incoming import Incoming
from modelyard_gateway.way import BACKEND_SLOW, NO_BACKEND_YET

if TYPE_CHECKING:
    from modelyard_gateway.gateway import Gateway

#: Why nothing is read from a client for the moment, beside the reasons of way.py.
NEXT_WAITS = 1
#: A refused client that still sends is listened to for so long, or it would not get to see our answer. Seconds.
LINGER_S = 5.0
#: The same for one that was turned away because there is no room: its descriptor is needed.
TURNED_AWAY_S = 1.0


class Client(Incoming, asyncio.Protocol):
    """One connection of a client. Requests that come ahead of time wait, and are answered in their order."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.slow = False  # has not taken yet what was written
        self._holds = 0
        self._advancing = False
        self._since = 0.0  # when the present pause, or the head, began
        self._turned_away = False
        self._end_by = 0.0  # when a connection that is being closed is cut; 0: it is not being closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio."""
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else "unknown"
        self._since = self.gateway.now()
        self.gateway.clients.add(self)
        if self.gateway.descriptors.full(len(self.gateway.clients)):
            self._turn_away()

    def data_received(self, data: bytes) -> None:
        """Part of asyncio."""
        if self._deaf:
            return
        if not self._overhead and self.current is None:
            self._since = self.gateway.now()
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(Refused(501, "upgrade_not_supported", "Upgrade and CONNECT are not served here", close=True))
        except httptools.HttpParserError as error:
            self._refuse(self._reason(error))
        else:
            if self._overhead > headers.HEAD_LIMIT:
                in_body = self._reading is not None
                text = "The chunks of the body have lines without end" if in_body else "The head of the request is too large"
                code = "bad_chunks" if in_body else "headers_too_large"
                self._refuse(Refused(400 if in_body else 431, code, text, close=True))
        if self.current is not None:
            self.current.flush()

    def eof_received(self) -> None:
        """Part of asyncio. A client that closes its side is taken as gone: nearly all of them are, and their slot is needed."""
        self._leave()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Part of asyncio."""
        self.gateway.clients.discard(self)
        self.gateway.descriptors.turned_away -= self._turned_away
        self._leave()

    def pause_writing(self) -> None:
        """Part of asyncio."""
        self.slow = True
        if self.current is not None:
            self.current.client_flow(True)

    def resume_writing(self) -> None:
        """Part of asyncio."""
        self.slow = False
        if self.current is not None:
            self.current.client_flow(False)

    # For the exchange

    def hold(self, reason: int) -> None:
        """Read nothing more until all reasons are gone."""
        if not self._holds and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds |= reason

    def let_go(self, reason: int) -> None:
        """This reason is gone."""
        if self._holds & reason:
            self._holds &= ~reason
            if not self._holds and not self.transport.is_closing():
                self.transport.resume_reading()

    def exchange_over(self, exchange: Exchange, close: bool) -> None:
        """It is answered. What is still missing of its request is thrown away when it comes."""
        self.let_go(BACKEND_SLOW | NO_BACKEND_YET)
        self._since = self.gateway.now()
        if close:
            self.close(rude=not exchange.complete)
        elif exchange.complete and exchange is self.current:
            self._advance()

    def close(self, rude: bool = False, linger_s: float = LINGER_S) -> None:
        """Close when all is written. `rude`: it may still be sending, so it is listened to for a moment (`linger_s`)."""
        if self._end_by:
            return
        self._deaf = True
        self._ahead.clear()
        if rude and not self.transport.is_closing() and self.transport.can_write_eof():
            self._end_by = self.gateway.now() + linger_s
            self.let_go(~0)
            self.transport.write_eof()
        else:
            self._end_by = self.gateway.now() + self.gateway.settings.timeout_s
            self.transport.close()

    def check_time(self, now: float) -> None:
        """End what takes too long."""
        settings, current = self.gateway.settings, self.current
        if self._end_by:
            if now >= self._end_by:
                self.transport.abort()
        elif current is None:
            if self._overhead and now - self._since >= settings.header_timeout_s:
                text = f"The head of the request was not complete within {settings.header_timeout_s:g} s"
                self._refuse(Refused(408, "request_timeout", text, close=True))
            elif now - self._since >= settings.idle_timeout_s or self.gateway.running.leaves(now):
                self._close_idle()
        elif not current.over:
            current.check_time(now)
        elif now - self._since >= settings.header_timeout_s:
            self.transport.abort()

    @property
    def asks(self) -> bool:
        """Has a request come, or the beginning of its head?"""
        return not self._end_by and (self.current is not None or self._overhead > 0)

    def _close_idle(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # it has not even taken the last answer
        else:
            self.close()

    def _receive(self, exchange: Exchange) -> None:
        self._reading = exchange
        if self.current is None:
            self.current = exchange
            exchange.begin()
        else:
            self._ahead.append(exchange)
            self.hold(NEXT_WAITS)

    def _advance(self) -> None:
        if self._advancing:  # an answer at once: the loop below goes on with the next
            return
        self._advancing = True
        try:
            while self.current is None or (self.current.over and self.current.complete):
                self.current = None
                if not self._ahead:
                    if self.gateway.stopping:
                        self.close()
                    else:
                        self.let_go(NEXT_WAITS)
                    break
                self.current = self._ahead.popleft()
                self.current.begin()
                self.current.flush()
        finally:
            self._advancing = False

    def _turn_away(self) -> None:
        """There is no descriptor for it: it is told at once, before it has asked."""
        gateway, known = self.gateway, self.gateway.descriptors
        gateway.count("refused_connections")
        first = known.first_refusal()
        if first:
            gateway.say(first)
        if known.turned_away >= descriptors.TOLD:
            self.transport.abort()
            return
        self._turned_away = True
        known.turned_away += 1
        refused = answers.error(503, "out_of_resources", "The gateway has no descriptors left for more clients")
        marks = answers.marks(headers.new_id(), None)
        self.transport.write(answers.whole(503, refused, marks, True, routes.RETRY_AFTER_S))
        self.close(rude=True, linger_s=TURNED_AWAY_S)

    def _leave(self) -> None:
        self._deaf = True
        self._ahead.clear()
        if self.current is not None:
            self.current.client_gone()
