"""Action: the module of the same name, and two questions that it cannot answer: can it run there, is the lock's run dead?"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import text
from ansible_collections.modelyard.core.plugins.plugin_utils import call, control, old_python

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: those of the module."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Survey; a lock whose run has died on this control node is no lock."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        name = str(variables.get("inventory_hostname", ""))
        versions = old_python.look(self, self._templar.template(variables.get("ansible_python_interpreter")))
        found = [] if versions is None else old_python.judge(versions, old_python.needed(), name)
        if found:
            display.display("\n".join(["", *text.findings(found)]))
            result.update(failed=True, msg=text.refusal(f"The survey of {name}", found))
            return result
        result.update(call.module(self, "survey_host", dict(self._task.args), variables))
        # People know a host by its name in the inventory.
        host = result["survey"]["host"]
        host["hostname"], host["name"] = host["name"], name or host["name"]
        if control.has_died(result["survey"]["lock"]):
            result["survey"]["lock"] = None
        return result
