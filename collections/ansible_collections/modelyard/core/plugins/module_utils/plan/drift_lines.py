"""What the host has changed of a service since it was deployed. Pure functions; drift.py puts them together."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, manifest, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup, users

Line = Dict[str, Any]
Lines = List[Line]

#: Changes after which an acceptance cannot be valid any more: it is not worth a line of its own then.
ENDS_ACCEPTANCE = ("instance", "parameters")
FORM = "API key or form of the plan: another one"
DEPLOY = "playbooks/deploy.yml starts what is missing"
RESTORE = "playbooks/deploy.yml puts them right; without -e modelyard_restart=true it restarts nothing that runs"
RECORD = "if it is meant: playbooks/deploy.yml writes it down; an engine that runs keeps what it was started with"


def line(kind: str, what: str, do: str, instance: Optional[int] = None) -> Line:
    """One line of drift as plain data."""
    return {"kind": kind, "instance": instance, "what": what, "do": do}


def when(seconds: Optional[float]) -> str:
    """`2026-11-29 10:15 UTC`."""
    return "an unknown time" if seconds is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def of_deployed(
    name: str, known: Mapping[str, Any], entry: Mapping[str, Any], seen: Mapping[str, Any], survey: Mapping[str, Any]
) -> Lines:
    """All lines of a service whose manifest is whole; `known` is that manifest."""
    found = _processes(known, seen, survey) + _files(known, entry) + _software(known, entry) + _model(known, entry)
    found += _cards(known, survey) + _driver(known, survey) + _system(known, survey)
    mine = device_names(entry)
    found += [item for card_names, item in memory(survey) if card_names & mine]
    if not seen["accepted"] and not seen["leftovers"] and not any(item["kind"] in ENDS_ACCEPTANCE for item in found):
        found += _acceptance(entry)
    return found


def _processes(known: Mapping[str, Any], seen: Mapping[str, Any], survey: Mapping[str, Any]) -> Lines:
    found: Lines = []
    now = {i["index"]: i for i in seen["instances"]}
    for instance in known["instances"]:
        index = instance["index"]
        running = now.get(index)
        unit = _unit(known, instance, survey)
        if running is None:
            found.append(line("instance", "it was deployed, and no start of it is known here", DEPLOY, index))
        elif not running["alive"]:
            found.append(line("instance", f"it does not run: {_end(running, unit)}", f"read its log; {DEPLOY}", index))
        else:
            found += _running(known, instance, running, unit)
    deployed = {i["index"] for i in known["instances"]}
    for index in sorted(i for i, running in now.items() if running["alive"] and i not in deployed):
        do = "playbooks/teardown.yml takes the service down; a deploy with more replicas takes it in"
        found.append(line("instance", "it runs, and it was never deployed, or is deployed no more", do, index))
    return found


def _end(running: Mapping[str, Any], unit: str) -> str:
    ended = running["ended"]
    words = "it ended, and nobody wrote down how (killed with its keeper, or the host was started anew)"
    if isinstance(ended, dict):
        how = f"signal {ended['signal']}" if ended.get("signal") else f"exit code {ended.get('code')}"
        at = ended.get("at")
        words = f"it ended at {when(at if isinstance(at, (int, float)) else None)} with {how}"
    return f"{words}; its unit is {unit}" if unit and unit != "active" else words


def _running(known: Mapping[str, Any], instance: Mapping[str, Any], running: Mapping[str, Any], unit: str) -> Lines:
    found: Lines = []
    index = instance["index"]
    was = {"argv": instance["argv"], "environment": instance["environment"], "model": known["model"].get("fingerprint")}
    differences = launch.differences(was, {"model": was["model"], **running["launch"]})
    if not differences and running["digest"] != instance["digest"]:
        differences = [FORM]
    if differences:
        do = "it was started by hand, or a deploy did not come to its end; see what is wanted, then deploy"
        found.append(line("parameters", f"it runs with others than were deployed: {'; '.join(differences)}", do, index))
    elif not running["ready"]:
        do = "look at its log: it may still be starting, or hang"
        found.append(line("instance", "it lives and does not answer /health", do, index))
    kept = running.get("supervisor", "")
    if kept and kept != known.get("supervisor", kept):
        do = "stop it where it was started, then deploy"
        found.append(line("supervisor", f"it runs under {kept}, deployed for {known['supervisor']}", do, index))
    elif unit and unit != "active":
        what = f"it runs, but its unit is {unit}: nobody starts it again when it ends"
        found.append(line("supervisor", what, "stop it by hand, then deploy", index))
    return found


def _unit(known: Mapping[str, Any], instance: Mapping[str, Any], survey: Mapping[str, Any]) -> str:
    """State of the instance's unit; `unknown to systemd` without one; empty where no unit is meant to keep it."""
    if not str(known.get("supervisor", "")).startswith("systemd") or not instance.get("session"):
        return ""
    wanted = f"modelyard-{instance['session']}.service"
    return next((unit["state"] for unit in survey["units"] if unit["name"] == wanted), "unknown to systemd")


def _files(known: Mapping[str, Any], entry: Mapping[str, Any]) -> Lines:
    found = []
    for path, digest in sorted(known["files"].items()):
        now = entry["files"].get(path)
        if now != digest:
            head = path.partition("/")[0].rpartition("-")[2]
            index = int(head) if "/" in path and head.isdigit() else None
            what = f"{path} {'was changed on the host' if now else 'is gone, or cannot be read'} since it was rendered"
            found.append(line("file", what, f"playbooks/deploy.yml --check --diff shows how; {RESTORE}", index))
    return found


def _software(known: Mapping[str, Any], entry: Mapping[str, Any]) -> Lines:
    was, now, place = known["versions"], entry["software"], known["runtime"].get("path")
    if not any(now.values()):
        if not any(was.get(key) for key in now):
            return []
        what = f"the runtime {place} is not there any more"
        return [line("runtime", what, "put it back, or deploy: a runtime of ours is made again")]
    changed = [
        f"{key} {was.get(key) or 'none'} -> {now[key] or 'none'}"
        for key in ("python", "vllm", "torch")
        if was.get(key) != now[key]
    ]
    if not changed and was.get("packages") != now["packages"]:
        changed = ["packages were installed, removed or replaced"]
    return [line("runtime", f"{place}: {', '.join(changed)}", RECORD)] if changed else []


def _model(known: Mapping[str, Any], entry: Mapping[str, Any]) -> Lines:
    was, now = known["model"].get("fingerprint"), entry["fingerprint"]
    if was == now or not was:
        return []
    what = f"the files in {known['model'].get('path')} are {'others than' if now else 'gone; they were there'} at the deploy"
    do = "put the model back, or deploy with -e modelyard_restart=true when the new one is meant"
    return [line("model", what, do)]


def _devices(known: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """Cards of all instances that have a name of their own; cores have none."""
    devices = [device for instance in known["instances"] for device in instance.get("devices") or ()]
    return [device for device in devices if device.get("uuid") or device.get("bus_id")]


def device_names(entry: Mapping[str, Any]) -> Set[str]:
    """Uuids and PCI addresses of the cards that a service was deployed on."""
    known = entry["manifest"] if not manifest.problems(entry["manifest"]) else None
    return {str(device[key]) for device in (_devices(known) if known else ()) for key in ("uuid", "bus_id") if device.get(key)}


def _blind(known: Mapping[str, Any], survey: Mapping[str, Any]) -> str:
    """Why nothing is known of the cards of this backend; empty when they answer."""
    seen = survey["accelerators"].get(known["backend"])
    if seen is None:
        return "no trace of such cards is left on this host"
    tool = tables.backend(known["backend"]).get("tool", "the vendor's tool")
    return "" if seen["tool"]["state"] == "ok" else f"{tool} does not tell: {seen['tool']['said'] or seen['tool']['state']}"


def _cards(known: Mapping[str, Any], survey: Mapping[str, Any]) -> Lines:
    devices = _devices(known)
    if not devices:
        return []
    blind = _blind(known, survey)
    if blind:
        return [line("card", f"its cards: {blind}", "playbooks/preflight.yml says what is wrong and what to do")]
    found = []
    for instance in known["instances"]:
        for device in _devices({"instances": [instance]}):
            names = {device.get("uuid"), device.get("bus_id")} - {"", None}
            card = next((c for c in survey["cards"][known["backend"]] if names & {c["uuid"], c["bus_id"]}), None)
            what = f"card {device['index']} ({device.get('uuid') or device.get('bus_id')})"
            do = "playbooks/preflight.yml says more; other cards are taken when the inventory says so"
            if card is None:
                found.append(line("card", f"{what} is not there any more", do, instance["index"]))
            elif card["index"] is None:
                found.append(line("card", f"{what} does not answer", do, instance["index"]))
            elif card["index"] != device["index"]:
                found.append(line("card", f"{what} has the number {card['index']} now", do, instance["index"]))
    return found


def _driver(known: Mapping[str, Any], survey: Mapping[str, Any]) -> Lines:
    was, seen = known["versions"].get("driver"), survey["accelerators"].get(known["backend"])
    if not was or seen is None or _blind(known, survey) or seen["driver"]["loaded"] == was:
        return []
    what = f"the driver is {seen['driver']['loaded'] or 'not loaded'}; at the deploy it was {was}"
    return [line("driver", what, f"let the cards compute (playbooks/preflight.yml --tags card_test), then: {RECORD}")]


def _system(known: Mapping[str, Any], survey: Mapping[str, Any]) -> Lines:
    was, now = known["versions"].get("kernel"), survey["host"]["kernel"]
    return [] if not was or was == now else [line("host", f"the kernel is {now}; at the deploy it was {was}", RECORD)]


def memory(survey: Mapping[str, Any]) -> List[Tuple[Set[str], Line]]:
    """(names of the card, line) for each card with memory that nobody holds."""
    places = {
        lookup.place(survey, card): {card["uuid"], card["bus_id"]} - {""}
        for backend in survey["accelerators"]
        for card in survey["cards"].get(backend, [])
    }
    held: Sequence[Mapping[str, str]] = [f for f in users.findings(survey, []) if f["id"] == "PF-MEMORY-HELD"]
    return [(places[f["where"]], line("memory", f"{f['where'].partition(':')[2]}: {f['what']}", f["do"])) for f in held]


def _acceptance(entry: Mapping[str, Any]) -> Lines:
    do = "playbooks/acceptance.yml proves it again"
    if entry["accepted_at"] is None:
        return [line("acceptance", "it was never accepted, or its last acceptance failed", do)]
    what = f"its acceptance of {when(entry['accepted_at'])} is lost: other processes run now"
    return [line("acceptance", what, do)]
