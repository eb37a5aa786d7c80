"""Action: the memory plans of all hosts of the play, card by card, and as a JSON file on the control node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import words
from ansible_collections.modelyard.core.plugins.plugin_utils import report
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`json`: path on the control node; empty for none. Meant for run_once. Returns `hosts`: {host: {service: memory plan}}."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect what each host has registered, print it, write it down."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        hosts: dict[str, Any] = {}
        for name, host in report.registered(task_vars or {}).items():
            seen = plain(dict(host["plan_result"])) if "plan_result" in host else {}
            if "services" not in seen:
                continue  # what was in the way has been told by the task that failed
            display.display("\n" + words.report(seen["services"], name))
            hosts[name] = {service["name"]: service["memory"] for service in seen["services"]}
        path = str(self._task.args.get("json") or "")
        if path:
            report.write(Path(path).expanduser(), hosts)
            display.display(f"  Written: {path}")
        result.update(changed=False, hosts=hosts)
        return result
