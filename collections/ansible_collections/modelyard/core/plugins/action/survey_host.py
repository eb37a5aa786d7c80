"""Action: look at a host, for a playbook that does not plan."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse, surveying
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`: result of the action of that name. `services`: names to look for besides those of the intent."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The survey, or a refusal."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        intent = plain(self._task.args["intent"])
        request = surveying.request(intent, self._task.args.get("services") or [])
        # Whether a runtime works is a question of plans; asking it takes seconds, because it imports the engine.
        said, found = surveying.look(self, {**request, "runtimes": [], "locks": {}}, variables)
        result.update(said)
        if found:
            return refuse.result(result, f"The survey of {variables.get('inventory_hostname', '')}", found, intent["show"])
        return result
