"""Requests to an engine on this host: no proxy, no redirect, a limit in time and size, errors as data."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

if TYPE_CHECKING:
    import http.client

LIMIT_BYTES = 4 * 2**20


def reachable(host: str) -> str:
    """The address at which a server that listens on `host` answers on its own machine."""
    return "127.0.0.1" if host in ("", "0.0.0.0", "::", "localhost") else host


def request(
    address: Tuple[str, int],
    method: str,
    path: str,
    body: Optional[Dict[str, Any]] = None,
    key: str = "",
    timeout_s: float = 30.0,
) -> Dict[str, Any]:
    """One request to (host, port): {status, body (parsed when it is JSON), seconds, error}. Never raises for the network.

    `status` is 0 when no answer came; `error` then says why: refused, timeout, or the system's words.
    """
    import http.client  # noqa: PLC0415  a survey of a host where nothing runs does without it, and it takes long to load

    began = time.monotonic()
    answer: Dict[str, Any] = {"status": 0, "body": None, "error": ""}
    connection = http.client.HTTPConnection(reachable(address[0]), address[1], timeout=timeout_s)
    try:
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers(key))
        response = connection.getresponse()
        raw = _read(response, connection, began + timeout_s).decode("utf-8", "replace")
        answer["status"] = response.status
        try:
            answer["body"] = json.loads(raw)
        except (ValueError, RecursionError):
            answer["body"] = raw
    except (OSError, ValueError, http.client.HTTPException) as exc:
        answer["error"] = why(exc)
    finally:
        connection.close()
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


def headers(key: str) -> Dict[str, str]:
    """Of a request with a JSON body; the only place where a key goes."""
    named = {"Authorization": f"Bearer {key}"} if key else {}
    return {"Content-Type": "application/json", "Connection": "close", **named}


def why(exc: Exception) -> str:
    """Why no answer came, as the result's `error`."""
    if isinstance(exc, ConnectionRefusedError):
        return "refused"
    if isinstance(exc, socket.timeout):
        return "timeout"
    if isinstance(exc, ValueError) and not isinstance(exc, OSError):
        # Its own words would hold the key.
        return "the API key or the path holds characters that no request can carry"
    return f"{type(exc).__name__}: {exc}"


def _read(response: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float) -> bytes:
    """The body, up to LIMIT_BYTES; a server that only drips is out of time at the same moment as one that is silent."""
    parts, size = [], 0
    while size < LIMIT_BYTES:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout
        if connection.sock is not None:
            connection.sock.settimeout(left)
        part = response.read1(min(65536, LIMIT_BYTES - size))
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def status(address: Tuple[str, int], path: str, timeout_s: float = 2.0) -> int:
    """The status code of a GET; 0 when there was no answer."""
    return int(request(address, "GET", path, timeout_s=timeout_s)["status"])
