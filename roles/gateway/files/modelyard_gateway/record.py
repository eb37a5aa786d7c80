"""What is remembered of one request until its line is written to the result log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from modelyard_gateway.backends import Backend
from modelyard_gateway.headers import ReplyHead, Request
from modelyard_gateway.reply_facts import ReplyFacts
from modelyard_gateway.request_facts import RequestFacts
from modelyard_gateway.result_log import entry

if TYPE_CHECKING:
    from modelyard_gateway.gateway import Gateway


class Record:
    """The figures of one request. Nothing is read in a body when there is no log."""

    def __init__(self, gateway: Gateway, client: str, request: Request) -> None:
        self._gateway, self._client, self._request = gateway, client, request
        self._arrived = gateway.now()
        self._first: Optional[float] = None
        self._asked = RequestFacts(request.content_type) if gateway.log is not None else None
        self._told: Optional[ReplyFacts] = None
        self._is_stream = False
        self.wanted = True
        self.key: Optional[str] = None
        self.queued = 0.0
        self.tries = self.bytes_in = self.bytes_out = 0
        self.truncated = self.client_gone = False
        self.error = ""

    def body(self, data: bytes) -> None:
        """A part of the request's body."""
        self.bytes_in += len(data)
        if self._asked is not None:
            self._asked.feed(data)

    def reply(self, head: ReplyHead) -> None:
        """A reply begins."""
        self._is_stream = head.is_stream
        if self._gateway.log is not None:
            wanted = self._gateway.settings.log
            self._told = ReplyFacts(head.status, head.content_type, head.content_encoding, wanted.snippet, wanted.error_bytes)

    def payload(self, data: bytes, now: float) -> None:
        """A part of the reply's body."""
        if self._first is None:
            self._first = now
        if self._told is not None:
            self._told.feed(data)

    def close(self, status: Optional[int], name: Optional[str], backend: Optional[Backend]) -> None:
        """The request has ended: times go to the backend it ended at, the line to the log."""
        duration = self._gateway.now() - self._arrived
        ttft = self._first - self._arrived if self._first is not None else None
        if backend is not None and status is not None and status < 400 and not self.client_gone:
            backend.duration.observe(duration)
            if ttft is not None and self._is_stream:
                backend.ttft.observe(ttft)
        log = self._gateway.log
        if log is None or not self.wanted:
            return
        facts: dict[str, Any] = {}
        if self._asked is not None:
            facts.update(self._asked.finish())
        facts.pop("max_tokens", None)
        if self._told is not None:
            facts.update(self._told.finish())
        facts.pop("done", None)
        if self.error:
            facts["error"] = self.error
        if self._told is not None:
            facts["stream"] = self._is_stream
        log.write(
            entry(
                self._gateway.unix(self._arrived),
                **facts,
                id=self._request.id,
                path=self._request.path or None,
                client=self._client,
                key=self.key,
                backend=name,
                tries=self.tries,
                status=status,
                queue_s=self.queued,
                ttft_s=ttft,
                duration_s=duration,
                bytes_in=self.bytes_in,
                bytes_out=self.bytes_out,
                truncated=self.truncated,
                client_gone=self.client_gone,
            )
        )
