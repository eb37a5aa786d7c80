"""Action: render the templates of many small files and have them written in one step."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader
from ansible_collections.modelyard.core.plugins.module_utils.process.files import packed
from ansible_collections.modelyard.core.plugins.plugin_utils import program
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

#: What a template sees besides its own variables. All of them would be copied for each file, with whole surveys among them.
SEEN = ("ansible_managed", "ansible_search_path")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: those of the module; a file may have `template` and `vars`, or `program`, in place of `content`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Render and write; in check mode with the same result as if it had been done."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        seen = {name: self._templar.template(variables[name]) for name in SEEN if name in variables}
        lookup = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=self._templar)
        files: list[dict[str, Any]] = []
        built: dict[str, str] = {}
        for wanted in plain(self._task.args["files"]):
            template, own = wanted.pop("template", ""), wanted.pop("vars", {})
            made = wanted.pop("program", "")
            if made:
                built[made] = built.get(made) or packed(program.PROGRAMS[made]())
                wanted["packed"] = built[made]
            if template:
                (wanted["content"],) = lookup.run([template], variables=dict(seen), template_vars=own)
            files.append(plain(wanted))
        result.update(
            self._execute_module(module_name="modelyard.core.write_files", module_args={"files": files}, task_vars=variables)
        )
        return result
