"""Filter: service of a plan -> its manifest."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_manifest
short_description: What is written down about a deployed service
description: [Every parameter and version; nothing that changes from run to run, so that an unchanged deploy changes nothing.]
options:
  _input: {description: A service of a plan., type: dict, required: true}
"""
EXAMPLES = 'content: "{{ service | modelyard_manifest | to_nice_json }}"'
RETURN = "_value: {description: The manifest., type: dict}"
#: What a plan says about this one run and not about the service.
OF_THE_RUN = (
    *("action", "differences", "accepted", "advice", "left_out", "concerned"),
    *("memory_mib", "instance_memory_mib", "shm_mib", "cards", "asked_cards"),
)


def modelyard_manifest(service: dict[str, Any]) -> dict[str, Any]:
    """The service without what belongs to the run."""
    kept = {k: v for k, v in plain(service).items() if k not in OF_THE_RUN}
    kept["instances"] = [
        {k: v for k, v in instance.items() if k != "action"} for instance in kept["instances"] if instance["action"] != "stop"
    ]
    kept["runtime"] = {k: v for k, v in kept["runtime"].items() if k != "present"}
    return {"schema": 1, **kept}


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_manifest": modelyard_manifest}
