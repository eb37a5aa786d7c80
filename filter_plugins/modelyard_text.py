"""Filter: plan -> the text that people read (thin wrapper)."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import text
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_text
short_description: A plan in words
description:
  - The plan as a table with its findings, the refusal, that of a run about models alone, or the summary at the end of a deploy.
options:
  _input: {description: The plan in plan_result., type: dict, required: true}
  form: {description: What to write., type: str, choices: [plan, refusal, models, summary], default: plan}
  results: {description: Ladders that were walked (service and steps); for the summary., type: list, default: []}
  touched: {description: What this run has changed so far; for the refusal., type: str, default: Nothing was changed.}
  command: {description: How ansible-playbook is called here; for the summary., type: str, default: ansible-playbook}
  home: {description: The project's folder on the host; for the summary., type: str, default: ""}
"""
EXAMPLES = 'msg: "{{ plan_result | modelyard_text }}"'
RETURN = "_value: {description: Text of several lines., type: str}"


def modelyard_text(
    plan: dict[str, Any],
    form: str = "plan",
    results: list[dict[str, Any]] | None = None,
    home: str = "",
    touched: str = "Nothing was changed.",
    command: str = "ansible-playbook",
) -> str:
    """Plain data in, text out."""
    data = plain(plan)
    if form == "refusal":
        return text.refusal(f"The plan for {data['host']}", data["findings"], touched)
    if form == "models":
        found = data["models_refused"]
        return "\n".join([*text.findings(found), text.refusal(f"The models of {data['host']}", found, touched)])
    if form == "summary":
        return text.summary(data, plain(results or []), home, command)
    return text.plan(data)


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_text": modelyard_text}
