"""Filter: intent and survey -> plan (thin wrapper around the planner)."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_plan
short_description: Plan what a host should run
description: [A pure function of what the inventory wants and what the survey saw. Changes nothing.]
options:
  _input: {description: The fact modelyard_intent., type: dict, required: true}
  survey: {description: The survey that survey_host returned., type: dict, required: true}
"""
EXAMPLES = 'plan: "{{ modelyard_intent | modelyard_plan(seen.survey) }}"'
RETURN = "_value: {description: Services with instances and actions; findings; differences., type: dict}"


def modelyard_plan(intent: dict[str, Any], survey: dict[str, Any]) -> dict[str, Any]:
    """Plain data in, plain data out."""
    return planner.plan(plain(intent), plain(survey))


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_plan": modelyard_plan}
