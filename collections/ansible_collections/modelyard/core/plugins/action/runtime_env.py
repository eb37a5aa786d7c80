"""Action: make runtimes phase by phase, and say what is being done."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables, vendor
from ansible_collections.modelyard.core.plugins.plugin_utils import call, control
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
PHASES = {
    "begin": "making an empty environment",
    "torch": "installing torch",
    "packages": "installing all it needs, at exact versions",
    "finish": "importing it to prove it",
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """`name`, `path`, `vendor` and `environment` of an entry of the plan's runtimes; vendor_files of the intent; python,
    torch_index_url, index_url, find_links, wheelhouse.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make it if it is not there; unchanged when it is."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = plain(self._task.args)
        name = args.pop("name")
        known = vendor.chosen(tables.runtime(name), args.pop("vendor_files"))
        assert known is not None, name
        args.update(
            lock=known.lock,
            digest=known.digest,
            torch_packages=list(known.torch_packages),
            expect=known.expect,
            check=known.check,
            metadata_shim=known.metadata_shim or {},
            left_out=list(known.left_out),
            run=control.run_id(),
        )
        began = time.monotonic()
        for number, (phase, words) in enumerate(PHASES.items(), 1):
            if not self._task.check_mode and phase != "begin":
                display.display(f"  [{time.monotonic() - began:4.0f} s] {name}: {words} ({number}/{len(PHASES)})")
            answer = call.module(self, "runtime_env", {**args, "phase": phase}, task_vars or {})
            result.update(answer)
            if answer["present"] or self._task.check_mode:
                break
        if result["changed"] and not self._task.check_mode:
            display.display(f"  [{time.monotonic() - began:4.0f} s] {name}: made; log {result['log']}")
        return result
