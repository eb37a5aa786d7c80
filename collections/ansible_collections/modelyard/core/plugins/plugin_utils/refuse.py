"""A task that refuses with findings: they are shown at once or left to a report on all hosts, and kept in the result."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import text
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import count

display = Display()


def result(
    so_far: dict[str, Any], subject: str, findings: list[dict[str, str]], show: Any = True, touched: str = "Nothing was changed."
) -> dict[str, Any]:
    """The failed result. Without `show` the findings are only kept in it, for a report on all hosts.

    `touched`: what was changed so far; part of the message.
    """
    if boolean(show):
        display.display("\n".join([f"\n{subject}: {count(findings)}", *text.findings(findings)]))
    so_far.update(failed=True, msg=text.refusal(subject, findings, touched), findings=findings)
    return so_far
