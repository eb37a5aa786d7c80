"""What the gateway itself answers: errors in OpenAI's shape, as whole replies and as the last event of a stream that broke."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Dict, Optional

TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_supported_error",
    502: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
_PHRASES: Dict[int, str] = {status.value: status.phrase for status in HTTPStatus}


class Refused(Exception):
    """A request that the gateway answers itself, with an error.

    `reason` is for programs. `close`: the connection cannot be used any further. `retry_after_s`: for Retry-After; 0: nothing.
    """

    def __init__(self, status: int, reason: str, message: str, close: bool = False, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.close, self.retry_after_s = close, retry_after_s


def error(status: int, reason: str, message: str) -> bytes:
    """The body of an error. `code` is the status, as vLLM has it; `reason` is one word for programs."""
    kind = TYPES.get(status, "invalid_request_error")
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status, "reason": reason}}).encode()


def error_event(status: int, reason: str, message: str) -> bytes:
    """The last event of a stream that broke."""
    return b"data: " + error(status, reason, message) + b"\n\n"


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` and the end of the line. A status that nobody knows has no words."""
    return f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()


def marks(request_id: str, backend: Optional[str]) -> bytes:
    """The header lines that stand on every reply: whose request it is, and who worked on it."""
    return f"X-Request-Id: {request_id}\r\nX-Backend: {backend or 'none'}\r\n".encode()


def whole(status: int, body: bytes, marks_of_it: bytes, close: bool, retry_after_s: int = 0, head_only: bool = False) -> bytes:
    """A whole reply with a JSON body. `head_only`: the answer to HEAD, which has the length but no body."""
    lines = [status_line(status), b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body), marks_of_it]
    if status == 401:
        lines.append(b"WWW-Authenticate: Bearer\r\n")
    if status == 405:
        lines.append(b"Allow: GET, HEAD\r\n")
    if retry_after_s:
        lines.append(b"Retry-After: %d\r\n" % retry_after_s)
    if close:
        lines.append(b"Connection: close\r\n")
    lines.append(b"\r\n")
    if not head_only:
        lines.append(body)
    return b"".join(lines)
