"""Action: the verdict on what fits what, of all hosts of the play in one table, and as a JSON file on the control node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import refusals
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import text, verdict
from ansible_collections.modelyard.core.plugins.plugin_utils import report

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`json`: path on the control node; empty for none. Meant for run_once. Returns hosts, refused (names) and findings."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect what each host has registered, print it, write it down."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        hosts = {name: _of(name, host) for name, host in report.registered(task_vars or {}).items()}
        display.display("\n" + text.report(hosts))
        path = str(self._task.args.get("json") or "")
        if path:
            report.write(Path(path).expanduser(), hosts)
            display.display(f"  Written: {path}")
        refused = [name for name, host in hosts.items() if _is_refused(host)]
        findings = [{"host": name, **item} for name, host in hosts.items() for item in host["findings"]]
        result.update(changed=False, findings=findings, refused=refused, hosts=list(hosts))
        return result


def _of(name: str, host: Mapping[str, Any]) -> dict[str, Any]:
    """{verdict, findings} of one host, however far it came; the findings are those that a verdict rests on."""
    plan, known = report.plan_or_findings(name, host)
    found = [item for item in known if plan is None or text.concerns(item["id"])]
    return {"verdict": plan["stack"] if plan else None, "findings": found}


def _is_refused(host: Mapping[str, Any]) -> bool:
    """A verdict counts as refused while a refusal stands behind it: modelyard_checks may have switched it."""
    return bool(refusals(host["findings"])) and (host["verdict"] is None or host["verdict"]["action"] == verdict.REFUSED)
