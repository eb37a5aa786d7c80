"""The models of a host: what is to be staged, merged or made by a recipe before anything is started. Pure functions.

An entry: {id, path, source, from, make (stage, merge, recipe or ''), reason, there, written (it has a manifest), program,
arguments, python}.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import model, model_files, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checkpoint import adapters, files
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import size
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order

STAGE, MERGE, RECIPE = "stage", "merge", "recipe"
#: intent["models_made"]: nothing yet, all that have a source, all.
NOTHING, STAGED, MADE = "", "staged", "made"
MERGE_PROGRAM = "merge_adapter.py"
#: Main memory of a merge, as a multiple of the base's weights, and beside them. Measured with peft 0.21.2 (docs/models.md).
MERGE_FACTOR, MERGE_BESIDE_MIB = 1.5, 1024


def merge_runtime() -> str:
    """The runtime that merges adapters: the newest lock of peft."""
    known = [name for name in tables.runtime_names() if name.startswith("peft-")]
    return max(known, key=lambda name: order(name.partition("-")[2]))


def wanted(intent: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """Models beside the services, which these may be merged from, and then the services' own."""
    return [*intent["models"], *(service["model"] for service in intent["services"])]


def paths(intent: Mapping[str, Any]) -> List[str]:
    """Folders that a look at the host is about."""
    found = [entry["path"] for entry in wanted(intent)]
    for entry in wanted(intent):
        found += [path for path in (entry["merge"]["base"], entry["merge"]["adapter"]) if path]
    return list(dict.fromkeys(found))


def make(entry: Mapping[str, Any], listing: Optional[Mapping[str, Any]], done: str) -> Tuple[str, str]:
    """(how a model is to be made, why); ('', '') for one that is there, or that nothing says how to make.

    `done`: what this run has already done for all of them (see STAGED, MADE). What is wrong after that is a finding.
    """
    reason = model_files.reason(entry, listing)
    if done == MADE or (done == STAGED and entry["source"]["from"]):
        return "", ""
    if reason:
        return STAGE, reason
    absent = not listing or not listing["exists"]
    if absent and entry["merge"]["adapter"]:
        return MERGE, "it is not there"
    return (RECIPE, "it is not there") if absent and entry["recipe"] else ("", "")


def maker(path: str, intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Tuple[Mapping[str, Any], str, str]:
    """(the entry that makes the model of a folder, how, why): a service may name a folder that modelyard_models makes."""
    named = [entry for entry in wanted(intent) if entry["path"] == path]
    for entry in named:
        how, why = make(entry, survey["models"].get(path), intent["models_made"])
        if how:
            return entry, how, why
    return named[0], "", ""


def needs_merging(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> bool:
    """Is there anything to merge? Then its runtime is wanted, too."""
    done = intent["models_made"]
    return any(make(entry, survey["models"].get(entry["path"]), done)[0] == MERGE for entry in wanted(intent))


def known(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Dict[str, Any]:
    """The survey without folders that are still to be staged or made: what they lack now is no finding."""
    models = survey["models"]
    coming = {e["path"] for e in wanted(intent) if make(e, models.get(e["path"]), intent["models_made"])[0]}
    return {**survey, "models": {path: listing for path, listing in models.items() if path not in coming}}


def entries(
    intent: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]], merging: str
) -> List[Dict[str, Any]]:
    """Each folder once, in the order in which they are made. `merging`: path of the runtime that merges."""
    pythons = {service["model"]["path"]: service["runtime"]["path"] for service in services if service["concerned"]}
    found: Dict[str, Dict[str, Any]] = {}
    for path in dict.fromkeys(entry["path"] for entry in wanted(intent)):
        listing = survey["models"].get(path)
        entry, how, why = maker(path, intent, survey)
        if path not in pythons and all(path != beside["path"] for beside in intent["models"]):
            continue  # of a service that this run leaves alone
        words = {MERGE: [entry["merge"]["base"], entry["merge"]["adapter"]]}.get(how, [])
        found[path] = {
            "id": entry["id"],
            "path": path,
            "source": {**entry["source"], "repo": entry["source"]["repo"] or entry["id"]},
            "from": entry["source"]["from"],
            "make": how,
            "reason": why,
            "there": bool(listing and listing["exists"]),
            "written": bool(listing and listing["staged"]),
            "program": {MERGE: MERGE_PROGRAM, RECIPE: entry["recipe"]}.get(how, ""),
            "arguments": words,
            "python": f"{merging if how == MERGE else pythons.get(path, '')}/bin/python",
        }
    return sorted(found.values(), key=lambda entry: (STAGE, MERGE, RECIPE, "").index(entry["make"]))


def findings(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    """What stands in the way of staging and merging; services' models themselves are judged by the planner."""
    found: List[Dict[str, str]] = []
    done = intent["models_made"]
    coming = {e["path"] for e in wanted(intent) if make(e, survey["models"].get(e["path"]), done)[0] in (STAGE, RECIPE)}
    for path in dict.fromkeys(entry["path"] for entry in wanted(intent)):
        listing, (entry, how, _) = survey["models"].get(path), maker(path, intent, survey)
        where = f"{survey['host']['name']}:{path}"
        other = model_files.of_another(entry, listing)
        if other:
            what = f"the folder of {entry['id']} holds {other}, and something else is wanted"
            do = "give what is wanted a folder of its own; what lies there, and may be served, stays as it is"
            found.append(finding("PF-MODEL-OTHER", where, what, do))
        if listing and listing["changed"]:
            names = ", ".join(listing["changed"][:5]) + (" and others" if len(listing["changed"]) > 5 else "")
            what = f"files of {entry['id']} were written after they were staged and hashed: {names}"
            do = "check them: playbooks/models.yml -e model_verify=full; where their hashes are right, this ends"
            found.append(finding("PF-MODEL-CHANGED", where, what, do))
        if how == MERGE:
            found += _merge(entry, survey, coming)
        elif done and listing and entry in intent["models"] and not listing["adapter"]:
            about = {"name": entry["id"], "engine": {"runner": "pooling"}}  # nothing is said of a chat template
            found += files.findings(about, listing, where)
    return found


def _merge(entry: Mapping[str, Any], survey: Mapping[str, Any], coming: Any) -> List[Dict[str, str]]:
    """Before hours of work: are base and adapter there, whole, and of each other, and is there memory for it?"""
    found = []
    base_path, adapter_path = entry["merge"]["base"], entry["merge"]["adapter"]
    base, adapter = survey["models"].get(base_path), survey["models"].get(adapter_path)
    host = survey["host"]
    for path, listing, word in ((base_path, base, "base"), (adapter_path, adapter, "adapter")):
        if path not in coming and (not listing or not listing["exists"]):
            what = f"the {word} that {entry['id']} is to be merged from is not there"
            do = f"put it there, or name where it comes from under modelyard_models (path: {path})"
            found.append(finding("PF-MODEL-MISSING", f"{host['name']}:{path}", what, do))
    if base and base["exists"] and base_path not in coming:
        missing = model.missing_files(base)
        if missing:
            what = f"the base that {entry['id']} is to be merged from lacks {', '.join(missing)}"
            found.append(finding("PF-MODEL-INCOMPLETE", f"{host['name']}:{base_path}", what, "copy just these files there"))
        need = int(model.weights_mib(base) * MERGE_FACTOR + MERGE_BESIDE_MIB)
        free = host["memory_available_mib"]
        if need > free:
            what = f"merging {entry['id']} needs about {size(need * 2**20)} of main memory, {size(free * 2**20)} are free"
            do = "merge it on a larger host and stage the result from there, or serve the adapter unmerged (enable_lora)"
            found.append(finding("PF-MERGE-MEMORY", host["name"], what, do))
    if adapter and adapter["exists"] and adapter_path not in coming:
        place = f"{host['name']}:{adapter_path}"
        troubles = adapters.for_merging(adapter, base if base and base["exists"] else None)
        found += [finding("PF-MODEL-ADAPTER", place, f"adapter of {entry['id']}: {what}", do) for what, do in troubles]
    return found
