"""Action: restart instances of a service one after the other, each proven before the next one is touched."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.plugin_utils import call
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


#: Whoever sends requests past the gateway can do so while an instance is being proven.
BUSY = "{} runs, but it is at work for others already and could not be proven; when it is idle: playbooks/acceptance.yml"


def _names(batch: list[dict[str, Any]]) -> str:
    return ", ".join(one["name"] for one in batch)


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: home, runtimes_dir, service (of the plan), batches, timeout_s, grace_s.

    A batch is a list of {name, index, digest, texts}: one instance, or several that take over ports or cards from each other. It
    gets its files (`texts`) between its stop and its start. The first one that does not come back ends the run: the ones after it
    go on with their old parameters, also when they are started anew after a crash. Where the service has a running gateway, the
    stop takes a batch out of it and only its proof takes it in again.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns `restarted`, `failed_at` (names of instances or ""), `untouched` and the steps of the ladders."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = plain(self._task.args), task_vars or {}
        waiting = [list(batch) for batch in args["batches"]]
        result.update(changed=bool(waiting), service=args["service"]["name"], restarted=[], failed_at="", untouched=[], steps=[])
        result["diff"] = []
        if self._task.check_mode:
            for batch in waiting:
                display.display(f"  {_names(batch)}: would be stopped, started and proven before the next one")
            return result
        while waiting:
            batch = waiting.pop(0)
            together = ": together, for they take over ports or cards from each other" if len(batch) > 1 else ""
            display.display(f"  {_names(batch)}: restart ({sum(map(len, waiting))} to come after it){together}")
            try:
                self._restart(args, batch, result, variables)
            except AnsibleActionFail as exc:
                untouched = [other["name"] for later in waiting for other in later]
                goes_on = f" Not touched, they run as before: {', '.join(untouched)}." if untouched else ""
                done = f" Restarted and proven: {', '.join(result['restarted'])}." if result["restarted"] else ""
                msg = f"the restart of {_names(batch)} failed: {str(exc).rstrip('.')}.{done}{goes_on}"
                msg += self._left_out(args, batch, variables)
                result.update(failed=True, failed_at=_names(batch), untouched=untouched, msg=msg)
                return result
            result["restarted"] += [one["name"] for one in batch]
        return result

    def _restart(
        self, args: dict[str, Any], batch: list[dict[str, Any]], result: dict[str, Any], variables: dict[str, Any]
    ) -> None:
        place = {"home": args["home"], "service": args["service"]["name"]}
        indexes = [one["index"] for one in batch]
        stop = {**place, "indexes": indexes, "runtimes_dir": args["runtimes_dir"], "grace_s": args["grace_s"]}
        for line in call.module(self, "guarded_stop", stop, variables)["actions"]:
            display.display(f"    {line}")
        written = call.action(self, "write_files", {"files": [text for one in batch for text in one["texts"]]}, variables)
        result["diff"] += written.get("diff") or []
        named = [{key: one[key] for key in ("name", "index", "digest")} for one in batch]
        try:
            start = args["service"]["start"]
            call.action(self, "service_start", {**place, "instances": named, "start": start}, variables)
            call.action(self, "service_wait", {**place, "indexes": indexes, "timeout_s": args["timeout_s"]}, variables)
        except AnsibleActionFail:
            # A half-started engine would be in the way of the next run.
            call.module(self, "guarded_stop", stop, variables)
            raise
        alone = [instance for instance in args["service"]["instances"] if instance["index"] in indexes]
        probe = {
            "home": args["home"],
            "service": {**args["service"], "instances": alone},
            "steps": [],
            "always": True,
            "admit": True,
            "gateway_comes_after": True,
        }
        proof = call.action(self, "service_probe", probe, variables)
        result["steps"] += proof["steps"]
        if not proof["passed"]:
            # The next one may not be touched while this one is at work and nobody knows how well.
            raise AnsibleActionFail(BUSY.format(_names(batch)))

    def _left_out(self, args: dict[str, Any], batch: list[dict[str, Any]], variables: dict[str, Any]) -> str:
        """Whom of a batch that failed the gateway sends nothing, in words. It may not hide why the batch failed."""
        if not args["service"].get("gateway"):
            return ""
        try:
            seen = call.module(self, "gateway_control", {"home": args["home"], "service": args["service"]["name"]}, variables)
        except AnsibleActionFail as exc:
            return f" And it is not known whom the gateway sends requests to: {str(exc).rstrip('.')}."
        names = {one["name"] for one in batch}
        out = [door["name"] for door in seen["backends"] if door["draining"] and door["name"] in names]
        return f" The gateway sends no requests to {', '.join(out)} until a deploy has proven it." if out else ""
