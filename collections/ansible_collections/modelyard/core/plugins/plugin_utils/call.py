"""Calling modules and other actions of the collection from an action plugin."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


def module(action: ActionBase, name: str, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
    """Run modelyard.core.NAME on the host; its failure is ours, with its own words."""
    result: dict[str, Any] = action._execute_module(module_name=f"modelyard.core.{name}", module_args=args, task_vars=task_vars)
    if result.get("failed"):
        said = result.get("msg") or result.get("module_stderr") or "it did not say why"
        raise AnsibleActionFail(str(said), result=result)
    return result


def action(caller: ActionBase, name: str, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
    """Run the action plugin modelyard.core.NAME as if it were a task; its failure is ours, with its own words."""
    task = caller._task.copy()
    task.args = args
    plugin = caller._shared_loader_obj.action_loader.get(
        f"modelyard.core.{name}",
        task=task,
        connection=caller._connection,
        play_context=caller._play_context,
        loader=caller._loader,
        templar=caller._templar,
        shared_loader_obj=caller._shared_loader_obj,
    )
    result: dict[str, Any] = plugin.run(task_vars=task_vars)
    if result.get("failed"):
        raise AnsibleActionFail(str(result.get("msg") or "it did not say why"), result=result)
    return result


def keep_evidence(
    action: ActionBase, home: str, service: str, reason: str, documents: dict[str, str], task_vars: dict[str, Any]
) -> str:
    """Keep the evidence of a failure on the host; returns `Evidence: <folder>`, or why it could not be kept.

    Never fails itself: it would hide the failure it documents.
    """
    args = {"home": home, "service": service, "reason": reason, "documents": documents}
    try:
        kept = module(action, "evidence_keep", args, task_vars)
    except AnsibleActionFail as exc:
        return f"Evidence could not be kept: {exc}"
    problems = f" (not all of it: {'; '.join(kept['problems'])})" if kept["problems"] else ""
    return f"Evidence: {kept['path']}{problems}"
