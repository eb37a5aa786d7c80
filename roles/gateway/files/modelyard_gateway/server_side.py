"""Connections to backends: one at a time answers one request, and idle ones are kept for the next."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, Dict, List, Optional, Protocol, Set, Tuple, cast

import httptools

from modelyard_gateway import headers
from modelyard_gateway.backends import Backend
from modelyard_gateway.headers import ReplyHead

#: Why a connection fails although nothing is wrong with the backend.
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
OURS = NO_DESCRIPTORS | {errno.ENOMEM, errno.EADDRNOTAVAIL, errno.ENOBUFS}


class Receiver(Protocol):
    """Who gets the reply of a connection."""

    def on_head(self, head: ReplyHead) -> None:
        """The head of the reply."""

    def on_data(self, payload: bytes, ended: bool) -> None:
        """What has come in one go, without framing; `ended`: the reply is complete."""

    def on_broken(self, why: str) -> None:
        """The connection is of no use any more, and the reply was not complete."""

    def on_flow(self, slow: bool) -> None:
        """The backend reads slowly (True), or fast again."""


class ConnectError(Exception):
    """No connection. `kind`: refused, timeout, or `ours` when the gateway itself is short of something."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


class Connection(asyncio.Protocol):
    """One connection to a backend."""

    def __init__(self, pool: Pool, key: Tuple[str, int]) -> None:
        self.pool, self.key = pool, key
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.receiver: Optional[Receiver] = None
        self.used = False  # has answered a request before
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._lines: List[Tuple[bytes, bytes]] = []
        self._payload: List[bytes] = []
        self._head: Optional[ReplyHead] = None
        self._head_only = self._keep = self._ended = self._interim = self._until_close = False
        self._overhead = 0  # bytes since the last of a body: nothing else is without bounds in a reply

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio."""
        self.transport = cast(asyncio.Transport, transport)
        self.pool.open.add(self)

    def begin(self, receiver: Receiver, head_only: bool) -> None:
        """The next reply is for this receiver. `head_only`: it is the answer to HEAD."""
        self.receiver, self._head_only = receiver, head_only
        self._lines, self._head = [], None
        self._ended = self._until_close = False
        self._overhead = 0

    def end(self, reusable: bool) -> None:
        """The receiver needs it no longer."""
        self.receiver = None
        if reusable and self._ended and self._keep and not self.transport.is_closing():
            self.used = True
            self.pool.give(self)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Part of asyncio."""
        if self.receiver is None:
            self.transport.abort()  # nobody has asked for anything
            return
        self._overhead += len(data)
        problem = ""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            problem = f"its reply is no HTTP that can be passed on: {error.__context__ or error}"
        if self._overhead > headers.HEAD_LIMIT * 2:
            problem = "its reply has a head or chunk lines without end"
        receiver = self.receiver
        if receiver is None:
            return
        if self._payload or self._head is not None:
            payload = self._payload[0] if len(self._payload) == 1 else b"".join(self._payload)
            self._payload = []
            receiver.on_data(payload, self._ended)
        if problem and self.receiver is not None:
            self._break(problem)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Part of asyncio."""
        self.pool.forget(self)
        receiver = self.receiver
        if receiver is None:
            return
        if self._until_close and exc is None:
            self._ended = True
            receiver.on_data(b"", True)
        else:
            self._break("it closed the connection" if exc is None else f"the connection broke: {exc}")

    def pause_writing(self) -> None:
        """Part of asyncio."""
        if self.receiver is not None:
            self.receiver.on_flow(True)

    def resume_writing(self) -> None:
        """Part of asyncio."""
        if self.receiver is not None:
            self.receiver.on_flow(False)

    def _break(self, why: str) -> None:
        receiver, self.receiver = self.receiver, None
        self.transport.abort()
        if receiver is not None:
            receiver.on_broken(why)

    # Called by the parser

    def on_message_begin(self) -> None:
        """A reply begins; behind a complete one it is rubbish, and the connection is not used again."""
        if self._ended:
            self._keep = False
            raise ValueError("more came after its end")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head; lines after the body (trailers) are dropped."""
        if self._head is None:
            self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete."""
        status = self._parser.get_status_code()
        if status < 200:
            self._interim, self._lines = True, []
            return
        head = headers.reply(status, self._lines)
        self._overhead = 0
        self._keep = self._parser.should_keep_alive() and not self._head_only
        self._head = head
        if self.receiver is not None:
            self.receiver.on_head(head)
        if self._head_only:
            self._ended = True
        else:
            self._until_close = head.length is None and not head.chunked and not head.bodiless

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._overhead = 0
        if not self._head_only:
            self._payload.append(data)

    def on_message_complete(self) -> None:
        """The reply is complete."""
        if self._interim:
            self._interim = False
        else:
            self._ended = True


class Pool:
    """All connections to backends. There is no limit to their number."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self.open: Set[Connection] = set()
        self._idle: Dict[Tuple[str, int], List[Connection]] = {}
        self._loop = asyncio.get_running_loop()

    def take(self, backend: Backend) -> Optional[Connection]:
        """The idle connection that was used last, or None."""
        idle = self._idle.get((backend.host, backend.port))
        oldest = self._loop.time() - self.idle_s
        while idle:
            connection = idle.pop()
            if connection.idle_since > oldest and not connection.transport.is_closing():
                return connection
            connection.transport.abort()
        return None

    def give(self, connection: Connection) -> None:
        """It is free for the next request."""
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.key, []).append(connection)

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self.open.discard(connection)
        idle = self._idle.get(connection.key, [])
        if connection in idle:
            idle.remove(connection)

    def close_idle(self, older_than_s: float) -> None:
        """Close connections that nobody has used for so long."""
        oldest = self._loop.time() - older_than_s
        for idle in self._idle.values():
            while idle and idle[0].idle_since <= oldest:
                idle.pop(0).transport.abort()

    def close(self) -> None:
        """Close all."""
        for connection in list(self.open):
            connection.transport.abort()

    async def connect(self, backend: Backend, timeout_s: float) -> Connection:
        """A new connection. Raises ConnectError."""
        key = (backend.host, backend.port)

        async def attempt() -> Connection:
            make: Any = self._loop.create_connection(lambda: Connection(self, key), backend.host, backend.port)
            try:
                _, connection = await make
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not any(self._idle.values()):
                    raise
                self.close_idle(0.0)
                await asyncio.sleep(0)  # their descriptors are free with the next turn of the loop
                return await attempt()
            return cast(Connection, connection)

        try:
            return await asyncio.wait_for(attempt(), timeout_s)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise ConnectError("timeout", f"no connection within {timeout_s:g} s") from error
        except OSError as error:
            if error.errno in OURS:
                raise ConnectError("ours", f"the gateway cannot open a connection: {error.strerror}") from error
            refused = error.errno == errno.ECONNREFUSED
            raise ConnectError(
                "refused", "connection refused" if refused else f"no connection: {error.strerror or error}"
            ) from error
