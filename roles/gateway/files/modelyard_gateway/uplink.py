"""A request on its way to a backend: its framing, and what is kept of it for another try. Pure."""

from __future__ import annotations

from typing import Callable, List, Optional

from modelyard_gateway.headers import Request

#: So many bytes of a body are kept, so that it can be sent once more to another backend. A longer one is sent only once.
KEEP = 1024 * 1024


class Uplink:
    """What is to be sent of one request. The length is told to the backend whenever it is known by then."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._unsent: List[bytes] = []
        self._kept: Optional[List[bytes]] = []
        self._size = 0
        self.waiting_bytes = 0
        self._begun = self._chunked = self.all_sent = False

    @property
    def can_repeat(self) -> bool:
        """Whether all that has come of the body is still there."""
        return not self._begun or self._kept is not None

    def add(self, data: bytes) -> None:
        """A part of the body has come."""
        self._unsent.append(data)
        self.waiting_bytes += len(data)
        self._size += len(data)
        if self._kept is not None:
            if self._size > KEEP:
                self._kept = None
            else:
                self._kept.append(data)

    def rewind(self) -> None:
        """Begin again from the start of the request, on another connection. Only while `can_repeat`."""
        if self._begun:
            self._unsent = list(self._kept or ())
            self.waiting_bytes = sum(map(len, self._unsent))
        self._begun = self._chunked = self.all_sent = False

    def take(self, complete: bool, head: Callable[[], bytes]) -> bytes:
        """What is to be written now. `complete`: nothing will be added any more. `head`: makes the head, where that is due."""
        parts: List[bytes] = []
        if not self._begun:
            self._begun = True
            parts += (head(), self._framing(complete))
        elif self.all_sent or not (self._unsent or complete):
            return b""
        for data in self._unsent:
            if self._chunked:
                parts += (b"%x\r\n" % len(data), data, b"\r\n")
            else:
                parts.append(data)
        self._unsent, self.waiting_bytes = [], 0
        if complete:
            self.all_sent = True
            if self._chunked:
                parts.append(b"0\r\n\r\n")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop(self) -> None:
        """Nothing of it is needed any more."""
        self._unsent, self._kept = [], None

    def _framing(self, complete: bool) -> bytes:
        length = self._request.length
        if length is None and not complete:
            self._chunked = True
            return b"Transfer-Encoding: chunked\r\n\r\n"
        if length is None:
            length = self.waiting_bytes
        if length or self._request.method in ("POST", "PUT", "PATCH"):
            return b"Content-Length: %d\r\n\r\n" % length
        return b"\r\n"
