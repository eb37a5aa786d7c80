"""Who may use the admin listener.

On loopback everybody with a login on the machine may look; what changes something needs the token where there is one. A browser
there is a way in for strangers too: a page of theirs can send requests to 127.0.0.1, and a name of theirs can point there (DNS
rebinding). So the name in `Host` must be one of loopback, and what changes something must not come from another site. On other
addresses each request must carry the token: as `Authorization: Bearer`, or, for browsers, as the password of HTTP Basic with any
user.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from typing import TYPE_CHECKING, Optional
from urllib.parse import urlsplit

from aiohttp import web

from modelyard_gateway.token_file import TokenProblem, read_token

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

CHALLENGES = ('Basic realm="modelyard gateway", charset="UTF-8"', 'Bearer realm="modelyard gateway"')


def is_loopback(host: str) -> bool:
    """Say whether this name or address means the machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def offered_token(authorization: str) -> Optional[str]:
    """Take the token out of the header `Authorization`. None when there is none."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None


def from_another_site(request: web.BaseRequest) -> bool:
    """Say whether a browser sends this on behalf of another site. Programs send none of these headers."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower()


def refusal(status: int, message: str) -> web.Response:
    """Answer with a problem, as JSON."""
    return web.json_response({"error": message}, status=status)


def guard(listen_host: str, token_file: str) -> Middleware:
    """Make the middleware that lets only those in who may. The token is read anew each time, so a new one needs no restart."""

    def problem(request: web.Request) -> Optional[web.Response]:
        looks = request.method in ("GET", "HEAD")
        open_to_all = is_loopback(listen_host) and looks
        if token_file and not open_to_all:
            try:
                token = read_token(token_file)
            except TokenProblem as reason:
                return refusal(503, f"nobody is let in: {reason}")
            offered = offered_token(request.headers.get("Authorization", ""))
            if offered is None or not hmac.compare_digest(offered.encode(), token.encode()):
                answer = refusal(401, "send the admin token: Authorization: Bearer TOKEN, or as the password of any user")
                for challenge in CHALLENGES:
                    answer.headers.add("WWW-Authenticate", challenge)
                return answer
        else:
            named = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
            if not is_loopback(named) and named != listen_host.strip("[]").lower():
                return refusal(403, f"this listener is not called {named or '(nothing)'}: use localhost or 127.0.0.1")
        if not looks and from_another_site(request):
            return refusal(403, "another web site may not change anything here")
        return None

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = problem(request)
        return await handler(request) if refused is None else refused  # never `or`: an answer is empty, so false, in aiohttp 3.9

    return check
