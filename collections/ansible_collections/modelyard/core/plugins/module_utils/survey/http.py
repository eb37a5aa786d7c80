"""Requests to an engine on this host: no proxy, no redirect, a limit in time and size, errors as data."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any, Dict, Optional, Tuple

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
    began = time.monotonic()
    answer: Dict[str, Any] = {"status": 0, "body": None, "error": ""}
    connection = http.client.HTTPConnection(reachable(address[0]), address[1], timeout=timeout_s)
    try:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        raw = response.read(LIMIT_BYTES).decode("utf-8", "replace")
        answer["status"] = response.status
        try:
            answer["body"] = json.loads(raw)
        except ValueError:
            answer["body"] = raw
    except ConnectionRefusedError:
        answer["error"] = "refused"
    except socket.timeout:
        answer["error"] = "timeout"
    except (OSError, http.client.HTTPException) as exc:
        answer["error"] = f"{type(exc).__name__}: {exc}"
    finally:
        connection.close()
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


def status(address: Tuple[str, int], path: str, timeout_s: float = 2.0) -> int:
    """The status code of a GET; 0 when there was no answer."""
    return int(request(address, "GET", path, timeout_s=timeout_s)["status"])
