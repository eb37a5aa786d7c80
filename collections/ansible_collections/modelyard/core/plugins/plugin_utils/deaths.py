"""Telling that engines have ended before they were ready: the deciding lines, and where the evidence is kept."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.plugin_utils import call

display = Display()


def tell(action: ActionBase, home: str, service: str, ended: dict[str, Any], task_vars: dict[str, Any]) -> str:
    """Show why they ended and keep the evidence; the message to fail with. `ended`: what service_wait said, by index."""
    lines = []
    for index, one in ended.items():
        lines += [f"{service}/{index} {one['words']} after {one['elapsed_s']:.0f} s, before it was ready. Its log says:"]
        lines += [f"    {line[:400]}" for line in one["deciding"]]
        lines += [f"  whole log: {one['log']}"]
    display.display("\n".join(lines))
    who = ", ".join(f"{service}/{index} {one['words']}" for index, one in ended.items())
    kept_in = call.keep_evidence(action, home, service, "died_at_start", {}, task_vars)
    return f"{who} before it was ready; the lines that decide stand above. {kept_in}"
