"""Action: the driver that inventory, verdict and tables ask for, on one host; or why not now."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import chosen
from ansible_collections.modelyard.core.plugins.plugin_utils import change, refuse, surveying
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
FROM_THE_SURVEY = ("home", "runtimes_dir", "sysroot", "backends")
OPTIONS = ("pending_reboot_allowed", "boot_mib", "usr_mib", "wait_s", "limit_s")


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`; `state` and `source`, see the role; the other arguments are the module's. Wants plan_result of the host.

    Returns `version`, `steps`, and `reboot`: why one is needed.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Choose, look, change, say what was done."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given, name = self._task.args, str(variables["inventory_hostname"])
        intent, plan = plain(given["intent"]), plain(dict(variables["plan_result"]))
        asked = (str(given["state"]), "" if given.get("source", "auto") == "auto" else str(given["source"]))
        choice = chosen.choose(asked, intent, json.loads(plan["survey_json"]), plan["stack"], tables.stack())
        result.update(changed=False, version=choice["version"], steps=[], reboot="", next_kernel="")
        if choice["findings"]:
            return refuse.result(result, f"The driver of {name}", choice["findings"])
        if choice["skip"]:
            display.display(f"  {name}: the driver is not changed: {choice['skip']}")
            return result
        request = surveying.request(intent)
        args = {key: request[key] for key in FROM_THE_SURVEY} | {key: given[key] for key in OPTIONS if key in given}
        args.update({key: choice[key] for key in ("version", "flavour", "names", "signed")})
        args.update(host=name, tool_path=intent["tool_path"])
        answer = plain(self._execute_module(module_name="modelyard.core.nvidia_driver", module_args=args, task_vars=variables))
        result.update(reboot=answer.get("reboot", ""), next_kernel=answer.get("next_kernel", ""))
        if change.told(self, result, answer, name, "The driver").get("failed"):
            return result
        if self._task.check_mode and result["steps"] and result["reboot"]:
            display.display(f"  {name}: then a reboot would be needed: {result['reboot']}")
            result["reboot"] = ""  # not yet
        if not result["steps"]:
            display.display(f"  {name}: driver {choice['version']} is as it should be")
        if result["next_kernel"]:
            display.display(f"  {name}: attention: {result['next_kernel']}")
        return result
