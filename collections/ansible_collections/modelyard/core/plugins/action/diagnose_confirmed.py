"""Action: has a person named one instance of this run for the diagnostic window? For all hosts, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.module_utils.plan import diagnose
from ansible_collections.modelyard.core.plugins.plugin_utils import confirming, refuse


class ActionModule(ActionBase):  # type: ignore[misc]
    """`confirmed`: `host:service` or `host:service/index`. Returns `service` and `index` on that host; on others '' and None."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge it; every host of the run must have been looked at."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given, kind = str(self._task.args["confirmed"]), ("DG-CONFIRM", diagnose.VARIABLE)
        hosts, found = confirming.judged(self, variables, kind, given, _services, diagnose.confirmation)
        if found:
            return refuse.result(result, "The diagnosis", found, touched="Nothing was asked or changed.")
        target = diagnose.target(given, hosts)
        here = target.host == str(variables["inventory_hostname"])
        result.update(changed=False, service=target.service if here else "", index=target.instance if here else None)
        return result


def _services(plan: Mapping[str, Any]) -> dict[str, list[int]]:
    """Indexes of the instances by service."""
    return {service["name"]: [instance["index"] for instance in service["instances"]] for service in plan["services"]}
