"""Where the gateway of a service lives on its host: kept like a service of its own with one instance.

`services/NAME.gateway/instance-0` is the `folder` of control.py. No service of the inventory may be called so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout

SUFFIX = ".gateway"
SPEC_FILE = "spec.json"
SPEC_SHAPE = {"kind": str, "backends": list}
BACKEND_SHAPE = {"index": int, "name": str, "host": str, "port": int}


def name(service: str) -> str:
    """The service that the gateway of a service is kept as."""
    return f"{service}{SUFFIX}"


def folder(home: str, service: str) -> Path:
    """The gateway's folder."""
    return layout.instance_dir(home, name(service), 0)


def spec(home: str, service: str) -> Optional[Dict[str, Any]]:
    """What the running gateway was made from, as control.py wants it; None where there is none, or not whole."""
    found = layout.read_json(folder(home, service) / SPEC_FILE)
    if not layout.has_shape(found, SPEC_SHAPE):
        return None
    return found if found and all(layout.has_shape(one, BACKEND_SHAPE) for one in found["backends"]) else None


def runs(home: str, service: str) -> bool:
    """Does the gateway that was started last still live?"""
    known = layout.state(folder(home, service))
    return bool(known and layout.leader_alive(known))
