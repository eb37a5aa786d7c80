"""Action: look at a host and plan what it should run. One task for both: each task costs a process for each host."""

from __future__ import annotations

import json
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import models, planner, tables, text
from ansible_collections.modelyard.core.plugins.plugin_utils import chat_template, refuse, surveying
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
# Ansible works on each host in a process of its own, made from the one that has read this file: so the tables are read once.
tables.read_all()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`: result of the action of that name. Register it as plan_result: the plan, and as JSON the survey behind it.

    `show`: print the plan; without it it is only in the result, for a report. `models_made`: what this run has done for
    the models, which are then judged as they are (see module_utils/plan/models.py).
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Look, plan, print the plan where there is something to plan for or to see; or refuse."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        intent = plain(self._task.args["intent"])
        intent["models_made"] = str(self._task.args.get("models_made", models.NOTHING))
        said, found = surveying.look(self, surveying.request(intent), variables)
        if found:
            result.update(said)
            return refuse.result(result, f"The survey of {variables.get('inventory_hostname', '')}", found, intent["show"])
        survey = plain(said["survey"])
        chat_template.judge(survey)
        plan = planner.plan(intent, survey)
        if (plan["services"] or plan["cards"] or plan["models"]) and boolean(self._task.args.get("show", True)):
            display.display("\n" + text.plan(plan))
        # The survey as one text: Ansible walks through every value of a result several times, which is most of the control
        # node's work with a hundred hosts, and hardly anybody reads it.
        result.update(plan, survey_json=json.dumps(survey), changed=False)
        result.update({key: said[key] for key in ("ansible_facts", "warnings", "deprecations") if key in said})
        return result
