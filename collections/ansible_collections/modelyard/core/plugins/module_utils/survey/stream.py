"""One streamed request, with the times at which its tokens came. No proxy, a limit in time, errors as data. Never raises."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey import http as client

if TYPE_CHECKING:
    import http.client

LINE_BYTES = 2**20


def ask(address: Tuple[str, int], path: str, body: Dict[str, Any], key: str, timeout_s: float) -> Dict[str, Any]:
    """POST to (host, port): {status, body, error, seconds, backend, ttft_s, gaps_ms, tokens, whole}.

    `backend`: what the answer says under X-Backend. `ttft_s`: until the first piece of text; `gaps_ms`: between two pieces.
    `whole`: the closing [DONE] came. `body` is what an answer without status 200 says. The rest as in http.request.
    """
    import http.client  # noqa: PLC0415  as in http.py

    began = time.monotonic()
    answer: Dict[str, Any] = {"status": 0, "body": None, "error": "", "backend": "", "ttft_s": 0.0, "gaps_ms": [], "whole": False}
    times: List[float] = []
    connection = http.client.HTTPConnection(client.reachable(address[0]), address[1], timeout=timeout_s)
    try:
        connection.request("POST", path, json.dumps(body).encode(), client.headers(key))
        response = connection.getresponse()
        answer.update(status=response.status, backend=response.getheader("X-Backend") or "")
        if response.status == 200:
            answer["whole"] = _read(response, connection, began + timeout_s, times)
        else:
            answer["body"] = response.read(client.LIMIT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException) as exc:
        answer["error"] = client.why(exc)
    finally:
        connection.close()
    answer["seconds"] = round(time.monotonic() - began, 3)
    answer["ttft_s"] = round(times[0] - began, 4) if times else answer["seconds"]
    answer["gaps_ms"] = [round(1000 * (later - earlier), 2) for earlier, later in zip(times, times[1:])]
    answer["tokens"] = len(times)
    return answer


def _read(
    response: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float, times: List[float]
) -> bool:
    """Read events up to the closing one; was it there?"""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout
        if connection.sock is not None:
            connection.sock.settimeout(left)
        line = response.readline(LINE_BYTES)
        if not line:
            return False
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return True
        if _has_text(data):
            times.append(time.monotonic())


def _has_text(data: bytes) -> bool:
    """Does an event bring a piece of text? The first one only says whose turn it is."""
    try:
        delta = json.loads(data)["choices"][0]["delta"]
        return any(delta.get(name) for name in ("content", "reasoning", "reasoning_content"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False
