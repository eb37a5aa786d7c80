"""Action: walk the acceptance ladder of one service, show the verdicts, keep the evidence of a failure."""

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.plan import only
from ansible_collections.modelyard.core.plugins.plugin_utils import call
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
#: Instances with these actions do not run when the ladder is walked.
NOT_SERVED = ("stop", "leave", "refused")
#: Those were proven when they were restarted.
PROVEN = "restart"
#: The next deploy asks nobody who is proven already.
LATER = "When that is solved: playbooks/acceptance.yml -e acceptance_admit=true"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: those of the module, `always` (ask also instances that are proven already), `only` of the intent, and `admit`:
    a running gateway of the service sends requests to what has passed the whole ladder.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns `steps` and `passed`; fails with the first step that failed and the place of the evidence."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = plain(self._task.args)
        always, admit = bool(args.pop("always", False)), bool(args.pop("admit", False))
        about, name = args.pop("only", {}), args["service"]["name"]
        wanted = [i for i in args["service"]["instances"] if i["action"] not in NOT_SERVED]
        wanted = [i for i in wanted if only.concerns(about, name, i["index"])]
        wanted = [i for i in wanted if always or not (i["accepted"] or i["action"] == PROVEN)]
        args["service"]["instances"] = wanted
        result["service"] = name
        if not wanted:
            result.update(changed=False, skipped=True)
            return result
        asked = args["service"]["acceptance"]["serial_requests"]
        if not self._task.check_mode:
            display.display(
                f"  asking {name}: {', '.join(args.get('steps') or ['all steps'])} (with {asked} requests one at a time)"
            )
        answer = call.module(self, "service_probe", args, task_vars or {})
        result.update(changed=False, skipped=answer.get("skipped", False))
        if result["skipped"]:
            return result
        for step in answer["steps"]:
            word = "pass" if step["passed"] else "FAIL"
            display.display(f"  {word}  {name}/{step['instance']} {step['id']}: {step['detail']}")
        result.update(
            passed=answer["passed"],
            result=answer["result"],
            manifest=answer["manifest"],
            steps=[{k: v for k, v in step.items() if k != "evidence"} for step in answer["steps"]],
        )
        failed = [step for step in answer["steps"] if not step["passed"]]
        if failed:
            first = failed[0]
            evidence = {f"{step['id']}/{step['instance']}": step["evidence"] for step in answer["steps"]}
            replies = {"replies.json": json.dumps(evidence, indent=1)}
            kept_in = call.keep_evidence(self, args["home"], name, f"failed_{first['id']}", replies, task_vars or {})
            result.update(
                failed=True,
                msg=f"{name} was not accepted: step {first['id']} failed on instance {first['instance']}: {first['detail']}. "
                f"{kept_in}. The service was left as it is.",
            )
        if admit and args["service"].get("gateway"):
            self._admit(args["home"], name, acceptance.proven(answer["steps"]), result, task_vars or {})
        return result

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
