"""Action: restart instances of a service one at a time, each proven before the next one is touched."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.plugin_utils import call
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: home, runtimes_dir, service (of the plan), instances ({name, index, digest} to restart), timeout_s, grace_s.

    Stops at the first instance that does not come back: the ones after it go on with their old parameters.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns `restarted`, `failed_at` (name of an instance or ""), `untouched` and the steps of the ladders."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = plain(self._task.args), task_vars or {}
        waiting = list(args["instances"])
        result.update(changed=bool(waiting), service=args["service"]["name"], restarted=[], failed_at="", untouched=[], steps=[])
        if self._task.check_mode:
            for one in waiting:
                display.display(f"  {one['name']}: would be stopped, started and proven before the next one")
            return result
        while waiting:
            one = waiting.pop(0)
            display.display(f"  {one['name']}: restart ({len(waiting)} to come after it)")
            try:
                self._restart(args, one, result, variables)
            except AnsibleActionFail as exc:
                untouched = [other["name"] for other in waiting]
                goes_on = f" Not touched, they run as before: {', '.join(untouched)}." if untouched else ""
                done = f" Restarted and proven: {', '.join(result['restarted'])}." if result["restarted"] else ""
                msg = f"the restart of {one['name']} failed: {str(exc).rstrip('.')}.{done}{goes_on}"
                result.update(failed=True, failed_at=one["name"], untouched=untouched, msg=msg)
                return result
            result["restarted"].append(one["name"])
        return result

    def _restart(self, args: dict[str, Any], one: dict[str, Any], result: dict[str, Any], variables: dict[str, Any]) -> None:
        place = {"home": args["home"], "service": args["service"]["name"]}
        stop = {**place, "indexes": [one["index"]], "runtimes_dir": args["runtimes_dir"], "grace_s": args["grace_s"]}
        for line in call.module(self, "guarded_stop", stop, variables)["actions"]:
            display.display(f"    {line}")
        try:
            call.action(self, "service_start", {**place, "instances": [one], "start": {"stagger_s": 0, "wave": 1}}, variables)
            call.action(self, "service_wait", {**place, "indexes": [one["index"]], "timeout_s": args["timeout_s"]}, variables)
        except AnsibleActionFail:
            # A half-started engine would be in the way of the next run.
            call.module(self, "guarded_stop", stop, variables)
            raise
        alone = [instance for instance in args["service"]["instances"] if instance["index"] == one["index"]]
        probe = {"home": args["home"], "service": {**args["service"], "instances": alone}, "steps": [], "always": True}
        result["steps"] += call.action(self, "service_probe", probe, variables)["steps"]
