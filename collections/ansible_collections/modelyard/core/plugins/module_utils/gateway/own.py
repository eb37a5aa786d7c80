"""Our own gateway by its admin listener."""

from __future__ import annotations

import urllib.parse
from typing import Any, Dict, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.survey import http


def ask(spec: Mapping[str, Any], method: str, path: str, limit_s: float = 5.0, **query: Any) -> Dict[str, Any]:
    """What the admin listener answers. GatewayError when it does not, or refuses."""
    key = ""
    if spec["admin_token_file"]:
        try:
            with open(spec["admin_token_file"], encoding="utf-8") as file:  # noqa: PTH123  a path of the inventory
                key = file.read().strip()
        except OSError as exc:
            raise GatewayError(f"the admin token cannot be read: {exc}") from exc
    target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
    answer = http.request((spec["admin_host"], spec["admin_port"]), method, target, key=key, timeout_s=limit_s)
    if answer["status"] not in (200, 202) or not isinstance(answer["body"], dict):
        said = answer["error"] or f"{answer['status']} {answer['body']}"
        raise GatewayError(f"{method} {path} on the admin port {spec['admin_port']} of the gateway: {said}")
    return dict(answer["body"])
