"""What is to be done with each instance and with each service. Pure functions.

`start` (it does not run), `keep` (it runs as wanted), `restart` (it runs otherwise, and a restart is allowed), `stop` (it runs
and is not wanted any more), `refused` (it cannot be started, or must not be restarted), `leave` (it does not run, and the run is
not about it). Each instance is judged by itself: starting one that is missing disturbs nobody and needs no permission.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, only
from ansible_collections.modelyard.core.plugins.module_utils.plan.choice import Choice
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

START, KEEP, RESTART, STOP, REFUSED, LEAVE = "start", "keep", "restart", "stop", "refused", "leave"
#: Nothing happens to such an instance.
AT_REST = (KEEP, LEAVE)
#: Such an instance is there after a deploy.
SERVED = (START, KEEP, RESTART, REFUSED)


class Decided(NamedTuple):
    """What was decided for the instances of a service; `instances` has those that are to be stopped at its end."""

    instances: List[Dict[str, Any]]
    differences: List[str]
    findings: List[Dict[str, str]]


def decide(
    wanted: Mapping[str, Any],
    instances: Sequence[Dict[str, Any]],
    choice: Choice,
    seen: Optional[Mapping[str, Any]],
    intent: Mapping[str, Any],
    fingerprint: str,
) -> Decided:
    """Give each planned instance its action. `choice`: its cards; what that leaves out is not in `instances`.

    `seen`: the service as the survey has it, or None. `fingerprint`: of the model's files.
    """
    name, allowed = wanted["name"], intent["restart"]
    running = {i["index"]: i for i in (seen["instances"] if seen else []) if i["alive"]}
    decided, lines, disturbing = [], [], []
    for planned in instances:
        index, now = planned["index"], running.get(planned["index"])
        concerned = only.concerns(intent["only"], name, index)
        # What this run is not about keeps its files as well: they may be read at the next start after a crash. Where the cards of
        # what runs cannot be told, nothing can be compared.
        as_it_is = now is not None and (index in choice.blind or not concerned)
        instance = {**planned, **_launched(now)} if now and as_it_is else planned
        changed = _changed(now, instance, wanted["supervisor"], fingerprint) if now else []
        if not concerned:
            action = KEEP if now else LEAVE
        elif index in choice.refused:
            action = REFUSED
        elif now is None:
            action = START
            lines += [f"instance {index}: not running -> running"] if running else []
        elif changed:
            action = RESTART if allowed else REFUSED
            disturbing += changed
            lines += changed
        else:
            action = KEEP
        if action == KEEP and now and now["session"]:
            # NAME becomes NAME-0 when a second instance comes. What runs keeps the name that people and systemd know it by.
            instance = {**instance, "session": now["session"]}
        held = {"held": {"port": now["port"], "devices": list(now["devices"])}} if action == RESTART and now else {}
        decided.append({**instance, **_done(action, now), **held})
    known = {instance["index"] for instance in instances} | set(choice.left_out)
    for index in sorted(set(running) - known):
        action = KEEP
        if only.concerns(intent["only"], name, index):
            action = STOP if allowed else REFUSED
            disturbing.append(f"instance {index}: running -> gone")
            lines.append(disturbing[-1])
        decided.append({**_as_it_runs(wanted, running[index]), **_done(action, running[index])})
    found = []
    if disturbing and not allowed:
        what = f"{name} runs with other parameters ({'; '.join(disturbing)})"
        do = (
            "nothing was restarted: run again with -e modelyard_restart=true when its users can do without it, or undo the change"
        )
        found.append(finding("PF-RESTART-NEEDED", f"modelyard_services[{name}]", what, do))
    return Decided(decided, lines, found)


def _done(action: str, now: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """The action, and whether an acceptance of what runs still holds after it."""
    return {"action": action, "accepted": action == KEEP and bool(now and now["accepted"])}


def _changed(now: Mapping[str, Any], instance: Mapping[str, Any], supervisor: str, fingerprint: str) -> List[str]:
    """What differs between a running instance and the wanted one, a line each."""
    lines = []
    before = now["supervisor"]
    if before and before != supervisor:
        lines.append(f"supervisor: {before} -> {supervisor}")
    if now["digest"] != instance["digest"] and instance["argv"]:
        after = {
            "argv": instance["argv"],
            "environment": instance["environment"],
            "model": fingerprint,
            "settings": instance.get("settings", {}),
        }
        shown = launch.differences(now["launch"], after)
        lines += shown or ([] if lines else ["API key or form of the plan: another one"])
    return [f"instance {instance['index']} {line}" for line in lines]


def _as_it_runs(wanted: Mapping[str, Any], now: Mapping[str, Any]) -> Dict[str, Any]:
    """A running instance that the inventory does not want any more, in the form of a planned one."""
    return {
        "name": f"{wanted['name']}/{now['index']}",
        "index": now["index"],
        "port": now["port"],
        "session": now["session"] or f"{wanted['name']}-{now['index']}",
        "cards": [[device["index"]] for device in now["devices"]],
        "devices": [],
        **_launched(now),
    }


def _launched(now: Mapping[str, Any]) -> Dict[str, Any]:
    """What a running instance was started with; its cards as far as they were written down."""
    return {
        **({"devices": list(now["devices"])} if now["devices"] else {}),
        "argv": list(now["launch"]["argv"]),
        "environment": dict(now["launch"]["environment"]),
        "digest": now["digest"],
    }


def of_service(instances: Sequence[Mapping[str, Any]]) -> str:
    """One word for all instances."""
    found: Set[str] = {instance["action"] for instance in instances}
    if REFUSED in found:
        return REFUSED
    if found & {RESTART, STOP}:
        return RESTART
    return START if START in found else KEEP if KEEP in found else LEAVE


def refuse(service: Dict[str, Any]) -> None:
    """Nothing is done with this service; what runs goes on."""
    for instance in service["instances"]:
        if instance["action"] not in AT_REST:
            instance["action"] = REFUSED
    service["action"] = of_service(service["instances"])
