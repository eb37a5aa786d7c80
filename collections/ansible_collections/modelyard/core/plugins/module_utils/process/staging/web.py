"""Asking a hub or a mirror: redirects are followed, a token goes to its own server only, and every answer is data."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Any, Dict, Mapping, Optional

TIMEOUT_S = 60.0
LIMIT_BYTES = 64 * 2**20
#: Answers that may be others a moment later.
PASSING = (408, 409, 425, 429, 500, 502, 503, 504)
#: In place of a status: it answered, and what came was not what was asked for.
WRONG = -1
#: A server's own wish for a pause is kept up to here.
LONGEST_PAUSE_S = 120.0
AGENT = "modelyard"


class Trouble(Exception):
    """No usable answer. `status` 0: none at all; `passing`: worth asking again, after `pause_s`."""

    def __init__(self, words: str, status: int = 0, passing: bool = False, pause_s: float = 0.0) -> None:
        super().__init__(words)
        self.status, self.passing, self.pause_s = status, passing, pause_s


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Like the library's, but a token stays with the server that it is for: hubs send on to stores of others."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Optional[urllib.request.Request]:
        fresh = super().redirect_request(req, fp, code, msg, headers, newurl)
        if fresh is not None and _place(req.full_url) != _place(newurl):
            for name in ("Authorization", "Cookie"):
                fresh.remove_header(name)
        return fresh

    def http_error_308(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Unknown to older Pythons."""
        return self.http_error_301(req, fp, 301, msg, headers)


def _place(url: str) -> Any:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


_opener = urllib.request.build_opener(_Redirects)


def shown(url: str) -> str:
    """An address as it may be printed: without a login, and without the signature that a store's address bears."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, f"***@{host}" if "@" in parts.netloc else host, parts.path, "", ""))


def ask(url: str, headers: Mapping[str, str], method: str = "GET") -> Any:
    """The open answer to a request. Raises Trouble."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": AGENT, **headers}, method=method)
        return _opener.open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as exc:
        with contextlib.closing(exc):
            raise Trouble(_words(exc, url), exc.code, exc.code in PASSING, _pause(exc.headers)) from exc
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise lost(exc, url) from exc


def lost(exc: Exception, url: str) -> Trouble:
    """What a broken connection is, as trouble. A name that nobody knows, or a wrong certificate, is no better in a moment."""
    why = getattr(exc, "reason", exc)
    final = isinstance(exc, ValueError) and not isinstance(exc, OSError)
    final = final or isinstance(why, socket.gaierror) or "CERTIFICATE" in str(why)
    words = "no answer in time" if isinstance(why, socket.timeout) else str(why) or type(why).__name__
    proxies = urllib.request.getproxies()
    through = proxies.get(urllib.parse.urlsplit(url).scheme)
    if through and not urllib.request.proxy_bypass(urllib.parse.urlsplit(url).hostname or ""):
        words += f" (asked through the proxy {shown(through)} of the environment)"
    return Trouble(f"{shown(url)}: {words}", 0, not final, 1.0)


def _words(exc: urllib.error.HTTPError, url: str) -> str:
    said = exc.headers.get("X-Error-Message") or exc.reason or ""
    return f"{shown(url)}: HTTP {exc.code} {said}".strip()


def _pause(headers: Any) -> float:
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, min(float(headers.get("Retry-After")), LONGEST_PAUSE_S))
    return 0.0


def text(url: str, headers: Mapping[str, str]) -> str:
    """The body of an answer. Raises Trouble."""
    with contextlib.closing(ask(url, headers)) as answer:
        try:
            raw: bytes = answer.read(LIMIT_BYTES + 1)
        except (OSError, http.client.HTTPException) as exc:
            raise lost(exc, url) from exc
    if len(raw) > LIMIT_BYTES:
        raise Trouble(f"{shown(url)}: more than {LIMIT_BYTES} bytes where a list was expected")
    return raw.decode("utf-8", "replace")


def table(url: str, headers: Mapping[str, str]) -> Dict[str, Any]:
    """The JSON object of an answer. Raises Trouble."""
    raw = text(url, headers)
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise Trouble(f"{shown(url)}: the answer is no JSON object; it begins with {raw.strip()[:60]!r}")
    return data
