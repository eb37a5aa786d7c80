"""The gateway of a service, as the scripts in the service's folder treat it: first to be stopped, last to be started."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors, place
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand.deployed import Deployed, Instance, Refused
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run as careful
from ansible_collections.modelyard.core.plugins.module_utils.survey import http

Say = Callable[[str], None]
HEALTH_LIMIT_S = 2.0
#: A gateway's word on an instance -> where it is shown; all other words mean that it gets no requests.
PLACES = {"up": "up", "half_open": "up", "unknown": "unknown"}


def deployed_of(service: Deployed) -> Optional[Deployed]:
    """The gateway as a service; None where none was deployed. Raises Refused where it is not whole."""
    folder = layout.service_dir(service.home, place.name(service.name))
    return deployed.load(folder) if (folder / layout.SERVICE_FILE).exists() else None


def runs(service: Deployed) -> bool:
    """Does it run?"""
    return place.runs(service.home, service.name)


def stop(service: Deployed, say: Say) -> bool:
    """Stop it before its engines, after the requests that it has; True when nothing of it is left."""
    name = place.name(service.name)
    if not any(map(layout.state, (folder for _, folder in layout.instances(service.home, name)))):
        return True
    say(f"stopping {name}: no new requests, those that run end first")
    result = careful.stop_service(service.home, name, None, {}, say)
    if result["failed"]:
        say(result["msg"])
    if not result.get("report_written", True):
        say(result["report"])
    return not result["failed"]


def say_who_is_out(service: Deployed, say: Say) -> None:
    """After a stop that was broken off: an instance may run on and get no requests."""
    out = (row(service) or {"out": []})["out"]
    if out:
        say(
            f"gateway: {', '.join(out)} gets no requests. Run the stop again, or let it in with "
            "playbooks/acceptance.yml -e acceptance_admit=true"
        )


class Doors:
    """What a start lets in: each instance once it answers, or when the gateway has come up after it."""

    def __init__(self, service: Deployed, say: Say) -> None:
        self.service, self.say = service, say
        self.waiting: List[Instance] = []
        self.whole = True

    def admit(self, instance: Instance) -> None:
        """This one has been started and may get requests."""
        self.waiting.append(instance)
        if runs(self.service):
            self.open()

    def open(self) -> None:
        """Let in who waits for it. What the gateway does not reach, or cannot be told, is said; `whole` is False then."""
        home, name = self.service.home, self.service.name
        waiting, self.waiting = self.waiting, []
        if not waiting or not runs(self.service):
            return
        ports = {one["index"]: int(one["port"]) for one in (place.spec(home, name) or {}).get("backends", [])}
        reached = []
        for instance in waiting:
            port = int((layout.state(instance.folder) or {"request": instance.request})["request"]["port"])
            if ports.get(instance.index, port) == port:
                reached.append(instance.index)
            else:
                self.whole = False
                self.say(
                    f"{instance.name}: gets no requests from the gateway, which knows port {ports[instance.index]} and not {port}"
                )
        try:
            for admitted in doors.put(home, name, reached, False):
                self.say(f"gateway: {admitted} may get requests again")
        except GatewayError as exc:
            self.whole = False
            self.say(f"gateway: {exc}")


def row(service: Deployed) -> Optional[Dict[str, Any]]:
    """The gateway as plain data: {address, kind, state, problem, names that are up, down, out, unknown}; None without one."""
    try:
        known = deployed_of(service)
    except Refused as exc:
        return _row("", "", "not whole", problem=str(exc))
    if known is None:
        return None
    spec = place.spec(service.home, service.name) or {}
    folder = known.instances[0].folder
    state = layout.state(folder)
    request = state["request"] if state else known.instances[0].request
    address, kind = f"http://{request['host']}:{request['port']}", str(spec.get("kind", ""))
    if not state or not layout.leader_alive(state):
        return _row(address, kind, "not running")
    answers = http.status((request["host"], int(request["port"])), "/health", HEALTH_LIMIT_S) == 200
    found = _row(address, kind, "ready" if answers else "not answering")
    try:
        for one in doors.states(service.home, service.name):
            where = "out" if one["draining"] else PLACES.get(one["state"], "down")
            found[where].append(one["name"])
    except GatewayError as exc:
        found["problem"] = str(exc)
    return found


def _row(address: str, kind: str, state: str, problem: str = "") -> Dict[str, Any]:
    return {"address": address, "kind": kind, "state": state, "problem": problem, "up": [], "down": [], "out": [], "unknown": []}


def line(found: Mapping[str, Any]) -> str:
    """The same for people: how many instances get requests, and the names of those that do not."""
    words = [" ".join(filter(None, (found["address"], found["kind"], found["state"])))]
    known = sum(len(found[key]) for key in ("up", "down", "out"))
    words += [f"{len(found['up'])} of {known + len(found['unknown'])} instance(s) up"] if known and not found["unknown"] else []
    words += [f"{len(found['unknown'])} instance(s), it does not say how they are"] if found["unknown"] else []
    words += [f"{key}: {', '.join(found[key])}" for key in ("down", "out") if found[key]]
    return f"gateway: {'; '.join([*words, *([found['problem']] if found['problem'] else [])])}"
