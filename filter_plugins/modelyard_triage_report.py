"""Filter: what the module triage has seen -> the text that people read (thin wrapper)."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.triage.text import report
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_triage_report
short_description: What failed on a host, in words
description: [Each service with its last starts, what is left of it, and the kernel's log.]
options:
  _input: {description: The services in the result of the module triage., type: list, elements: dict, required: true}
  host: {description: Name of the host., type: str, required: true}
  starts: {description: How many starts of each instance are shown whole., type: int, default: 1}
"""
EXAMPLES = 'text: "{{ triage_result.services | modelyard_triage_report(inventory_hostname) }}"'
RETURN = "_value: {description: Text of several lines., type: str}"


def modelyard_triage_report(services: list[dict[str, Any]], host: str, starts: int = 1) -> str:
    """Plain data in, text out."""
    shown = [report(str(host), one, int(starts)) for one in plain(services)]
    return "\n\n".join(shown) or f"{host}: no service was ever deployed here"


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_triage_report": modelyard_triage_report}
