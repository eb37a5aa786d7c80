"""What has drifted: the manifest of a service against what is on the host now, and against the inventory. Pure functions.

A line of drift is `{kind, instance, what, do}`; `instance` is an index, or None for the whole service or the host. Each change
gives one line: what follows from another change (an acceptance that is lost because an instance ended) is not said again.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, manifest
from ansible_collections.modelyard.core.plugins.module_utils.plan.drift_lines import (
    DEPLOY,
    FORM,
    Lines,
    device_names,
    line,
    memory,
    of_deployed,
    when,
)


def host(survey: Mapping[str, Any], plan: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """`{services: [{name, instances, accepted, deployed, drift}], drift: [...]}` of one host.

    `survey`: with `deployed`. `plan`: what the inventory wants; a host that it names no services for is compared with nothing.
    """
    planned = {service["name"]: service for part in ("services", "gateways") for service in (plan or {}).get(part, ())}
    services = [_service(name, entry, survey, planned) for name, entry in sorted(survey["deployed"].items())]
    nowhere = [name for name in planned if name not in survey["deployed"]]
    own = [line("inventory", f"the inventory wants the service {name}; nothing of it is here", DEPLOY) for name in nowhere]
    taken = {name for entry in survey["deployed"].values() for name in device_names(entry)}
    own += [item for card_names, item in memory(survey) if not card_names & taken]
    return {"services": services, "drift": own}


def _service(
    name: str, entry: Mapping[str, Any], survey: Mapping[str, Any], planned: Mapping[str, Mapping[str, Any]]
) -> Dict[str, Any]:
    seen = survey["services"].get(name) or {"instances": [], "leftovers": [], "accepted": False}
    known = entry["manifest"] if not manifest.problems(entry["manifest"]) else None
    drift = _of_manifest(name, entry) if known is None else of_deployed(name, known, entry, seen, survey)
    drift += _left(name, seen)
    drift += _needs_admin(entry, bool(seen["accepted"]) and not drift)
    drift += _inventory(name, known, planned)
    deployed = {i["index"] for i in known["instances"]} if known else set()
    return {
        "name": name,
        "instances": _instances(seen, deployed),
        "accepted": {"valid": bool(seen["accepted"]), "at": entry["accepted_at"]},
        "deployed": dict(known["deployed"]) if known else {},
        "drift": drift,
    }


def _instances(seen: Mapping[str, Any], deployed: Any) -> List[Dict[str, Any]]:
    """What people see of each instance, of those that were deployed and those that run."""
    # One that was deployed and is wanted no more is of interest as long as it runs.
    found = {i["index"]: i for i in seen["instances"] if i["alive"] or i["index"] in deployed or not deployed}
    rows = []
    for index in sorted({*found, *deployed}):
        now = found.get(index)
        state = "never started" if now is None else "ended" if not now["alive"] else "runs" if now["ready"] else "no answer"
        rows.append(
            {
                "index": index,
                "state": state,
                "port": now["port"] if now else None,
                "pid": now["leader"]["pid"] if now and now["alive"] else None,
                "started_at": now["started_at"] if now else None,
                "accepted_at": now["accepted_at"] if now else None,
                "supervisor": now.get("supervisor", "") if now else "",
            }
        )
    return rows


def _of_manifest(name: str, entry: Mapping[str, Any]) -> Lines:
    if not entry["has_manifest"]:
        what = "there is no manifest: no deploy has come as far as writing one"
        return [line("manifest", what, f"deploy it, or remove the folder services/{name} when nothing of it runs")]
    what = f"manifest.json cannot be compared with: {'; '.join(manifest.problems(entry['manifest']))}"
    return [line("manifest", what, "playbooks/deploy.yml writes it anew, if the inventory still has the service")]


def _left(name: str, seen: Mapping[str, Any]) -> Lines:
    handed_over = (seen.get("needs_admin") or {}).get("left", ())  # a line of its own
    left = [p for p in seen["leftovers"] if p["pid"] not in handed_over]
    if not left:
        return []
    pids = ", ".join(f"{p['pid']} {p['comm']} (state {p['state']})" for p in left)
    do = f"playbooks/teardown.yml -e teardown_service={name} ends exactly these"
    return [line("processes", f"processes live on without their API server: {pids}", do)]


def _needs_admin(entry: Mapping[str, Any], is_well: bool) -> Lines:
    needs = entry["needs_admin"]
    if needs is None:
        return []
    what = f"since {when(needs['written_at'])} it waits for a person (needs_admin.json)"
    if is_well:
        do = "the file is stale: playbooks/deploy.yml clears it"
        return [line("needs_admin", f"{what}, but it runs and is accepted", do)]
    folder = needs.get("report")
    report = f"{folder}/report.txt" if isinstance(folder, str) else "report.txt in its folder in evidence"
    return [line("needs_admin", what, f"see {report}; afterwards playbooks/recover.yml")]


def _inventory(name: str, known: Optional[Mapping[str, Any]], planned: Mapping[str, Mapping[str, Any]]) -> Lines:
    """What a deploy would do otherwise than the last one; not what the host has changed since, which is said already."""
    if not planned:
        return []
    if name not in planned:
        do = f"name it there, or take it down: playbooks/teardown.yml -e teardown_service={name}"
        return [line("inventory", "the inventory does not name it any more", do)]
    if known is None:
        return []
    replicas = planned[name]["topology"]["replicas"]  # behind them the plan has those that are to be stopped
    wanted = {i["index"]: i for i in planned[name]["instances"] if i["index"] < replicas}
    was = {i["index"]: i for i in known["instances"]}
    do = "playbooks/deploy.yml --check --diff shows what it would do"
    found = [line("inventory", "the inventory wants it; it was not deployed", do, i) for i in sorted(set(wanted) - set(was))]
    found += [line("inventory", "the inventory does not want it any more", do, i) for i in sorted(set(was) - set(wanted))]
    fingerprint = planned[name]["model"]["fingerprint"]
    for index in sorted(set(wanted) & set(was)):
        before, after = (
            {"argv": one["argv"], "environment": one["environment"], "model": "", "settings": one.get("settings", {})}
            for one in (was[index], wanted[index])
        )
        shown = launch.differences(before, after) if wanted[index]["argv"] else []
        same_model = known["model"].get("fingerprint") == fingerprint
        if not shown and wanted[index]["argv"] and same_model and wanted[index]["digest"] != was[index]["digest"]:
            shown = [FORM]
        if shown:
            found.append(line("inventory", f"the inventory wants {'; '.join(shown)}", do, index))
    return found
