"""Filter: plan -> what is asked of the module card_test; plan and its answers -> findings and text."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelyard.core.plugins.module_utils.plan import card_test_request, text
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import count, ordered, refusals, switched
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: modelyard_card_test
short_description: What the tensor test of a plan's cards asks, and what came of it
description:
  - C(requests) are the arguments of the module C(card_test), by service.
  - C(report) is the table of the answers with all findings, C(findings) are these alone, C(refusal) is the one line that ends a
    run.
options:
  _input: {description: The plan in plan_result., type: dict, required: true}
  form: {description: What to give., type: str, choices: [requests, report, findings, refusal], default: requests}
  services:
    description: Names of services. Empty for those that the plan starts or restarts.
    type: list
    elements: str
    default: []
  cards: {description: "The cards of the survey, a list or one list for each backend.", type: raw, default: []}
  answers: {description: "What the module returned, by service.", type: dict, default: {}}
  switches: {description: "Severities that the inventory sets, by id of a finding.", type: dict, default: {}}
"""
EXAMPLES = 'asked: "{{ plan_result | modelyard_card_test(cards=seen.survey.cards) }}"'
RETURN = "_value: {description: Requests by service; a list of findings; or a text., type: raw}"
TOUCHED = "No engine was started or stopped."


def modelyard_card_test(
    plan: dict[str, Any],
    form: str = "requests",
    services: list[str] | None = None,
    cards: Any = None,
    answers: dict[str, Any] | None = None,
    switches: dict[str, str] | None = None,
) -> Any:
    """Plain data in, plain data out.

    :raises AnsibleFilterError: `services` names one that the plan does not have, or `form` is none of the forms.
    """
    data, seen = plain(plan), plain(cards or [])
    by_name = {service["name"]: service for service in data["services"]}
    try:
        names = card_test_request.wanted(data, plain(services or []))
    except ValueError as problem:
        raise AnsibleFilterError(f"modelyard_card_test: {problem}.") from problem
    requests = {name: card_test_request.request(by_name[name], seen) for name in names}
    if form == "requests":
        return requests
    found, table = card_test_request.report(data, requests, plain(answers or {}))
    found = ordered(switched(found, plain(switches or {})))
    if form == "report":
        return "\n".join([table, *([f"Findings: {count(found)}", *text.findings(found)] if found else [])])
    if form == "findings":
        return found
    if form == "refusal":
        return text.refusal(f"The start on {data['host']}", refusals(found), TOUCHED)
    raise AnsibleFilterError(f"modelyard_card_test: form is {form!r}, but there are requests, report, findings and refusal.")


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_card_test": modelyard_card_test}
