"""Looking at a host from an action: the module survey_host, and what it cannot answer itself.

Can the host be reached, is there a Python that the module can run with, is the run dead that holds the lock?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.modelyard.core.plugins.module_utils.plan import gateway, models, runtime, runtime_lock, tables, vendor
from ansible_collections.modelyard.core.plugins.module_utils.plan.checkpoint import adapters
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import instance_ports, session
from ansible_collections.modelyard.core.plugins.plugin_utils import control, old_python

REACH = "see that ssh reaches it with the user and key of the inventory: ansible -i INVENTORY HOST -m ansible.builtin.raw -a true"
FAILED = "it is not known what is on this host. Run again with -vvv; if it stays, it is a defect of this project: report the text"
DISCOVERED = "discovered_interpreter_python"


def request(intent: Mapping[str, Any], more_services: Iterable[str] = ()) -> dict[str, Any]:
    """Arguments of the module: what an intent wants to know about its host. `more_services`: names besides its own."""
    services = intent["services"]
    gateways = [gateway.name(s["name"]) for s in services if gateway.wanted(s)]
    locks = {name for s in services if not s["runtime_path"] for name in runtime_lock.candidates(s)}
    locks |= set(intent["runtimes"])
    # Only the look itself can tell whether there is anything to merge.
    locks |= {models.merge_runtime()} if any(entry["merge"]["adapter"] for entry in models.wanted(intent)) else set()
    known = {name: found for name in sorted(locks) if (found := vendor.chosen(tables.runtime(name), intent["vendor_files"]))}
    split = {s["backend"] for s in services if s["topology"]["tensor_parallel_size"] > 1}
    backends = {name: _entry(entry, name in split, intent["tool_path"]) for name, entry in tables.accelerators().items()}
    return {
        "home": intent["home"],
        "runtimes_dir": intent["runtimes_dir"],
        "runtimes": [s["runtime_path"] for s in services if s["runtime_path"]],
        # Only the digests go to a host, not the locks. Names that are no lock are refused by the planner.
        "locks": {name: one.digest for name, one in known.items()},
        "libraries": sorted({library for one in known.values() for library in one.libraries}),
        "library_folders": sorted({folder for s in services for folder in runtime.library_folders(s)}),
        "models": [
            *models.paths(intent),
            *(path for s in services for path in adapters.paths(s["engine"]).values()),
        ],
        "services": [*(s["name"] for s in services), *gateways, *more_services],
        "ports": sorted({port for service in services for port in [*instance_ports(service), *gateway.ports(service)]}),
        "programs": _programs(services),
        "wheelhouse": intent["wheelhouse"],
        "vendor_wheels": intent["vendor_wheels"],
        "python": intent["python"],
        "sysroot": intent["sysroot"],
        "supervisors": _sessions(services),
        "backends": backends,
    }


def _programs(services: Iterable[Mapping[str, Any]]) -> list[str]:
    """What must be installed on the host for these services."""
    kinds = {s["gateway"]["kind"] for s in services} - {gateway.NONE, gateway.OURS}
    return sorted(kinds | {tables.backend(s["backend"]).get("compiler", "") for s in services} - {""})


def _entry(entry: dict[str, Any], linked: bool, tool_path: list[str]) -> dict[str, Any]:
    """A backend as the host wants it: without the question how cards are linked where nobody needs the answer."""
    queries = {name: words for name, words in entry["queries"].items() if linked or name != "topo"}
    return {**entry, "queries": queries, "tool_places": [*tool_path, *entry["tool_places"]]}


def _sessions(services: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Names of sessions and units by kind of supervisor."""
    found: dict[str, list[str]] = {}
    for service in services:
        names = [session(service, index) for index, _ in enumerate(instance_ports(service))]
        names += [gateway.session(service["name"])] if gateway.wanted(service) else []
        found.setdefault(service["supervisor"], []).extend(names)
    return found


def look(action: ActionBase, args: dict[str, Any], variables: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """(what the module said, findings where it could not say it).

    People know a host by its name in the inventory, so that is the name in the survey. A lock whose run has died on this
    control node is no lock.
    """
    name = str(variables.get("inventory_hostname", ""))
    try:
        said, found = _asked(action, args, variables, name)
    except AnsibleConnectionFailure as exc:
        return {}, [finding("PF-UNREACHABLE", name, " ".join(str(exc).split()), REACH)]
    if not found:
        host = said["survey"]["host"]
        host["hostname"], host["name"] = host["name"], name or host["name"]
        if control.has_died(said["survey"]["lock"]):
            said["survey"]["lock"] = None
    return said, found


def _asked(
    action: ActionBase, args: dict[str, Any], variables: dict[str, Any], name: str
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Where the inventory names no interpreter, a plain command finds one: Ansible's own search takes one that is too old, or a
    wrapper that does not run. Where it names one, it is asked by plain commands only when the module has failed with it.
    """
    interpreter = action._templar.template(variables.get("ansible_python_interpreter"))
    chosen = ""
    if old_python.is_open(interpreter) and DISCOVERED not in variables.get("ansible_facts", {}):
        versions = old_python.look(action, interpreter)
        found = [] if versions is None else old_python.judge(versions, old_python.needed(), name)
        if found:
            return {}, found
        chosen = old_python.chosen(versions or {})
    if chosen:
        variables = {**variables, "ansible_facts": {**variables.get("ansible_facts", {}), DISCOVERED: chosen}}
    said = action._execute_module("modelyard.core.survey_host", module_args=args, task_vars=variables)
    if said.get("failed") or "survey" not in said:
        versions = old_python.look(action, interpreter)
        words = " / ".join(str(said[key]).strip() for key in ("msg", "module_stderr") if said.get(key))[:600]
        failed = [finding("PF-SURVEY-FAILED", name, f"the survey did not come to its end: {words}", FAILED)]
        return said, ([] if versions is None else old_python.judge(versions, old_python.needed(), name)) or failed
    if chosen:
        said["ansible_facts"] = {**said.get("ansible_facts", {}), DISCOVERED: chosen}
    return said, []
