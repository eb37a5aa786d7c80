"""Action: the module of the same name, and the one question that only the control node can answer: is the lock's run dead?"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.plugin_utils import call, control


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: those of the module."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Survey; a lock whose run has died on this control node is no lock."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(call.module(self, "survey_host", dict(self._task.args), task_vars or {}))
        # People know a host by its name in the inventory.
        host = result["survey"]["host"]
        host["hostname"], host["name"] = host["name"], str((task_vars or {}).get("inventory_hostname", host["name"]))
        if control.has_died(result["survey"]["lock"]):
            result["survey"]["lock"] = None
        return result
