"""The variable `gateway` of the role's templates, and its files, without a deploy: for tests and for the benchmark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.plugins.filter.core import FilterModule
from ansible_collections.modelyard.core.plugins.module_utils.gateway import control
from ansible_collections.modelyard.core.plugins.module_utils.plan import gateway, tables
from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES, PACKAGE = ROOT / "roles/gateway/templates", ROOT / "roles/gateway/files"
#: What a deploy takes over as it stands in the inventory.
TAKEN = (
    "timeout_s",
    "body_limit_mb",
    "per_backend_limit",
    "queue_size",
    "queue_timeout_s",
    "hung_after_s",
    "keys_file",
    "drain_s",
)


def defaults() -> dict[str, Any]:
    """What the inventory's `gateway` is without a word about it."""
    spec = tables.read_yaml(ROOT / "roles/plan/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    options = spec["modelyard_services"]["options"]["gateway"]["options"]
    found = {name: entry["default"] for name, entry in options.items()}
    return {**found, "log": {name: entry["default"] for name, entry in options["log"]["options"].items()}}


def values(kind: str, service: str, port: int, engines: list[int], folder: Path, **changes: Any) -> dict[str, Any]:
    """As a deploy would give them for engines on these ports; `folder` is the gateway's. `changes` replace whole keys."""
    default = defaults()
    return {
        **gateway.FIXED,
        **{name: default[name] for name in TAKEN},
        "health": {"interval_s": default["health_interval_s"], **gateway.HEALTH},
        "log": {**default["log"], "error_bytes": gateway.ERROR_BYTES},
        "v1_only": False,
        "kind": kind,
        "service": service,
        "host": "127.0.0.1",
        "port": port,
        "admin_host": "127.0.0.1",
        "admin_port": port + 1,
        "admin_token_file": "",
        "backends": backends(service, engines),
        "user": "root" if os.geteuid() == 0 else "llm",
        "config": str(folder / control.CONFIG[kind]),
        "run_dir": str(folder / "run"),
        "log_dir": str(folder / "logs"),
        **changes,
    }


def backends(service: str, engines: list[int]) -> list[dict[str, Any]]:
    """Engines on these ports of this machine."""
    return [
        {"index": index, "name": f"{service}/{index}", "host": "127.0.0.1", "port": port, "drained": False}
        for index, port in enumerate(engines)
    ]


def render(template: str, spec: dict[str, Any], target: Path) -> Path:
    """Write a template of the role, as Ansible renders it."""
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    environment.filters.update(FilterModule().filters())
    text = environment.get_template(template).render(ansible_managed="Written by Modelyard.", gateway=spec)
    target.write_text(text, encoding="utf-8")
    return target
