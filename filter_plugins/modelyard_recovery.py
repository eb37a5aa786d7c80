"""Filter: plan -> whether a recovery may go on, and what it tests."""

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelyard.core.plugins.module_utils.plan import recovery, text
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import count
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_recovery
short_description: Are the cards of a plan back at their baseline?
description:
  - C(report) is a table of the cards with all findings, C(refusal) the one line that ends a run, empty when nothing does.
  - C(services) are those whose cards can be tested now.
options:
  _input: {description: The plan in plan_result., type: dict, required: true}
  form: {description: What to give., type: str, choices: [report, refusal, services], default: report}
"""
EXAMPLES = 'text: "{{ plan_result | modelyard_recovery }}"'
RETURN = "_value: {description: A text; or names of services., type: raw}"


def modelyard_recovery(plan: dict[str, Any], form: str = "report") -> Any:
    """Plain data in, plain data out.

    :raises AnsibleFilterError: `form` is none of the forms.
    """
    survey = json.loads(plan["survey_json"])
    data = plain({key: plan[key] for key in ("host", "services", "findings")})
    found = recovery.findings(data, survey)
    if form == "services":
        return recovery.to_test(data, survey)
    if form == "refusal":
        return text.refusal(f"The recovery of {data['host']}", found, "Nothing was started or stopped.") if found else ""
    if form == "report":
        rows = recovery.report(data, survey)
        lines = text.table(rows) if len(rows) > 1 else ["  no card has to be free: what is wanted runs, or runs on cores"]
        head = f"Baseline of the cards on {data['host']}: {count(found) if found else 'passed'}"
        return "\n".join([head, *lines, *text.findings(found)])
    raise AnsibleFilterError(f"modelyard_recovery: form is {form!r}, but there are report, refusal and services.")


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_recovery": modelyard_recovery}
