"""Action: open the diagnostic window on one instance, show what it says, and keep it as evidence."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.judge import diagnose as judge
from ansible_collections.modelyard.core.plugins.module_utils.judge import diagnose_text
from ansible_collections.modelyard.core.plugins.module_utils.plan import diagnose as plan
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number
from ansible_collections.modelyard.core.plugins.plugin_utils import call, refuse
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
REASON = "diagnose"


class ActionModule(ActionBase):  # type: ignore[misc]
    """`plan` (plan_result), `intent`, `service`, `index`, `limit_s`. Fails when the engine did not do well; restarts nothing."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Look, ask one alone, then two at once; judge, keep, show."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, args = task_vars or {}, plain(self._task.args)
        service = next(one for one in args["plan"]["services"] if one["name"] == args["service"])
        index, limit_s = int(args["index"]), max(1.0, float(args["limit_s"]))
        name, home = f"{service['name']}/{index}", args["intent"]["home"]
        accelerators = {
            key: {**entry, "tool_places": [*args["intent"]["tool_path"], *entry["tool_places"]]}
            for key, entry in tables.accelerators().items()
            if key == service["backend"]
        }
        asked = {
            "home": home,
            "service": service["name"],
            "index": index,
            "metrics": service["metrics"],
            "backends": accelerators,
            "sysroot": args["intent"]["sysroot"],
            "limit_s": limit_s,
        }
        look = call.module(self, "diagnose_window", asked, variables)["seen"]
        found = plan.readiness(look, f"{variables.get('inventory_hostname', '')}:{name}")
        if found:
            return refuse.result(result, f"The diagnosis of {name}", found, touched="Nothing was asked or changed.")
        if self._task.check_mode:
            display.display(f"  would ask {name} one request with a schema alone, then two at once, {limit_s:.0f} s at most each")
            result.update(changed=False, skipped=True)
            return result
        body = judge.body(service["model"]["id"])
        display.display(f"  {name}: one request with a schema, alone ({limit_s:.0f} s at most)")
        alone = call.module(self, "diagnose_window", {**asked, "bodies": [body]}, variables)["seen"]
        together = None
        if not judge.fault(alone).id:
            display.display(f"  {name}: two at once ({limit_s:.0f} s at most)")
            together = call.module(self, "diagnose_window", {**asked, "bodies": [body, body]}, variables)["seen"]
        slots = number(service["engine"].get("max_num_seqs"))
        said = judge.verdict(alone, together, slots, args["plan"]["findings"])
        stages = {"alone": alone, "together": together}
        instance = next(one for one in service["instances"] if one["index"] == index)
        cards = {card for rank in instance["cards"] for card in rank} if accelerators else set()
        shown = diagnose_text.report(name, said, stages, cards)
        documents = {
            "verdict.txt": shown + "\n",
            "window.json": json.dumps({"schema": 1, "verdict": said, "look": look, **stages}, indent=1),
            "findings.json": json.dumps(args["plan"]["findings"], indent=1),
            "survey.json": args["plan"]["survey_json"],
        }
        kept = call.keep_evidence(self, home, service["name"], REASON, documents, variables)
        display.display("\n" + shown + f"\n  {kept}")
        result.update(changed=False, verdict=said, evidence=kept)
        if said["id"] != "both_answered":
            result.update(failed=True, msg=f"{name}: {said['what']}. {kept}. Nothing was restarted.")
        return result
