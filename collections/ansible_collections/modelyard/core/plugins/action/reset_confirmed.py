"""Action: is what a person has confirmed for a reset exactly there? For all hosts of the run, before anything is reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.module_utils.plan import reset
from ansible_collections.modelyard.core.plugins.plugin_utils import confirming, refuse


class ActionModule(ActionBase):  # type: ignore[misc]
    """`confirmed`: `host:card[,host:card]`, from the extra `variable`. Returns `cards` of this host: backend, index, bus_id."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge the whole confirmation; every host of the run must have been looked at."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given, kind = str(self._task.args["confirmed"]), ("RC-CONFIRM", str(self._task.args["variable"]))
        hosts, found = confirming.judged(self, variables, kind, given, _cards, reset.confirmation)
        if found:
            return refuse.result(result, "The confirmation of a reset", found)
        name = str(variables["inventory_hostname"])
        wanted = reset.chosen(given, name)
        result.update(changed=False, cards=[card for card in hosts[name] or [] if card["index"] in wanted])
        return result


def _cards(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What names a card."""
    return [{key: card[key] for key in ("backend", "index", "bus_id")} for card in plan["cards"]]
