"""What a module that changes packages of a host has answered: shown as steps, and refused with its findings."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.plugin_utils import refuse

display = Display()


def told(action: ActionBase, result: dict[str, Any], answer: dict[str, Any], name: str, subject: str) -> dict[str, Any]:
    """The result with the steps and the findings of `answer`. `subject`: what was to be changed on the host `name`."""
    for key in ("steps", "diff", "changed"):
        result[key] = answer.get(key, result.get(key))
    was_done = answer.get("changed") and not action._task.check_mode
    for step in result["steps"] or []:
        display.display(f"  {name}: {'did' if was_done else 'would do'}  {step['kind']}: {step['words']}")
    if answer.get("findings"):
        touched = "Something was changed." if was_done else "Nothing was changed."
        return refuse.result(result, f"{subject} of {name}", answer["findings"], touched=touched)
    if answer.get("failed"):
        said = answer.get("msg") or answer.get("module_stderr") or "it did not say why"
        result.update(failed=True, msg=f"{subject} of {name} was not changed: {said}")
    return result
