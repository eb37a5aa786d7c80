"""Action: print text for people, as it is, and keep it in the result for programs."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`text`: what to print. `refuse`: fail with it instead."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print, or fail with the text as the message."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        text = str(self._task.args["text"])
        result["changed"] = False
        if self._task.args.get("refuse"):
            result.update(failed=True, msg=text)
        else:
            display.display("\n" + text)
            result["text"] = text
        return result
