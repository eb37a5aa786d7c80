"""Action: has a person named one instance of this run for the diagnostic window? For all hosts, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.modelyard.core.plugins.module_utils.plan import diagnose
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse, report
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain


class ActionModule(ActionBase):  # type: ignore[misc]
    """`confirmed`: `host:service` or `host:service/index`. Returns `service` and `index` on that host; on others '' and None."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge it; every host of the run must have been looked at."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        confirmed, name = str(self._task.args["confirmed"]), str(variables["inventory_hostname"])
        hosts = {host: _services(known) for host, known in report.registered(variables).items()}
        found = diagnose.confirmation(confirmed, hosts)
        if confirmed and diagnose.VARIABLE not in load_extra_vars(self._loader):
            what = f"{diagnose.VARIABLE} stands in the inventory, where it would be good for every run"
            found.append(finding("DG-CONFIRM", diagnose.VARIABLE, what, "remove it there, and give it with -e for one run"))
        if found:
            return refuse.result(result, "The diagnosis", found, touched="Nothing was asked or changed.")
        target = diagnose.target(confirmed, hosts)
        here = target.host == name
        result.update(changed=False, service=target.service if here else "", index=target.instance if here else None)
        return result


def _services(host: Mapping[str, Any]) -> dict[str, list[int]] | None:
    """Indexes of the instances by service; None where there is no plan."""
    plan = plain(dict(host["plan_result"])) if "plan_result" in host else {}
    if "services" not in plan:
        return None
    return {service["name"]: [instance["index"] for instance in service["instances"]] for service in plan["services"]}
