"""Action: what happened to requests on all hosts of the play, as text and as a JSON file on the control node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.judge import requests_text
from ansible_collections.modelyard.core.plugins.plugin_utils import report
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`json`: path on the control node, empty for none. `stories`: tell each request that was found. Meant for run_once.

    A host whose logs could not be read always fails the run. Failed requests do not: they are what was asked for.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect what each host has registered, print it, write it down."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        hosts = {name: _of(host) for name, host in report.registered(task_vars or {}).items()}
        display.display("\n" + requests_text.report(hosts, bool(self._task.args.get("stories"))))
        path = str(self._task.args.get("json") or "")
        if path:
            report.write(Path(path).expanduser(), hosts)
            display.display(f"  Written: {path}")
        logs = [log for host in hosts.values() for log in host["logs"]]
        result.update(changed=False, lines=sum(log["lines"] for log in logs), failed_requests=sum(log["failed"] for log in logs))
        silent = [name for name, host in hosts.items() if host["problem"]]
        if silent:
            result.update(failed=True, msg=f"the logs of {', '.join(silent)} were not read; the reasons stand above")
        elif not logs:
            result.update(
                failed=True, msg="no service has a result log; it is written by the gateway when its log is switched on"
            )
        return result


def _of(host: Mapping[str, Any]) -> dict[str, Any]:
    """What one host has registered; `problem` says in words why nothing was."""
    said = ""
    for task in ("modelyard_intent", "requests_result"):
        answer = plain(dict(host[task])) if task in host else {}
        if "logs" in answer:
            return {"logs": answer["logs"], "problem": ""}
        found = [f"{item['id']} {item['where']}: {item['what']} -> {item['do']}" for item in answer.get("findings", [])]
        said = "; ".join(found) or str(answer.get("msg") or said)
    return {"logs": [], "problem": said or "no reason was given; run again with -vvv"}
