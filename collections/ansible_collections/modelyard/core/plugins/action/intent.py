"""Action: read the inventory's wish. Runs on the control node, touches no host."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.module_utils.plan import (
    gateway,
    intent,
    intent_cards,
    meaning,
    meaning_models,
    only,
    tables,
    vendor,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding, refusals
from ansible_collections.modelyard.core.plugins.module_utils.survey import wheelhouse
from ansible_collections.modelyard.core.plugins.plugin_utils import control, plain, program, refuse

PREFIX = "modelyard_"
SERVICES, MODELS = "modelyard_services", "modelyard_models"
#: Folders on the host.
PATHS = ("modelyard_home", "modelyard_runtimes_dir", "modelyard_wheelhouse", "modelyard_vendor_wheels")
#: Set by the playbooks themselves.
FACTS = ("modelyard_intent", "modelyard_hosts")
#: Backends on which a card is a CPU core.
CORES = set(tables.backends()) - set(tables.accelerators())


class ActionModule(ActionBase):  # type: ignore[misc]
    """`roles`: the folder of the roles; their argument_specs.yml describe the language. Register it as modelyard_intent.

    `show`: print findings at once, here and in the tasks after it; without it they are only in the results, for a report.
    The extra variable `only` becomes {service: [indexes]}; without indexes all instances of that service are meant.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate everything at once; fail with every finding, or return the whole intent with defaults filled in."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        specs = _specs(Path(self._task.args["roles"]))
        spec = specs.pop("plan")
        others = [name for role in specs.values() for name in role]
        given = {name: plain.plain(self._templar.template(variables[name])) for name in spec if name in variables}
        given = {name: value for name, value in given.items() if value is not None}  # a key with nothing behind it
        show = self._task.args.get("show", True)
        findings = intent.unknown_variables(variables, [*spec, *FACTS], PREFIX)
        findings += intent.misspelt_variables(variables, others, tuple(f"{role}_" for role in specs))
        wanted, services, own = _validated(given, spec)
        findings += own
        models, own = _models(given.get(MODELS) or [], spec[MODELS]["options"])
        findings += own + meaning_models.clashes(models, services)
        keys = wanted["modelyard_api_keys"] if isinstance(wanted["modelyard_api_keys"], dict) else {}
        listed = given.get(SERVICES)
        names = [str(s.get("name")) for s in listed if isinstance(s, dict)] if isinstance(listed, list) else []
        findings += intent.unknown_services(keys, names, "modelyard_api_keys")
        findings += intent.key_findings(keys)
        checks, own = intent.switches(wanted["modelyard_checks"] if isinstance(wanted["modelyard_checks"], dict) else {})
        findings += own + self._role_inputs(variables, specs)
        about, own = only.read(plain.plain(self._templar.template(variables.get("only", ""))), services)
        # A service that is refused for something else is not known here, which is no finding of its own.
        findings += [item for item in own if not refusals(findings) or item["where"].removeprefix("only.") not in names]
        if refusals(findings):
            return refuse.result(result, f"The inventory of {variables.get('inventory_hostname', '')}", findings, show)
        home = self._expanded(wanted["modelyard_home"])
        result.update(
            home=home,
            runtimes_dir=self._expanded(wanted["modelyard_runtimes_dir"]) or f"{home}/runtimes",
            python=wanted["modelyard_python"],
            runtimes=wanted["modelyard_runtimes"],
            wheelhouse=self._expanded(wanted["modelyard_wheelhouse"]),
            wheelhouse_from=_wheelhouse_here(wanted["modelyard_wheelhouse_from"]),
            vendor_wheels=self._expanded(wanted["modelyard_vendor_wheels"]),
            vendor_files=wanted["modelyard_vendor_files"],
            models=[{**entry, "recipe": ""} for entry in models],
            models_made="",
            restart=wanted["modelyard_restart"],
            cards_expected=wanted["modelyard_cards_expected"],
            checks=checks,
            tool_path=wanted["modelyard_tool_path"],
            sysroot=wanted["modelyard_sysroot"],
            show=boolean(show),
            run=control.run_id(),
            only=about,
            stack=wanted["modelyard_stack"],
            today=f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m}",
            gateway_package=program.gateway_digest() if any(map(gateway.wanted, services)) else "",
            services=[{**s, "key_hash": _hash(s["name"], keys.get(s["name"]))} for s in services],
        )
        return result

    def _role_inputs(self, variables: dict[str, Any], specs: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
        """Wrong types of the roles' own inputs, all at once. The playbooks need no check of Ansible's for each role then.

        One that is made of facts that are not there yet cannot be judged here.
        """
        found = []
        for spec in specs.values():
            for name in sorted(spec.keys() & variables.keys()):
                try:
                    value = plain.plain(self._templar.template(variables[name]))
                except AnsibleError:
                    continue
                found += _check({name: value}, {name: spec[name]}, name)[1]
        return found

    def _expanded(self, path: str) -> str:
        """`~` means the home of the user that works on the host, so it is asked there."""
        if not path.startswith("~"):
            return path.rstrip("/")
        try:
            return str(self._remote_expand_user(path)).rstrip("/")
        except AnsibleConnectionFailure:
            return path.rstrip("/")  # the survey reports it


def _wheelhouse_here(path: str) -> dict[str, Any]:
    """What lies in the folder on the control node from which hosts get their wheels; empty path: none."""
    return wheelhouse.look(str(Path(path).expanduser().resolve()) if path else "")


def _hash(service: str, key: Any) -> str:
    """Tells one API key from another without giving it away; empty for none. Slow on purpose: keys can be short."""
    if not key:
        return ""
    return hashlib.pbkdf2_hmac("sha256", str(key).encode(), f"modelyard {service}".encode(), 200_000).hex()[:16]


def _specs(roles: Path) -> dict[str, dict[str, Any]]:
    """Options of the main entry point of every role, by role: a fresh dict of what others have read, too."""
    return {
        path.parent.parent.name: tables.read_yaml(path)["argument_specs"]["main"]["options"]
        for path in sorted(roles.resolve().glob("*/meta/argument_specs.yml"))
    }


# Ansible works on each host in a process of its own, made from the one that has read this file: so the specs are read once.
_specs(Path(__file__).resolve().parents[6] / "roles")


def _validated(given: dict[str, Any], spec: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, str]]]:
    """(site-wide values, services that are sound, findings). Each service is checked by itself, so each finding has a place."""
    site = {name: entry for name, entry in spec.items() if name != SERVICES}
    wanted, findings = _check({k: v for k, v in given.items() if k not in (SERVICES, MODELS)}, site, "inventory")
    for name, entry in site.items():
        findings += intent.unknown_keys(given.get(name), entry, name)
    findings += intent.unusable_paths({name: wanted[name] for name in PATHS}, "", tilde=True)
    if wanted["modelyard_wheelhouse_from"] and not wanted["modelyard_wheelhouse"]:
        what, do = "there is no folder on the hosts to copy to", "name it with modelyard_wheelhouse"
        findings.append(finding("IN-VALUE", "modelyard_wheelhouse_from", what, do))
    findings += vendor.inventory(wanted["modelyard_vendor_files"])
    listed = given.get(SERVICES) or []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        findings.append(
            finding("IN-VALUE", SERVICES, "it is not a list of services", "write each service as a list entry: - name: ...")
        )
        return wanted, [], findings
    services = []
    for number, item in enumerate(listed):
        where = f"{SERVICES}[{item.get('name', number)}]"
        findings += intent.unknown_keys(item, {"options": spec[SERVICES]["options"]}, where)
        service, own = _service(item, spec[SERVICES]["options"], where)
        findings += own
        if not own:
            services.append(service)
    findings += meaning.findings(services)
    return wanted, services, findings


def _models(listed: Any, spec: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Models beside the services, with their defaults."""
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        what, do = "it is not a list of models", "write each model as a list entry: - id: ..."
        return [], [finding("IN-VALUE", MODELS, what, do)]
    models, findings = [], []
    for number, item in enumerate(listed):
        where = f"{MODELS}[{item.get('id', number)}]"
        entry, own = _check(_without_nulls(item, spec), spec, where)
        findings += own or meaning_models.beside(entry, where)
        models += [] if own else [entry]
    return models, findings


def _service(item: dict[str, Any], spec: dict[str, Any], where: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """One service with its defaults; `cards` and `card_count` as the planner wants them."""
    topology, found = intent_cards.with_preset(item.get("topology"), where)
    service, own = _check(_without_nulls({**item, "topology": topology}, spec), spec, where)
    found += own
    cards, own = intent_cards.cards(service["cards"], service["backend"] in CORES, where)
    service.update(cards=cards.names, card_count=cards.limit)
    return service, found + own


def _check(value: dict[str, Any], spec: dict[str, Any], where: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Types, choices and required keys by Ansible's own validator; unknown keys are named elsewhere, with the nearest one."""
    try:
        checked = ArgumentSpecValidator(_without_documentation(spec)).validate(value)
    except TypeError as exc:  # where options are wanted and something else stands
        return _filled({}, spec), [finding("IN-VALUE", where, f"a wrong shape: {exc}", "correct it in the inventory")]
    errors = [e for e in checked.error_messages if "upported parameters" not in e]
    found = [finding("IN-VALUE", where, e, "correct it in the inventory") for e in errors]
    return _filled(checked.validated_parameters, spec), found


def _without_nulls(value: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Without keys that have nothing behind them, in groups that the spec knows; in `engine` null means: leave it out."""
    kept = {name: item for name, item in value.items() if item is not None}
    for name, entry in spec.items():
        if entry.get("options") and isinstance(kept.get(name), dict):
            kept[name] = _without_nulls(kept[name], entry["options"])
    return kept


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
        if entry.get("options") and isinstance(current, dict):
            current = _filled(current, entry["options"])
        filled[name] = current
    return filled
