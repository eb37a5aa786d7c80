"""Action: compare what was deployed on a host with what is there and with what the inventory wants. Changes nothing."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.module_utils.plan import drift, planner, tables
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse, surveying
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

# Ansible works on each host in a process of its own, made from the one that has read this file: so the tables are read once.
tables.read_all()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`: result of the action of that name. Register it as status_result: see module_utils/plan/drift.py."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """One look, compared; or a refusal with the reason why there was none."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        intent = plain(self._task.args["intent"])
        said, found = surveying.look(self, {**surveying.request(intent), "deployed": True}, variables)
        if found:
            result.update(said)
            return refuse.result(result, f"The survey of {variables.get('inventory_hostname', '')}", found, intent["show"])
        survey = plain(said["survey"])
        result.update(changed=False, **drift.host(survey, planner.plan(intent, survey) if intent["services"] else None))
        result.update({key: said[key] for key in ("ansible_facts", "warnings", "deprecations") if key in said})
        return result
