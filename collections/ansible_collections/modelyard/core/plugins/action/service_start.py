"""Action: start the instances of a service in waves, and show each start."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.plugin_utils import call, deaths
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: "home", "service", "instances" ({name, index, digest} of those to start), "start" ({stagger_s, wave})."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """A wave, a pause, the next one; no further one when an engine of an earlier wave has ended at once."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = plain(self._task.args), task_vars or {}
        place = {"home": args["home"], "service": args["service"]}
        waiting, wave = args["instances"], max(1, int(args["start"]["wave"]))
        # `indexes` is kept whatever comes: what was started must be known to those who stop it again.
        result.update(changed=False, started=[], indexes=[], states={})
        while waiting:
            now, waiting = waiting[:wave], waiting[wave:]
            # The pause is made on the host: only there it is known when the last ones were started.
            wanted = {**place, "instances": now, "earlier": result["indexes"], "stagger_s": args["start"]["stagger_s"]}
            try:
                answer = call.module(self, "service_instance", wanted, variables)
            except AnsibleActionFail as exc:
                said = exc.result if isinstance(exc.result, dict) else {}
                _take(result, said)
                left = f" Not started: {_names(waiting)}." if waiting else ""
                result.update(failed=True, msg=f"{said.get('msg') or exc}.{left}")
                return result
            _take(result, answer)
            if answer["ended"]:
                seen = call.module(self, "service_wait", {**place, "indexes": answer["ended"], "wait_s": 0.0}, variables)
                ended = {i: one for i, one in seen["instances"].items() if one["ended"]}
                msg = deaths.tell(self, args["home"], args["service"], ended, variables)
                result.update(failed=True, msg=f"{msg} Not started: {_names([*now, *waiting])}.")
                return result
            _show(args["service"], answer)
        return result


def _take(result: dict[str, Any], answer: dict[str, Any]) -> None:
    for key in ("started", "indexes"):
        result[key] += answer.get(key) or []
    result["states"].update(answer.get("states") or {})
    result["changed"] = bool(result["started"])


def _names(instances: list[dict[str, Any]]) -> str:
    return ", ".join(instance["name"] for instance in instances)


def _show(service: str, answer: dict[str, Any]) -> None:
    for index in answer["indexes"]:
        state = answer["states"][str(index)]
        name = (state.get("supervised") or {}).get("name")
        display.display(
            f"  {service}/{index}: started, pid {state['leader']['pid']}{f', {name}' if name else ''}; log {state['log']}"
        )
