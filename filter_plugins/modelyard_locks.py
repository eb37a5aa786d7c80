"""Filter: intent -> digests of the lock files whose runtimes are wanted."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables

DOCUMENTATION = r"""
name: modelyard_locks
short_description: Locks whose runtimes an intent wants
description: [Only the digests go to a host, not the tables.]
options:
  _input: {description: The fact modelyard_intent., type: dict, required: true}
"""
EXAMPLES = 'locks: "{{ modelyard_intent | modelyard_locks }}"'
RETURN = "_value: {description: Digest by lock name., type: dict}"


def modelyard_locks(intent: dict[str, Any]) -> dict[str, str]:
    """Names that are no lock are left out here; the planner refuses them."""
    names = {s["runtime"] or tables.backend(s["backend"])["runtime"] for s in intent["services"] if not s["runtime_path"]}
    return {str(name): known.digest for name in sorted(names) if (known := tables.runtime(str(name)))}


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_locks": modelyard_locks}
