"""Action: put the by-hand program of a service on its host."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.plugin_utils import program


class ActionModule(ActionBase):  # type: ignore[misc]
    """`dest`, `mode`: as of the module copy, which does the work, so that check mode and diff are its own."""

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Build it from this checkout and copy it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        with tempfile.TemporaryDirectory(prefix="modelyard-") as folder:
            built = Path(folder, "modelyard.pyz")
            built.write_bytes(program.build())
            task = self._task.copy()
            task.args = {"src": str(built), "dest": self._task.args["dest"], "mode": self._task.args["mode"]}
            copy = self._shared_loader_obj.action_loader.get(
                "ansible.legacy.copy",
                task=task,
                connection=self._connection,
                play_context=self._play_context,
                loader=self._loader,
                templar=self._templar,
                shared_loader_obj=self._shared_loader_obj,
            )
            result.update(copy.run(task_vars=task_vars))
        return result
