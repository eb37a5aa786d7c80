"""Action: is what a person has confirmed for a reset exactly there? For all hosts of the run, before anything is reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.modelyard.core.plugins.module_utils.plan import reset
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse, report
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain


class ActionModule(ActionBase):  # type: ignore[misc]
    """`confirmed`: `host:card[,host:card]`, from the extra `variable`. Returns `cards` of this host: backend, index and bus_id.

    One mistake refuses all hosts: who mistyped one of two names may have meant another host with the other, too.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge the whole confirmation; every host of the run must have been looked at."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        confirmed, name = str(self._task.args["confirmed"]), str(variables["inventory_hostname"])
        hosts = {host: _cards(known) for host, known in report.registered(variables).items()}
        variable = str(self._task.args["variable"])
        found = reset.confirmation(confirmed, hosts)
        if variable not in load_extra_vars(self._loader):
            what = f"{variable} stands in the inventory, where it would be good for every run"
            found.append(finding("RC-CONFIRM", variable, what, "remove it there, and give it with -e for one run"))
        if found:
            return refuse.result(result, "The confirmation of a reset", found)
        wanted = reset.chosen(confirmed, name)
        cards = [card for card in hosts[name] or [] if card["index"] in wanted]
        result.update(changed=False, cards=cards)
        return result


def _cards(host: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """What names a card; None where there is no plan."""
    plan = plain(dict(host["plan_result"])) if "plan_result" in host else {}
    if "cards" not in plan:
        return None
    return [{key: card[key] for key in ("backend", "index", "bus_id")} for card in plan["cards"]]
