"""Action: walk the acceptance ladder of one service and show the verdicts."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.plan import acceptance_text, only
from ansible_collections.modelyard.core.plugins.plugin_utils import call
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
#: The plan refuses it, so what it would be judged by is not what runs there.
REFUSED = "refused"
#: Instances with these actions do not run when the ladder is walked.
NOT_SERVED = ("stop", "leave", REFUSED)
#: Those were proven when they were restarted.
PROVEN = "restart"
#: The next deploy asks nobody who is proven already.
LATER = "When that is solved: playbooks/acceptance.yml -e acceptance_admit=true"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: those of the module, `always` (ask also instances that are proven already), `only` of the intent, `admit` (a
    running gateway of the service sends requests to what has passed the whole ladder), and `findings` of the plan.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the result as it was written down, `result` and `evidence` (places on the host) and `busy`.

        Fails with the first step that failed, and, with `always`, when there are instances that were not asked because the plan
        refuses them: `refused`. A service that is at work for others is shown as busy, which is no failure.
        """
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = plain(self._task.args)
        always, admit = bool(args.pop("always", False)), bool(args.pop("admit", False))
        about, name, findings = args.pop("only", {}), args["service"]["name"], args.pop("findings", [])
        concerned = [i for i in args["service"]["instances"] if only.concerns(about, name, i["index"])]
        wanted = [i for i in concerned if i["action"] not in NOT_SERVED]
        wanted = [i for i in wanted if always or not (i["accepted"] or i["action"] == PROVEN)]
        args["service"]["instances"] = wanted
        refused = [i["index"] for i in concerned if i["action"] == REFUSED] if always else []
        result.update(service=name, refused=refused)
        if not wanted:
            result.update(changed=False, skipped=not refused or self._task.check_mode)
            if not result["skipped"]:
                result.update(failed=True, msg=acceptance_text.refused(name, refused, findings))
            return result
        if not self._task.check_mode:
            display.display(f"  asking {name}: {self._steps(args)}")
        answer = call.module(self, "service_probe", args, task_vars or {})
        result.update(changed=False, skipped=answer.get("skipped", False))
        if result["skipped"]:
            return result
        found = answer["acceptance"]
        beside = {key: answer[key] for key in ("result", "evidence", "manifest", "load")}
        result.update(**found, **beside, busy=False)
        for line in acceptance_text.lines(found):
            display.display(f"  {line}")
        failing = acceptance.failing(found["steps"])
        lost = acceptance_text.not_kept(answer)
        if failing:
            result.update(failed=True, msg=acceptance_text.failure(name, failing[0], answer["evidence"], lost))
        elif refused:
            result.update(failed=True, msg=acceptance_text.refused(name, refused, findings))
        elif lost:
            result.update(failed=True, msg=f"{name}: {lost}")
        elif not found["passed"]:
            result["busy"] = True
        if admit and args["service"].get("gateway"):
            proven = acceptance.proven(args["service"], found["steps"])
            self._admit(args["home"], name, proven, result, task_vars or {})
        return result

    @staticmethod
    def _steps(args: dict[str, Any]) -> str:
        steps = acceptance.ladder(args["service"], depth=args.get("depth") or acceptance.FULL)
        ids = args.get("steps") or [step.id for step in steps]
        asked = args["service"]["acceptance"]["serial_requests"]
        return ", ".join(ids) + (f" ({asked} requests one at a time)" if "serial" in ids else "")

    def _admit(self, home: str, name: str, indexes: list[int], result: dict[str, Any], variables: dict[str, Any]) -> None:
        """Let the gateway send requests to these; that it cannot be told may not hide what else has failed."""
        try:
            told = call.module(self, "gateway_control", {"home": home, "service": name, "in": indexes}, variables)
        except AnsibleActionFail as exc:
            before = [result["msg"]] if result.get("failed") else []
            words = f"{name}: what has been proven gets no requests yet: {str(exc).rstrip('.')}. {LATER}"
            result.update(failed=True, msg=" ".join([*before, words]))
            return
        result["changed"] = bool(told["changed"])
        for line in told["actions"]:
            display.display(f"  {line}")
