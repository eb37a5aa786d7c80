"""A gateway of a service on this machine, kept as a deploy keeps it: a service of its own with one instance."""

from __future__ import annotations

import hashlib
import http.client
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gateway_files
from ansible_collections.modelyard.core.plugins.module_utils.gateway import control, place
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, supervisor
from ansible_collections.modelyard.core.plugins.plugin_utils import program
from gateway.kinds import Gateway, request
from harness import until

LINGER_S = 40


def write(home: Path, service: str, kind: str, ports: list[int], **changes: Any) -> Gateway:
    """All its files; its engines listen on `ports`, by index."""
    names = gateway_files.backends(service, ports)
    folder = place.folder(str(home), service)
    made = Gateway(kind, folder, SimpleNamespace(base=0, count=0), service=service, backends=names, **changes)
    made.port = made.spec["port"]
    engines = folder / "run/backends.conf"
    before = engines.read_bytes() if engines.exists() else None
    made.render()
    if kind == "nginx":  # a deploy writes it beside; what nginx reads follows from both when it is prepared
        (folder / engines.name).write_bytes(engines.read_bytes())
        engines.write_bytes(before or engines.read_bytes())
    words, environment = control.start_command(folder, made.spec)
    marker = {"MODELYARD_SERVICE": place.name(service), "MODELYARD_INSTANCE": "0"}
    exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in {**environment, **marker}.items())
    text = f'#!/bin/bash\ncd "$(dirname "$0")/run"\n{exported}exec {shlex.join(words)}\n'
    (folder / "launch.sh").write_text(text, encoding="utf-8")
    layout.write_json(folder / place.SPEC_FILE, made.spec)
    wanted: dict[str, Any] = {
        "name": f"{place.name(service)}/0",
        "index": 0,
        "digest": hashlib.sha256(repr((kind, sorted(changes.items()))).encode()).hexdigest()[:16],
        "supervisor": "plain",
        "session": place.name(service),
        "entry": True,
    }
    wanted.update(host="127.0.0.1", port=made.port, marker=marker, launch={"argv": words, "environment": environment})
    wanted["launch"]["settings"] = {"kind": kind, "admin_port": str(made.spec["admin_port"])}
    layout.write_json(folder / layout.REQUEST_FILE, wanted)
    info = {"schema": 1, "service": place.name(service), "home": str(home), "instances": [0], "ready_timeout_s": 20}
    info.update(python=sys.executable, start={"stagger_s": 0, "wave": 1}, stop={"linger_s": LINGER_S})
    layout.write_json(folder.parent / layout.SERVICE_FILE, info)
    (folder.parent / layout.PROGRAM).write_bytes(program.build())
    return made


def serves(made: Gateway) -> bool:
    """Does it say that it serves?"""
    try:
        return request(made.port, "GET", "/health")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def begin(made: Gateway) -> dict[str, Any]:
    """Start it as a deploy does; its state."""
    wanted = layout.read_json(made.folder / layout.REQUEST_FILE)
    assert wanted
    return supervisor.start_once(made.folder, wanted, sys.executable)


def start(made: Gateway) -> dict[str, Any]:
    """The same, and wait until it serves."""
    state = begin(made)
    until(lambda: serves(made), 20, f"the gateway serves: {state['log']}")
    return state
