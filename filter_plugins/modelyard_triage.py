"""Filter: log -> which layer failed and what to do (thin wrapper)."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelyard.core.plugins.module_utils.triage import classify
from ansible_collections.modelyard.core.plugins.module_utils.triage.text import redacted

DOCUMENTATION = r"""
name: modelyard_triage
short_description: Which layer of a service failed, from its log
description:
  - Names the first error of a log, or says that it shows a symptom only. The causes are explained in C(docs/triage.md).
  - Secrets are taken out of the lines.
options:
  _input: {description: Log of an engine, kernel log, or output of a vendor's tool., type: str, required: true}
"""
EXAMPLES = 'msg: "{{ (__log.stdout | modelyard_triage).next_steps }}"'
RETURN = "_value: {description: 'layer, cause, root_cause_visible, evidence, next_steps, also and more.', type: dict}"


def modelyard_triage(text: str) -> dict[str, Any]:
    """Text in, plain data out."""
    if not isinstance(text, str):
        raise AnsibleFilterError(f"modelyard_triage wants text, got {type(text).__name__}. Pass .stdout.")
    return redacted(classify(text))


class FilterModule:
    """Names of the filters in this file."""

    def filters(self) -> dict[str, Any]:
        """One filter a file."""
        return {"modelyard_triage": modelyard_triage}
