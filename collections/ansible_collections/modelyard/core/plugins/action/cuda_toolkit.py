"""Action: the CUDA toolkit that inventory and verdict ask for, on one host; or why not now."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import chosen_toolkit
from ansible_collections.modelyard.core.plugins.plugin_utils import change, refuse
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
OPTIONS = ("usr_mib", "wait_s", "limit_s")


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`; `state`, see the role; the other arguments are the module's. Wants plan_result of the host."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Choose, change, say what was done."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given, name = self._task.args, str(variables["inventory_hostname"])
        intent, plan = plain(given["intent"]), plain(dict(variables["plan_result"]))
        choice = chosen_toolkit.choose(str(given["state"]), intent, json.loads(plan["survey_json"]), plan["stack"])
        result.update(changed=False, steps=[])
        if choice["findings"]:
            return refuse.result(result, f"The CUDA toolkit of {name}", choice["findings"])
        if choice["skip"]:
            display.display(f"  {name}: the CUDA toolkit is not changed: {choice['skip']}")
            return result
        args = {"sysroot": intent["sysroot"], "tool_path": intent["tool_path"], "host": name}
        args |= {key: choice[key] for key in ("version", "names")} | {key: given[key] for key in OPTIONS if key in given}
        answer = plain(self._execute_module(module_name="modelyard.core.cuda_toolkit", module_args=args, task_vars=variables))
        return change.told(self, result, answer, name, "The CUDA toolkit")
