"""Action: the findings of all hosts of the play in one table, and as a JSON file on the control node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import text
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import REFUSE
from ansible_collections.modelyard.core.plugins.plugin_utils import report
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`json`: path on the control node; empty for none. Meant for run_once. Returns hosts, refused (names) and findings."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect what each host has registered, print it, write it down."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        hosts = report.registered(task_vars or {})
        seen = {name: _of(name, host) for name, host in hosts.items()}
        display.display("\n" + text.report(seen))
        findings = [{"host": name, **item} for name, host in seen.items() for item in host["findings"]]
        refused = list(dict.fromkeys(item["host"] for item in findings if item["severity"] == REFUSE))
        path = str(self._task.args.get("json") or "")
        if path:
            report.write(Path(path).expanduser(), {name: {**host, **_more(hosts[name])} for name, host in seen.items()})
            display.display(f"  Written: {path}")
        result.update(changed=False, findings=findings, refused=refused, hosts=list(hosts))
        return result


def _of(name: str, host: Mapping[str, Any]) -> dict[str, Any]:
    """What is known about one host, however far it came: refused inventory, unreachable, or planned."""
    plan, found = report.plan_or_findings(name, host)
    if plan is not None:
        more = plain(host["card_test_findings"]) if "card_test_findings" in host else []
        return {
            "findings": [*found, *more],
            "switched_off": plan["switched_off"],
            "services": [f"{s['name']} ({s['action']})" for s in plan["services"]],
            "cards": text.card_summary(plan["cards"]),
        }
    return {"findings": found, "switched_off": [], "services": [], "cards": ""}


def _more(host: Mapping[str, Any]) -> dict[str, Any]:
    """Plan and survey of a host, the survey with the raw outputs of its tools; None where it did not come to that."""
    seen = plain(dict(host["plan_result"])) if "plan_result" in host else {}
    return {"plan": report.plan(host), "survey": json.loads(seen["survey_json"]) if "survey_json" in seen else None}
