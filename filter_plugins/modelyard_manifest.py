"""Filter: service of a plan -> what the control node knows for its manifest."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import manifest
from ansible_collections.modelyard.core.plugins.plugin_utils import version
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_manifest
short_description: What is written down about a deployed service
description:
  - Every parameter and version; nothing that changes from run to run, so that an unchanged deploy changes nothing.
  - The module C(manifest_write) adds what only the host can tell.
options:
  _input: {description: A service of a plan., type: dict, required: true}
  plan: {description: The plan in plan_result., type: dict, required: true}
"""
EXAMPLES = 'manifest: "{{ service | modelyard_manifest(plan_result) }}"'
RETURN = "_value: {description: The manifest without what the host adds., type: dict}"


def modelyard_manifest(service: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Plain data in, plain data out."""
    known = {"baseline": plain(plan["baseline"])}
    return manifest.manifest(plain(service), known, json.loads(plan["survey_json"]), version.project())


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_manifest": modelyard_manifest}
