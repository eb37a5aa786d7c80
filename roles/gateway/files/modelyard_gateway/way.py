"""The way of one request to a backend: whose turn it is, a connection, and another try where that is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Set

from modelyard_gateway import headers, routes, uplink
from modelyard_gateway.answers import Refused
from modelyard_gateway.backends import Backend
from modelyard_gateway.headers import ReplyHead, Request
from modelyard_gateway.record import Record
from modelyard_gateway.server_side import ConnectError, Connection

if TYPE_CHECKING:
    from modelyard_gateway.client_side import Client
    from modelyard_gateway.gateway import Gateway

#: Why nothing is read from a client for the moment (client_side.py).
BACKEND_SLOW, NO_BACKEND_YET = 2, 4


class Way:
    """The part of an exchange that looks for a backend and keeps the connection to it. `waiting`: in the queue for one."""

    def __init__(self, gateway: Gateway, client: Client, request: Request) -> None:
        self.gateway, self.client, self.request = gateway, client, request
        self.arrived = self.touched = gateway.now()
        self.over = self.waiting = self.listing = False
        self.backend: Optional[Backend] = None
        self.last_backend: Optional[str] = None
        self.record = Record(gateway, client.address, request)
        self._up = uplink.Uplink(request)
        self._connection: Optional[Connection] = None
        self._client_slow = self._backend_slow = False
        self._tried: Set[str] = set()

    def flush(self) -> None:
        """Send to the backend what is there."""
        raise NotImplementedError

    def refuse(self, refused: Refused) -> None:
        """Answer with an error."""
        raise NotImplementedError

    def on_head(self, head: ReplyHead) -> None:
        """The head of the reply has come."""
        raise NotImplementedError

    def on_data(self, payload: bytes, ended: bool) -> None:
        """Bytes of the reply have come."""
        raise NotImplementedError

    def on_broken(self, why: str) -> None:
        """The connection to the backend is gone before the reply was complete."""
        raise NotImplementedError

    def on_flow(self, slow: bool) -> None:
        """The backend reads slowly, or fast again."""
        self.touched = self.gateway.now()
        self._backend_slow = slow
        (self.client.hold if slow else self.client.let_go)(BACKEND_SLOW)

    def turn(self, backend: Backend) -> None:
        """A backend is free and has been picked for it."""
        self.waiting = False
        self.record.queued = self.gateway.now() - self.arrived
        self._use(backend)
        self.flush()

    def _seek(self) -> None:
        backend = self.gateway.backends.pick(self.gateway.now(), self._tried, beyond_limit=self.listing)
        if backend is not None:
            self._use(backend)
        elif any(b.able and b.name not in self._tried for b in self.gateway.backends.all):
            self._wait()
        else:
            raise routes.none_there(self.gateway)

    def _wait(self) -> None:
        if not self.gateway.queue.put(self, self.record.key or self.client.address):
            raise Refused(429, "queue_full", routes.full(self.gateway), retry_after_s=routes.RETRY_AFTER_S)
        self.waiting = True
        self.gateway.count("queued")

    def _use(self, backend: Backend) -> None:
        self.backend, self.last_backend = backend, backend.name
        self.record.tries += 1
        self._tried.add(backend.name)
        # A connection that has answered HEAD is closed afterwards, so an idle one is not spent on it.
        connection = None if self.request.method == "HEAD" else self.gateway.pool.take(backend)
        if connection is None:
            self._connect(backend)
        else:
            self._attach(connection)

    def _connect(self, backend: Backend) -> None:
        self.gateway.spawn(self._connected(backend))

    async def _connected(self, backend: Backend) -> None:
        try:
            connection = await self.gateway.pool.connect(backend, self.gateway.settings.connect_timeout_s)
        except ConnectError as error:
            if not self.over and self.backend is backend:
                self._not_connected(backend, error)
            return
        if self.over or self.backend is not backend:
            self.gateway.pool.give(connection)
            return
        self._attach(connection)
        self.flush()

    def _not_connected(self, backend: Backend, error: ConnectError) -> None:
        if error.kind == "ours":
            self.refuse(Refused(503, "out_of_resources", error.why, retry_after_s=routes.RETRY_AFTER_S))
            return
        self.gateway.failed(backend, error.kind, error.why)
        self._elsewhere(None)
        self.flush()

    def _attach(self, connection: Connection) -> None:
        self._connection = connection
        self.touched = self.gateway.now()
        connection.begin(self, self.request.method == "HEAD")
        self.client.let_go(NO_BACKEND_YET)
        if self._client_slow:
            connection.transport.pause_reading()

    def _elsewhere(self, otherwise: Optional[Refused]) -> None:
        """Try another backend; when there is none, answer with `otherwise`, or with why there is none."""
        self._release(reusable=False)
        self._up.rewind()
        try:
            self._seek()
            self.gateway.count("retries")
        except Refused as refused:
            self.refuse(otherwise or refused)

    def _head(self) -> bytes:
        gateway = self.gateway
        address = self.backend.address if self.backend is not None else ""
        return headers.to_backend(self.request, self.client.address, address, gateway.keys is not None, gateway.backend_key)

    def _release(self, reusable: bool) -> None:
        self._flows_again()
        connection, self._connection = self._connection, None
        backend, self.backend = self.backend, None
        if connection is not None:
            if self._client_slow and not connection.transport.is_closing():
                connection.transport.resume_reading()
            connection.end(reusable)
        if backend is not None:
            self.gateway.release(backend)

    def _flows_again(self) -> None:
        # The connection that was slow is given up, and would never say that it is fast again.
        if self._backend_slow:
            self.on_flow(False)
