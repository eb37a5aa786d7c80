"""Filter: plan -> the files of its services, as data."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import files, gateway_files, tables
from ansible_collections.modelyard.core.plugins.plugin_utils import version
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_files
short_description: What a deploy writes into the folders of services
description:
  - For each service its folder, service.json, names of its scripts, what clients need to know, and for each instance its folder,
    instance.json and unit file.
  - Instances that this run does not touch are left out. C(started) are those that it starts.
options:
  _input: {description: The plan in plan_result., type: dict, required: true}
  intent: {description: The result of the action intent., type: dict, required: true}
  stop_margin_s: {description: Seconds that a stop waits beyond the engine's own time-out., type: float, required: true}
  part: {description: "Whose files: C(services) or their C(gateways).", type: str, default: services}
"""
EXAMPLES = 'files: "{{ plan_result | modelyard_files(modelyard_intent, 30) }}"'
RETURN = "_value: {description: The files by service., type: list}"


def modelyard_files(
    plan: dict[str, Any], intent: dict[str, Any], stop_margin_s: float, part: str = "services"
) -> list[dict[str, Any]]:
    """Plain data in, plain data out."""
    data, wanted = plain(plan), plain(intent)
    host = files.Host(
        home=wanted["home"],
        runtimes_dir=wanted["runtimes_dir"],
        sysroot=wanted["sysroot"],
        tool_path=wanted["tool_path"],
        user=json.loads(data.get("survey_json") or "{}").get("host", {}).get("user", ""),
        python=data["python"],
        version=version.project(),
        stop_margin_s=float(stop_margin_s),
        backends=tables.accelerators(),
    )
    of = {"services": files.of_service, "gateways": gateway_files.of_gateway}[part]
    return [of(entry, host) for entry in data[part] if entry.get("concerned", True)]


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_files": modelyard_files}
