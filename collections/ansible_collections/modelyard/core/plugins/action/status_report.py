"""Action: the status of all hosts of the play in one table, and as a JSON file on the control node."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import status_text
from ansible_collections.modelyard.core.plugins.plugin_utils import report
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`json`: path on the control node, empty for none. `strict`: fail when there is drift. Meant for run_once.

    A host that could not be looked at always fails the run: its status is not known.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect what each host has registered, print it, write it down, judge it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        hosts = {name: _of(host) for name, host in report.registered(task_vars or {}).items()}
        display.display("\n" + status_text.report(hosts, time.time()))
        path = str(self._task.args.get("json") or "")
        if path:
            report.write(Path(path).expanduser(), hosts)
            display.display(f"  Written: {path}")
        lines, silent = status_text.count(hosts), [name for name, host in hosts.items() if host["problem"]]
        result.update(changed=False, hosts=list(hosts), drift=lines, not_looked_at=silent)
        if silent:
            result.update(failed=True, msg=f"the status of {', '.join(silent)} is not known; the reasons stand above")
        elif lines and boolean(self._task.args.get("strict") or False):
            result.update(failed=True, msg=f"{lines} line(s) of drift, and status_strict is true")
        return result


def _of(host: Mapping[str, Any]) -> dict[str, Any]:
    """What one host has registered; `problem` says in words why nothing was."""
    said = ""
    for task in ("modelyard_intent", "status_result"):
        answer = plain(dict(host[task])) if task in host else {}
        if "services" in answer and "drift" in answer:
            return {"services": answer["services"], "drift": answer["drift"], "problem": ""}
        found = [f"{item['id']} {item['where']}: {item['what']} -> {item['do']}" for item in answer.get("findings", [])]
        said = "; ".join(found) or str(answer.get("msg") or said)
    return {"services": [], "drift": [], "problem": said or "no reason was given; run again with -vvv"}
