"""The life of one request: what its client sends, what its backend answers, and an end in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from modelyard_gateway import answers, headers, routes, uplink
from modelyard_gateway.answers import Refused
from modelyard_gateway.headers import ReplyHead, Request
from modelyard_gateway.reply import Reply
from modelyard_gateway.way import NO_BACKEND_YET, Way

if TYPE_CHECKING:
    from modelyard_gateway.client_side import Client
    from modelyard_gateway.gateway import Gateway

#: Statuses by which a backend says that it has not even begun.
REFUSALS = frozenset({429, 503})
#: The list of models is asked with more patience for the next backend than for this one. Seconds.
LISTING_TIMEOUT_S = 5.0


class Exchange(Way):
    """One request and its reply. `over`: answered, or there is nobody to answer. `complete`: the request has come in whole."""

    def __init__(self, gateway: Gateway, client: Client, request: Request) -> None:
        super().__init__(gateway, client, request)
        self.complete = False
        self._reply: Optional[Reply] = None
        self._refused: Optional[Refused] = None
        self._begun = self._again = False

    # From the client

    def begin(self) -> None:
        """Its turn has come on its connection."""
        self._begun = True
        self._client_slow = self.client.slow
        self.gateway.exchanges.add(self)
        self.gateway.count("requests")
        try:
            if self._refused is not None:
                raise self._refused
            body = routes.local(self.gateway, self.request)
            if body is not None:
                self.record.wanted = False
                self._answer(200, body, False, 0)
                return
            self.record.key = routes.admit(self.gateway, self.request)
            self.listing = routes.is_listing(self.request)
            if self.gateway.queue and not self.listing:
                self._wait()  # nobody overtakes those who wait
            else:
                self._seek()
        except Refused as refused:
            self.refuse(refused)
            return
        if self.request.waits_for_continue and not self.complete and not self.over:
            self.client.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def body(self, data: bytes) -> None:
        """A part of the request's body."""
        self.touched = self.gateway.now()
        self.record.body(data)
        if self.record.bytes_in > self.gateway.body_limit:
            if self.over:
                self.client.transport.abort()
            else:
                self.refuse(routes.too_large(self.gateway))
        elif not self.over:
            self._up.add(data)

    def flush(self) -> None:
        """Send to the backend what is there, in one write."""
        if self.over:
            return
        if self._connection is None:
            if self._up.waiting_bytes > uplink.KEEP:
                self.client.hold(NO_BACKEND_YET)
            return
        data = self._up.take(self.complete, self._head)
        if data:
            self._connection.transport.write(data)

    def refuse(self, refused: Refused) -> None:
        """Answer with an error, now or when its turn comes."""
        if not self._begun:
            self._refused = refused
            return
        if self.over:
            return
        self.record.error = refused.message
        if self._reply is not None and self._reply.begun:
            self.record.truncated = True
            self._reply.break_off(refused.status, refused.reason, refused.message)
            self._finish(self._reply.status, True)
            return
        self.gateway.count("refused")
        body = answers.error(refused.status, refused.reason, refused.message)
        self._answer(refused.status, body, refused.close, refused.retry_after_s)

    def client_gone(self) -> None:
        """The client has left: the backend is told at once, by a closed connection."""
        if self.over or not self._begun:
            return
        self.gateway.count("client_gone")
        self.record.client_gone = True
        if self.backend is not None:
            self.gateway.failed(self.backend, "client_gone", "the client has left")
        self._finish(self._reply.status if self._reply is not None else None, True)

    def client_flow(self, slow: bool) -> None:
        """The client reads slowly, or fast again."""
        self.touched = self.gateway.now()
        self._client_slow = slow
        if self._connection is not None:
            transport = self._connection.transport
            if not transport.is_closing():
                (transport.pause_reading if slow else transport.resume_reading)()

    def check_time(self, now: float) -> None:
        """End it when it, or the one it waits for, takes too long."""
        settings = self.gateway.settings
        silent = now - self.touched
        if self.waiting:
            if not self.gateway.backends.any_able():
                self.refuse(routes.none_there(self.gateway))
            elif now - self.arrived >= settings.queue_timeout_s:
                text = f"No backend was free within {settings.queue_timeout_s:g} s"
                self.refuse(Refused(503, "queue_timeout", text, retry_after_s=routes.RETRY_AFTER_S))
        elif self._client_slow:
            if silent >= settings.timeout_s:
                self.record.error = f"the client has read nothing for {settings.timeout_s:g} s"
                self.client.transport.abort()
        elif not self.complete and not self._backend_slow:
            if silent >= settings.timeout_s:
                text = f"Nothing more of the request came within {settings.timeout_s:g} s"
                self.refuse(Refused(408, "request_timeout", text, close=True))
        elif silent >= (LISTING_TIMEOUT_S if self.listing else settings.timeout_s):
            self._timed_out(silent)

    # From the connection to the backend

    def on_head(self, head: ReplyHead) -> None:
        """The head of the reply has come."""
        backend = self.backend
        assert backend is not None
        refusal = head.status in REFUSALS or (self.listing and head.status >= 500)
        if refusal and self._up.can_repeat and self.gateway.backends.other_than(self._tried):
            self.gateway.answered(backend, head.status)
            self._elsewhere(None)
            self.flush()
            return
        close = not self.request.keep_alive or self.gateway.stopping
        marks = answers.marks(self.request.id, backend.name)
        self._reply = Reply(self.client.transport, self.request, head, marks, close)
        self.record.reply(head)

    def on_data(self, payload: bytes, ended: bool) -> None:
        """Bytes of the reply have come."""
        reply, backend = self._reply, self.backend
        if reply is None or backend is None:
            return
        self.touched = now = self.gateway.now()
        self.gateway.backends.moved(backend, now, self.gateway.unix(now))
        if payload:
            self.record.payload(payload, now)
        reply.pass_on(payload, ended)
        if ended:
            self.gateway.answered(backend, reply.status)
            self._finish(reply.status, reply.must_close, reusable=self._up.all_sent)

    def on_broken(self, why: str) -> None:
        """The connection to the backend is gone before the reply was complete."""
        backend, connection = self.backend, self._connection
        self._connection = None
        if backend is None or self.over:
            return
        if self._reply is not None and self._reply.begun:
            self.gateway.failed(backend, "truncated", why)
            self.gateway.count("truncated")
            self.refuse(Refused(502, "backend_broken", f"The reply of {backend.name} broke off: {why}"))
            return
        self._reply = None
        repeatable = self.request.method in headers.REPEATABLE and self._up.can_repeat
        if repeatable and connection is not None and connection.used and not self._again:
            self._again = True  # it was idle for too long, perhaps; that says nothing about the backend
            self._flows_again()
            self._up.rewind()
            self._connect(backend)
            return
        self.gateway.failed(backend, "broken", why)
        refused = Refused(502, "backend_broken", f"{backend.name} gave no reply: {why}")
        if repeatable:
            self._elsewhere(refused)
            self.flush()
        else:
            self.refuse(refused)

    # Steps

    def _timed_out(self, silent: float) -> None:
        backend = self.backend
        if backend is None:
            return
        self.gateway.failed(backend, "timeout", f"no byte of a reply for {silent:.1f} s")
        refused = Refused(504, "backend_timeout", f"{backend.name} gave no byte of its reply for {silent:.1f} s")
        if self.listing and self._reply is None:
            self._elsewhere(refused)
            self.flush()
        else:
            self.refuse(refused)

    def _answer(self, status: int, body: bytes, close: bool, retry_after_s: int) -> None:
        close = close or not self.request.keep_alive or self.gateway.stopping
        marks = answers.marks(self.request.id, self.last_backend)
        data = answers.whole(status, body, marks, close, retry_after_s, head_only=self.request.method == "HEAD")
        self.record.bytes_out = len(body)
        self.client.transport.write(data)
        self._finish(status, close)

    def _finish(self, status: Optional[int], close: bool, reusable: bool = False) -> None:
        self.over = True
        if self.waiting:
            self.waiting = False
            self.gateway.queue.remove(self)
        if self._reply is not None:
            self.record.bytes_out = self._reply.bytes_out
        self.gateway.exchanges.discard(self)
        self.record.close(status, self.last_backend, self.backend)
        self._release(reusable)
        self._up.drop()
        self.client.exchange_over(self, close)
