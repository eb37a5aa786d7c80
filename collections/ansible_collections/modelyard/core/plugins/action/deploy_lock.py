"""Action: take or release the lock of a home in the name of this run."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.plugin_utils import call, control


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: home, state, expect, and `what` is being done, for those who find the lock."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Take it; a lock whose run has died on this control node is taken over."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        args["holder"] = control.holder(args.pop("what", "a run"))
        answer = call.module(self, "deploy_lock", args, task_vars or {})
        if answer.get("held_by") is not None and control.has_died(answer["held_by"]):
            answer = call.module(self, "deploy_lock", {**args, "dead_run": answer["held_by"]["run"]}, task_vars or {})
        held = answer.get("held_by")
        if held is not None:
            answer["failed"] = True
            answer["msg"] = (
                f"PF-LOCK-HELD: another run holds the lock of {args['home']}: {held.get('what', 'unknown')} "
                f"by {held.get('by', 'unknown')} since {held.get('since', 'unknown')}. Nothing was changed. "
                "Wait for it to end and run again; if that run has died on another control node, remove the file "
                f"{args['home']}/lock on the host."
            )
        result.update(answer)
        return result
