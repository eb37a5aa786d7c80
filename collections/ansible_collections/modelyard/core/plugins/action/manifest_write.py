"""Action: write the manifest of a service in the name of the one who runs this playbook."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.plugin_utils import call, control
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: `home`, `manifest`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Who deploys is known here, who works on the host is known there."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = {**plain(self._task.args), "deployed": control.deployer()}
        result.update(call.module(self, "manifest_write", args, task_vars or {}))
        return result
