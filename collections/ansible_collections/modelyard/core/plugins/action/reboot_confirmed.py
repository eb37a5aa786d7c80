"""Action: has a person named hosts of this run that may reboot? For all hosts, before anything is changed on one of them."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import confirmed
from ansible_collections.modelyard.core.plugins.plugin_utils import confirming, refuse


class ActionModule(ActionBase):  # type: ignore[misc]
    """`confirmed`: `host[,host]`; `state`: nvidia_driver_state of this host. Returns `here`: this host was named."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge it; every host of the run must have been looked at."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given, kind = str(self._task.args["confirmed"]), ("DR-CONFIRM", confirmed.VARIABLE)
        _, found = confirming.judged(self, variables, kind, given, lambda plan: plan["host"], confirmed.judge)
        name = str(variables["inventory_hostname"])
        here = name in confirmed.names(given)
        found += confirmed.without_use(name, str(self._task.args["state"])) if here else []
        if found:
            return refuse.result(result, "The confirmation of a reboot", found)
        result.update(changed=False, here=here)
        return result
