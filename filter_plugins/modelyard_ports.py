"""Filter: intent -> the ports that it wants."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import instance_ports

DOCUMENTATION = r"""
name: modelyard_ports
short_description: Ports that an intent wants
description: [One port for each replica of each service.]
options:
  _input: {description: The fact modelyard_intent., type: dict, required: true}
"""
EXAMPLES = 'ports: "{{ modelyard_intent | modelyard_ports }}"'
RETURN = "_value: {description: Ports in order., type: list, elements: int}"


def modelyard_ports(intent: dict[str, Any]) -> list[int]:
    """Sorted, each once."""
    return sorted({port for service in intent["services"] for port in instance_ports(service)})


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_ports": modelyard_ports}
