"""Action: wait until every instance of a service answers, and show what the engines are doing."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.plugin_utils import call, deaths
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
WATCH_S = 20.0


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: home, service, indexes, timeout_s (from the start of each engine)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ends at once when an engine has ended: the deciding lines and the log's place, and not a time-out."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = plain(self._task.args)
        timeout_s = float(args.pop("timeout_s"))
        service = args["service"]
        result["changed"] = False
        if self._task.check_mode:
            result["skipped"] = True
            return result
        known: dict[str, str] = {}
        while True:
            wanted = {**args, "known": known, "wait_s": min(WATCH_S, timeout_s)}
            answer = call.module(self, "service_wait", wanted, task_vars or {})
            seen = answer["instances"]
            for one in answer["news"]:
                display.display(f"  [{one['elapsed_s']:4.0f} s] {service}/{one['index']}: {one['words']}")
                known[one["index"]] = one["words"]
            ended = {i: s for i, s in seen.items() if s["ended"]}
            if ended:
                result.update(failed=True, msg=deaths.tell(self, args["home"], service, ended, task_vars or {}))
                return result
            if all(s["ready"] for s in seen.values()):
                result["instances"] = seen
                return result
            late = {i: s for i, s in seen.items() if not s["ready"] and s["elapsed_s"] > timeout_s}
            if late:
                kept_in = call.keep_evidence(self, args["home"], service, "not_ready", {}, task_vars or {})
                result.update(failed=True, msg=f"{_late(service, late, timeout_s)} {kept_in}")
                return result


def _late(service: str, late: dict[str, Any], timeout_s: float) -> str:
    lines = [
        f"{service}/{i} is not ready after {timeout_s:.0f} s; it is still {s['words']}. Log: {s['log']}" for i, s in late.items()
    ]
    return " ".join([*lines, "Raise ready_timeout_s of the service if it only needs longer."])
