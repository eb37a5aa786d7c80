"""What the gateway decides by a request's head alone: what it answers itself, and whom it lets in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Optional

from modelyard_gateway.answers import Refused
from modelyard_gateway.headers import Request

if TYPE_CHECKING:
    from modelyard_gateway.gateway import Gateway

#: What clients are told that are to come again. Seconds.
RETRY_AFTER_S = 2


def local(gateway: Gateway, request: Request) -> Optional[bytes]:
    """The body of what the gateway answers itself with 200, or None. Raises Refused where it answers with an error."""
    path = request.path
    if path == "/health":
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "method_not_allowed", "/health is asked with GET")
        if gateway.stopping:
            raise Refused(503, "stopping", "The gateway ends", retry_after_s=RETRY_AFTER_S)
        if not gateway.backends.any_able():
            raise none_there(gateway)
        return json.dumps({"status": "ok"}).encode()
    if path == "/gateway" or path.startswith("/gateway/"):
        raise Refused(404, "not_found", "The gateway's own pages are on its admin port only")
    if gateway.settings.v1_only and not path.startswith("/v1/"):
        raise Refused(404, "not_served", "Only paths below /v1 are served here: elsewhere the engines would ask for no key")
    return None


def admit(gateway: Gateway, request: Request) -> Optional[str]:
    """The name of the client's key, None when everybody may come in. Raises Refused."""
    name = None
    if gateway.keys is not None:
        name = gateway.keys.name_of(request.authorization)
        if name is None:
            gateway.count("unauthorized")
            text = "Wanted: Authorization: Bearer KEY with a key that the gateway knows"
            raise Refused(401, "invalid_api_key", text)
    if request.length is not None and request.length > gateway.body_limit:
        raise too_large(gateway)
    return name


def is_listing(request: Request) -> bool:
    """Whether it asks for the list of models, which any healthy backend can give."""
    return request.path == "/v1/models" and request.method in ("GET", "HEAD")


def too_large(gateway: Gateway) -> Refused:
    """The body is longer than allowed."""
    text = f"The body is larger than {gateway.settings.body_limit_mb:g} MiB"
    return Refused(413, "body_too_large", text, close=True)


def none_there(gateway: Gateway) -> Refused:
    """No backend may get requests."""
    text = f"No backend can take requests: {gateway.backends.why_none()}"
    return Refused(503, "no_backend", text, retry_after_s=RETRY_AFTER_S)


def full(gateway: Gateway) -> str:
    """In words: all backends are at their limit, and nobody more may wait."""
    size = gateway.settings.queue_size
    waits = f"{len(gateway.queue)} requests wait already" if size else "requests do not wait here"
    return f"All backends work on {gateway.settings.per_backend_limit} requests each, and {waits}"
