"""Heads of requests and replies: what is refused, what is dropped on the way, and what is added. Pure functions.

llhttp has refused already what is no HTTP: two Content-Lengths, a length beside a transfer coding, folded lines (httptools 0.5
makes one line of those, with a space, which is as good). What matters most is looked at here once more, because it is what one
server must not read otherwise than the next.
"""

from __future__ import annotations

import re
from os import urandom
from typing import List, NamedTuple, Optional, Sequence, Tuple

from modelyard_gateway.answers import Refused

Headers = Sequence[Tuple[bytes, bytes]]

#: Bytes of a request's head, lines of it, and bytes of its target. llhttp has no limits.
HEAD_LIMIT, LINES_LIMIT, TARGET_LIMIT = 64 * 1024, 100, 16 * 1024
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Requests that may be sent twice without doing anything twice.
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
_REQUEST_DROPS = _HOP | {b"content-length", b"expect", b"x-request-id", b"x-forwarded-for"}
_REPLY_DROPS = _HOP | {b"content-length", b"x-request-id", b"x-backend"}
_TARGET = re.compile(rb"/[!-~]*")
_SANE_ID = re.compile(rb"[!-~]{1,128}")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Request(NamedTuple):
    """The head of a request. `length`: of its body as announced; None when it is chunked. `lines`: what the backend may see."""

    method: str
    target: bytes
    http11: bool
    keep_alive: bool
    id: str
    length: Optional[int] = 0
    waits_for_continue: bool = False
    content_type: str = ""
    authorization: bytes = b""
    forwarded_for: bytes = b""
    lines: Headers = ()
    host: bool = False

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition(b"?")[0].decode("latin-1")


def new_id() -> str:
    """An id for a request that has none."""
    return urandom(16).hex()


def request(method: str, target: bytes, http11: bool, keep_alive: bool, headers: Headers) -> Request:
    """The head as the gateway uses it. Raises Refused when it must not go on."""
    if method not in METHODS:
        raise Refused(
            405 if method == "TRACE" else 501, "method_not_supported", f"The method {method} is not served here", close=True
        )
    if not _TARGET.fullmatch(target):
        raise Refused(400, "bad_target", "The request target must be a path that begins with /", close=True)
    length: Optional[int] = None
    coding = ids = forwarded = b""
    content_type, authorization = b"", b""
    hosts = 0
    expect = False
    listed: List[bytes] = []
    lines: List[Tuple[bytes, bytes]] = []
    for name, value in headers:
        if _CONTROL.search(value):
            raise Refused(400, "bad_header", f"The header {name.decode('latin-1')} has control characters in it", close=True)
        if b" " in name:  # httptools 0.5 lets it pass; the next server might take it for the name without it
            raise Refused(400, "bad_header", f"The header {name.decode('latin-1')!r} has a space in its name", close=True)
        key = name.lower()
        if key not in _REQUEST_DROPS:
            lines.append((name, value))
            if key == b"host":
                hosts += 1
            elif key == b"content-type":
                content_type = value
            elif key == b"authorization":
                authorization = value
        elif key == b"content-length":
            if length is not None or not _DIGITS.fullmatch(value.strip(b" \t")):
                raise Refused(400, "bad_length", "Content-Length must be there once and be a number", close=True)
            length = int(value)
        elif key == b"transfer-encoding":
            coding = coding + b"," + value if coding else value
        elif key == b"connection":
            listed += [part.strip(b" \t").lower() for part in value.split(b",")]
        elif key == b"upgrade":
            raise Refused(501, "upgrade_not_supported", "Upgrade is not served here", close=True)
        elif key == b"expect":
            if value.strip().lower() != b"100-continue":
                raise Refused(417, "bad_expect", "The only Expect that is served is 100-continue", close=True)
            expect = http11
        elif key == b"x-request-id":
            ids = value
        elif key == b"x-forwarded-for":
            forwarded = forwarded + b", " + value if forwarded else value
    if coding:
        _check_coding(coding, length, http11)
    if hosts > 1 or (http11 and not hosts):
        raise Refused(400, "bad_host", "Host must be there once", close=True)
    return Request(
        method=method,
        target=target,
        http11=http11,
        keep_alive=keep_alive,
        id=ids.decode() if _SANE_ID.fullmatch(ids) else new_id(),
        length=None if coding else length or 0,
        waits_for_continue=expect,
        content_type=content_type.decode("latin-1"),
        authorization=authorization,
        forwarded_for=forwarded,
        lines=_without(lines, listed) if listed else lines,
        host=hosts == 1,
    )


def _check_coding(coding: bytes, length: Optional[int], http11: bool) -> None:
    if length is not None:
        raise Refused(400, "bad_length", "Content-Length and Transfer-Encoding exclude each other", close=True)
    if coding.strip(b" \t").lower() != b"chunked":
        raise Refused(501, "coding_not_supported", "The only Transfer-Encoding that is served is chunked", close=True)
    if not http11:
        raise Refused(400, "bad_coding", "HTTP/1.0 has no Transfer-Encoding", close=True)


def _without(lines: List[Tuple[bytes, bytes]], listed: Sequence[bytes]) -> Headers:
    # Host is what the message is addressed to; nobody can make it a matter of one connection.
    names = frozenset(listed) - {b"close", b"keep-alive", b"host", b""}
    return [(name, value) for name, value in lines if name.lower() not in names] if names else lines


def to_backend(given: Request, client: str, address: str, hide_authorization: bool, key: bytes) -> bytes:
    """The head for the backend, but for how long the body is and the empty line.

    `client`: its address, for X-Forwarded-For. `address`: of the backend, for requests without Host. `key`: the backend's own.
    """
    parts = [given.method.encode(), b" ", given.target, b" HTTP/1.1\r\n"]
    if not given.host:
        parts += (b"Host: ", address.encode(), b"\r\n")
    for name, value in given.lines:
        if (hide_authorization or key) and name.lower() == b"authorization":
            continue
        parts += (name, b": ", value, b"\r\n")
    if key:
        parts += (b"Authorization: Bearer ", key, b"\r\n")
    known = given.forwarded_for + b", " if given.forwarded_for else b""
    parts += (b"X-Forwarded-For: ", known, client.encode(), b"\r\nX-Request-Id: ", given.id.encode(), b"\r\n")
    return b"".join(parts)


class ReplyHead(NamedTuple):
    """The head of a backend's reply. `length`: None when it is not announced. `lines`: what the client may see of it."""

    status: int
    length: Optional[int]
    chunked: bool
    content_type: str
    content_encoding: str
    lines: bytes

    @property
    def bodiless(self) -> bool:
        """Whether replies with this status never have a body."""
        return self.status in (204, 304)

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream of events."""
        return self.content_type.startswith("text/event-stream")


def reply(status: int, headers: Headers) -> ReplyHead:
    """The head as the gateway uses it. ValueError when no two readers would agree on it."""
    length: Optional[int] = None
    coding = b""
    content_type = content_encoding = ""
    listed: List[bytes] = []
    lines: List[Tuple[bytes, bytes]] = []
    for name, value in headers:
        if _CONTROL.search(value):
            raise ValueError("a header has control characters in it")
        if b" " in name:
            raise ValueError("a header has a space in its name")
        key = name.lower()
        if key not in _REPLY_DROPS:
            lines.append((name, value))
            if key == b"content-type":
                content_type = value.decode("latin-1").strip().lower()
            elif key == b"content-encoding":
                content_encoding = value.decode("latin-1").strip().lower()
        elif key == b"content-length":
            if length is not None or not _DIGITS.fullmatch(value.strip(b" \t")):
                raise ValueError("Content-Length is not one number")
            length = int(value)
        elif key == b"transfer-encoding":
            coding = coding + b"," + value if coding else value
        elif key == b"connection":
            listed += [part.strip(b" \t").lower() for part in value.split(b",")]
    if coding and (length is not None or coding.strip(b" \t").lower() != b"chunked"):
        raise ValueError("its Transfer-Encoding is not just chunked")
    shown = b"".join([b"%b: %b\r\n" % line for line in (_without(lines, listed) if listed else lines)])
    return ReplyHead(status, length, bool(coding), content_type, content_encoding, shown)
