"""Action: may a host reboot that a person has named; and does the driver run after it?"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import before, chosen
from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse, surveying
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`; `version` of the driver; `reason` to reboot, is it `confirmed`; `state`: `ready` before, `rebooted` after it."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Look at the host anew and judge it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        args, result["changed"] = self._task.args, False
        version, name = str(args["version"]), str(variables["inventory_hostname"])
        if not boolean(args.get("confirmed", True)):
            found = before.not_confirmed(name, str(args["reason"]))
            return refuse.result(result, f"The driver of {name}", found, touched="The driver is installed.")
        said, found = surveying.look(self, surveying.request(plain(args["intent"])), variables)
        if not found and args.get("state") == "rebooted":
            found = before.runs(said["survey"], version)
        elif not found:
            seats = before.seats(self._low_level_execute_command("LC_ALL=C who -u")["stdout"])
            bystanders = tables.backend("nvidia")["bystanders"]
            found = chosen.same_machine(said["survey"], proc.boot_id())
            found += before.reboot(said["survey"], version, bystanders, seats)
        if found:
            return refuse.result(result, f"The reboot of {name}", found, touched="Nothing else was done.")
        display.display(f"  {name}: {'runs driver ' + version if args.get('state') == 'rebooted' else 'may reboot'}")
        return result
