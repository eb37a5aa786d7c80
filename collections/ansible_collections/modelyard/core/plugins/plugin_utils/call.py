"""Calling the module of the same name from an action plugin."""

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
