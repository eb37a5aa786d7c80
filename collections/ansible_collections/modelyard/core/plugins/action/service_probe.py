"""Action: walk the acceptance ladder of one service; each step only after the one before has passed."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.plugin_utils import call
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


def validate(value: Any, schema: dict[str, Any]) -> list[str]:
    """Every way in which a value does not fit a schema."""
    return [f"{e.json_path}: {e.message}" for e in jsonschema.Draft202012Validator(schema).iter_errors(value)]


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: home, service (entry of the plan), steps (ids; none for all)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns `steps` and `passed`; fails with the table and the evidence when a step fails."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = plain(self._task.args)
        self.service, self.home, self.variables = args["service"], args["home"], task_vars or {}
        self.offsets: dict[str, int] = {}
        self.evidence: dict[str, Any] = {}
        result["changed"] = False
        if self._task.check_mode:
            result["skipped"] = True
            return result
        try:
            ladder = acceptance.ladder(args.get("steps"))
        except KeyError as exc:
            raise AnsibleActionFail(str(exc.args[0])) from exc
        steps: list[dict[str, Any]] = []
        for names in acceptance.ROUNDS:
            steps += self._ask([step for step in ladder if step.id in names])
            failed = [s for s in steps if not s["passed"]]
            if failed:
                break
        passed = all(s["passed"] for s in steps)
        record = {"passed": passed, "complete": len(ladder) == len(acceptance.LADDER), "steps": steps}
        kept = call.module(
            self,
            "service_probe",
            {**self._base(), "record": record},
            self.variables,
        )
        result.update(steps=steps, passed=passed, result=kept["result"])
        if not passed:
            first_failed = next(s for s in steps if not s["passed"])
            reason = f"failed_{first_failed['id']}"
            replies = {"replies.json": json.dumps(self.evidence, indent=1)}
            kept_in = call.keep_evidence(self, self.home, self.service["name"], reason, replies, self.variables)
            result.update(
                failed=True,
                msg=f"{self.service['name']} was not accepted: step {first_failed['id']} failed on instance "
                f"{first_failed['instance']}: {first_failed['detail']}. {kept_in}. The service was left as it is.",
            )
        return result

    def _base(self) -> dict[str, Any]:
        return {"home": self.home, "service": self.service["name"]}

    def _ask(self, batch: list[acceptance.Step]) -> list[dict[str, Any]]:
        """Ask every instance for the steps of one round, and judge in order; stops at the first failure."""
        if not batch:
            return []
        wanted = {"plan": self.service, "steps": [step.id for step in batch], "offsets": self.offsets}
        timeout_s = self.service["acceptance"]["request_timeout_s"]
        answer = call.module(self, "service_probe", {**self._base(), **wanted, "timeout_s": timeout_s}, self.variables)
        judged = []
        for number, step in enumerate(batch):
            for instance in self.service["instances"]:
                seen = answer["seen"][str(instance["index"])]
                self.offsets[str(instance["index"])] = seen["offset"]
                evidence = seen["answers"][number]
                complaint, detail = step.judge(self.service, instance, evidence, validate)
                if not complaint and seen["fatal"]:
                    complaint = f"the engine's log has become fatal: {seen['fatal'][0]} (log: {seen['log']})"
                if not complaint and not seen["alive"]:
                    complaint = f"the engine has ended (log: {seen['log']})"
                self.evidence[f"{step.id}/{instance['index']}"] = {**evidence, "fatal": seen["fatal"]}
                verdict = {
                    "id": step.id,
                    "instance": instance["index"],
                    "passed": not complaint,
                    "seconds": evidence["seconds"],
                    "detail": complaint or detail,
                }
                judged.append(verdict)
                word = "pass" if verdict["passed"] else "FAIL"
                display.display(f"  {word}  {self.service['name']}/{instance['index']} {step.id}: {verdict['detail']}")
            if any(not v["passed"] for v in judged):
                break
        return judged
