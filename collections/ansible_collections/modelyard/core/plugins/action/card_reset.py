"""Action: reset the cards that a person has confirmed for this host, and say what came of it."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse, surveying
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
FROM_THE_SURVEY = ("home", "runtimes_dir", "sysroot", "backends")


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`; `confirmed`: result of the action reset_confirmed; `limit_s`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Nothing for a host of which no card was named."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        confirmed, name = plain(self._task.args["confirmed"]), str(variables["inventory_hostname"])
        if not confirmed["cards"]:
            result.update(changed=False, skipped=True)
            return result
        asked = surveying.request(plain(self._task.args["intent"]))
        args = {key: asked[key] for key in FROM_THE_SURVEY}
        args.update(host=name, cards=confirmed["cards"], limit_s=self._task.args.get("limit_s", 0))
        answer = plain(self._execute_module(module_name="modelyard.core.card_reset", module_args=args, task_vars=variables))
        for key in ("command", "said", "cards"):
            result[key] = answer.get(key, "")
        if answer.get("findings"):
            tried = bool(answer.get("changed"))
            result["changed"] = tried
            touched = f"It was tried: {answer['command']}" if tried else "Nothing was reset."
            return refuse.result(result, f"The reset on {name}", answer["findings"], touched=touched)
        if answer.get("failed"):
            result.update(failed=True, msg=f"the reset was not tried: {answer.get('msg') or answer.get('module_stderr')}")
            return result
        word = "would run" if self._task.check_mode else "did"
        display.display(f"  {name}: {word} {answer['command']}")
        for card in [c for c in result["cards"] or [] if c["when"] == "after"]:
            display.display(f"  {name}: card {card['index']} answers: {card['health']}, {card['memory_used_mib']} MiB in use")
        result["changed"] = True
        return result
