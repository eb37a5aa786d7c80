"""Action: read the inventory's wish. Runs on the control node, touches no host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import intent, text
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import count, finding, refusals
from ansible_collections.modelyard.core.plugins.plugin_utils import control, plain

display = Display()
PREFIX = "modelyard_"
#: Set by the playbooks themselves.
FACTS = ("modelyard_intent", "modelyard_hosts")


class ActionModule(ActionBase):  # type: ignore[misc]
    """`spec`: path of the argument_specs.yml that describes the inventory's language. Register it as modelyard_intent."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate everything at once; fail with every finding, or return the whole intent with defaults filled in."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        spec = yaml.safe_load(Path(self._task.args["spec"]).read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
        given = {name: plain.plain(self._templar.template(variables[name])) for name in spec if name in variables}
        findings = intent.unknown_variables(variables, [*spec, *FACTS], PREFIX)
        for name, value in given.items():
            findings += intent.unknown_keys(value, spec[name], name)
        checked = ArgumentSpecValidator(_without_documentation(spec)).validate(given)
        # Unknown keys are named above, with the nearest right one.
        errors = [e for e in checked.error_messages if "nsupported parameters" not in e]
        findings += [finding("IN-VALUE", "inventory", e, "correct it there; nothing was changed on the host") for e in errors]
        wanted = _filled(checked.validated_parameters, spec)
        services = wanted["modelyard_services"]
        if not refusals(findings):
            findings += intent.meaning(services)
        names = [s.get("name") for s in services]
        findings += [
            finding(
                "IN-KEY-UNKNOWN",
                f"modelyard_api_keys.{name}",
                f"there is no service {name}{intent.nearest(name, names)}",
                f"services of this host: {', '.join(names)}",
            )
            for name in wanted["modelyard_api_keys"]
            if name not in names
        ]
        if refusals(findings):
            host = variables.get("inventory_hostname", "")
            display.display("\n".join([f"\nFindings in the inventory of {host}: {count(findings)}", *text.findings(findings)]))
            result.update(failed=True, msg=text.refusal(f"The inventory of {host}", findings))
            return result
        home = _expanded(self, wanted["modelyard_home"])
        result.update(
            home=home,
            runtimes_dir=_expanded(self, wanted["modelyard_runtimes_dir"]) or f"{home}/runtimes",
            python=wanted["modelyard_python"],
            restart=wanted["modelyard_restart"],
            run=control.run_id(),
            services=[{**s, "secured": s["name"] in wanted["modelyard_api_keys"]} for s in services],
        )
        return result


def _expanded(action: ActionBase, path: str) -> str:
    """`~` means the home of the user that works on the host, so it is asked there."""
    if not path.startswith("~"):
        return path.rstrip("/")
    return str(action._remote_expand_user(path)).rstrip("/")


def _without_documentation(spec: dict[str, Any]) -> dict[str, Any]:
    """An argument spec as the validator wants it: no descriptions."""
    clean: dict[str, Any] = {}
    for name, entry in spec.items():
        clean[name] = {k: v for k, v in entry.items() if k not in ("description", "options")}
        if "options" in entry:
            clean[name]["options"] = _without_documentation(entry["options"])
    return clean


def _filled(value: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """The values with every default of the spec, at every depth; the validator leaves out those of absent groups."""
    filled = dict(value)
    for name, entry in spec.items():
        current = filled.get(name)
        if current is None:
            current = entry.get("default")
        options = entry.get("options")
        if options and isinstance(current, list):
            current = [_filled(item, options) for item in current]
        elif options and isinstance(current, dict):
            current = _filled(current, options)
        filled[name] = current
    return filled
