"""Action: the driver and the DTK that the inventory asks for, on one host; or why not now."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import dtk, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import REFUSE, finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.dcu_rules import dtk_needs_driver
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.rules import Stack
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse, surveying
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
FROM_THE_SURVEY = ("home", "sysroot", "backends")


class ActionModule(ActionBase):  # type: ignore[misc]
    """`intent`; the other arguments are the module's. Wants plan_result of the host. Returns `steps` and `reload`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge what is wanted by the tables, then look, change, say what was done."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, args = task_vars or {}, plain(dict(self._task.args))
        name, intent = str(variables["inventory_hostname"]), args.pop("intent")
        request = surveying.request(intent)
        args.update({key: request[key] for key in FROM_THE_SURVEY}, host=name)
        args.update(tool_path=intent["tool_path"], dtk=str(intent["stack"]["dtk"]))
        result.update(changed=False, steps=[], reload="")
        wrong = _unfit(name, args, plain(dict(variables["plan_result"]))["stack"])
        if wrong:
            return refuse.result(result, f"Driver and DTK of {name}", wrong)
        answer = plain(self._execute_module(module_name="modelyard.core.hygon_dtk", module_args=args, task_vars=variables))
        for key in ("steps", "reload", "diff", "changed"):
            result[key] = answer.get(key, result.get(key))
        for step in result["steps"]:
            word = "would do" if self._task.check_mode or (answer.get("findings") and not answer["changed"]) else "did"
            display.display(f"  {name}: {word}  {step['kind']}: {step['words']}")
        if answer.get("findings"):
            touched = "Something was changed." if answer["changed"] else "Nothing was changed."
            return refuse.result(result, f"Driver and DTK of {name}", answer["findings"], touched=touched)
        if answer.get("failed"):
            result.update(failed=True, msg=f"nothing was changed: {answer.get('msg') or answer.get('module_stderr')}")
        elif result["reload"] and not self._task.check_mode:
            # In a deploy nothing passes this: the loaded driver does not fit there.
            touched = "Something was changed." if result["changed"] else "Nothing was changed."
            return refuse.result(result, f"The driver of {name}", [dtk.not_running(name, result["reload"])], touched=touched)
        elif not result["steps"]:
            display.display(f"  {name}: driver and DTK are as they should be")
        return result


def _unfit(name: str, args: dict[str, Any], verdict: dict[str, Any]) -> list[dict[str, str]]:
    """A driver and a DTK that the vendor does not name together are not installed."""
    loaded = next((one["loaded"] for one in verdict["sets"] if one["backend"] == "hygon"), "")
    driver = dtk.driver_of(args.get("package", "")) or loaded
    wanted = args["dtk"] if args.get("tarball") else ""
    reason = dtk_needs_driver(Stack(backend="hygon", driver=driver, dtk=wanted), tables.stack()) if driver and wanted else None
    if reason is None or reason.severity != REFUSE:
        return []
    return [finding("DT-WANTED", f"{name}:modelyard_stack.dtk", reason.what, f"{reason.do}. {dtk.NOTHING}")]
