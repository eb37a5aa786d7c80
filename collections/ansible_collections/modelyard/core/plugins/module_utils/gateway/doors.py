"""Instances of a service behind its running gateway: out before they are stopped, in when they have proven themselves.

Everything here may raise GatewayError, except `leave` and `away`, which stops call: a gateway that does not answer stops no stop.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Collection, Dict, Iterator, List, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.gateway import control, place
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, succession, supervisor

Say = Callable[[str], None]
POLL_S = 0.3
#: What of the settings of a running gateway must be known to ask it, and of which kind.
ASKED: Dict[str, Callable[[Any], Any]] = {"kind": str, "admin_port": int}
#: Waits while another gateway follows: for somebody else who starts it, beyond the time for the last requests, for its status.
FOLLOW_BUSY_S, FOLLOW_MARGIN_S, FOLLOW_ASK_S = 20.0, 10.0, 10.0


class Door(NamedTuple):
    """One instance as the gateway sees it. `in_flight`: requests that it has from there now."""

    name: str
    draining: bool
    in_flight: int


def _names(home: str, service: str, indexes: Collection[int]) -> List[str]:
    """Those of the instances that the gateway knows: one that was just added is not among them before its next reload."""
    known = (place.spec(home, service) or {}).get("backends", [])
    return [one["name"] for one in known if one["index"] in indexes]


def _wanted(home: str, service: str) -> Dict[str, Any]:
    """What the gateway in the folder is made from, as the last deploy has written it."""
    found = place.spec(home, service)
    if found is None:
        raise GatewayError(f"{place.folder(home, service) / place.SPEC_FILE} is not there or not whole: deploy the service again")
    return found


def _spec(home: str, service: str) -> Dict[str, Any]:
    """The same for asking the gateway that runs: it may be of another kind than the files that wait for its end."""
    running = ((layout.state(place.folder(home, service)) or {}).get("request") or {}).get("launch", {}).get("settings", {})
    return {**_wanted(home, service), **{key: kind(running[key]) for key, kind in ASKED.items() if key in running}}


def states(home: str, service: str) -> List[Dict[str, Any]]:
    """All instances that the gateway has, as control.status says it."""
    return list(control.status(place.folder(home, service), _spec(home, service))["backends"])


def look(home: str, service: str) -> List[Door]:
    """The same, as far as it is about who comes in."""
    said = states(home, service)
    return [Door(str(one["name"]), bool(one["draining"]), int(one.get("in_flight") or 0)) for one in said]


def prepare(home: str, service: str) -> None:
    """Before a start or a reload: GatewayError with the program's own words where the configuration cannot be used."""
    problem = control.prepare(place.folder(home, service), _wanted(home, service))
    if problem:
        raise GatewayError(f"its configuration cannot be used, and nothing was stopped or started for it: {problem}")


def reload(home: str, service: str) -> None:
    """Let the running gateway take over the configuration that lies in its folder."""
    control.reload(place.folder(home, service), _spec(home, service))


def obstacle(home: str, service: str) -> str:
    """Why the running gateway can only be stopped and started anew; empty when another one can follow it with an open port."""
    folder = place.folder(home, service)
    wanted = layout.read_json(folder / layout.REQUEST_FILE) or {}
    problem = succession.obstacle(folder, wanted)
    if problem or not str(wanted.get("supervisor", "")).startswith("systemd"):
        return problem
    return "" if supervisor.unit_is_current(folder, wanted) else "its unit changes"


def follow(home: str, service: str, say: Say) -> bool:
    """Put the gateway that was deployed in the place of the one that runs, and wait for the last request of that one.

    No client is refused meanwhile. False when the one before had to be left with requests after its own time for them. Raises
    GatewayError when the new one does not come; then the one before serves on.
    """
    folder, spec = place.folder(home, service), _wanted(home, service)
    wanted = layout.read_json(folder / layout.REQUEST_FILE) or {}
    out = _who_is_out(home, service, say)
    try:
        with layout.starting(folder, FOLLOW_BUSY_S):
            pid = succession.replace(folder, wanted)
    except (succession.NotReplaced, layout.Busy, OSError) as exc:
        raise GatewayError(f"the new one did not come, the one before serves on: {exc}") from exc
    say(f"gateway: pid {pid} ({spec['kind']}) takes the requests on port {wanted['port']}")
    done = succession.wait_retired(folder, float(spec["drain_s"]) + FOLLOW_MARGIN_S, lambda text: say(f"gateway: {text}"))
    if not done:
        say("gateway: the one before has not ended yet; it takes no new requests")
    _answers(home, service)
    if out is not None:  # one of another kind has not read who was out, or what it remembers is old
        for draining in (True, False):
            for name in put(
                home, service, [one["index"] for one in spec["backends"] if (one["name"] in out) is draining], draining
            ):
                say(f"gateway: {name} {'stays out' if draining else 'gets requests'}, as before")
    return done


def _who_is_out(home: str, service: str, say: Say) -> Optional[List[str]]:
    """By the gateway that runs, which may be of another kind than its files are already; None when it does not say."""
    try:
        return [door.name for door in look(home, service) if door.draining]
    except GatewayError as exc:
        say(f"gateway: who is out is not known: {exc}")
        return None


def _answers(home: str, service: str) -> None:
    """Wait until it can be asked: its admin port is the one of the gateway before it."""
    limit = time.monotonic() + FOLLOW_ASK_S
    while True:
        try:
            states(home, service)
            return
        except GatewayError:
            if time.monotonic() >= limit:
                raise
        time.sleep(POLL_S)


def would_put(home: str, service: str, indexes: Collection[int], draining: bool) -> List[str]:
    """Names of those instances that are not yet out (`draining`), or not yet in."""
    before = {door.name: door.draining for door in look(home, service)} if indexes else {}
    return [name for name in _names(home, service, indexes) if before.get(name) is not draining]


def put(home: str, service: str, indexes: Collection[int], draining: bool) -> List[str]:
    """No new requests to these instances, or requests again; the names of those for which that is new."""
    changed = would_put(home, service, indexes, draining)
    for name in changed:
        (control.drain if draining else control.undrain)(place.folder(home, service), _spec(home, service), name)
    return changed


def wait_empty(home: str, service: str, indexes: Collection[int], wait_s: float, say: Say) -> bool:
    """Wait until these instances have no request from the gateway, at most `wait_s`; True when all are empty."""
    began = time.monotonic()
    waiting = dict.fromkeys(_names(home, service, indexes), -1)
    while True:
        counts = {door.name: door.in_flight for door in look(home, service) if door.name in waiting}
        seconds = time.monotonic() - began
        for name, count in counts.items():
            if waiting[name] < 0:
                say(f"gateway: {name} takes no new requests, {count} in flight")
            if count == 0:
                if waiting[name] > 0:
                    say(f"gateway: {name} empty after {seconds:.0f} s")
                del waiting[name]
            else:
                waiting[name] = count
        if not waiting or not counts:
            return not waiting
        if seconds >= wait_s:
            for name, count in waiting.items():
                say(f"gateway: {name} still {count} in flight after {seconds:.0f} s: going on")
            return False
        time.sleep(POLL_S)


def leave(home: str, service: str, indexes: Collection[int], wait_s: float, say: Say) -> List[str]:
    """Before these instances are stopped: lead requests elsewhere and let those that run end, for at most `wait_s`.

    They stay out until somebody takes them in again. Nothing is done where no gateway runs. Returns the names of those that were
    in until now. Never raises.
    """
    if not indexes or not place.runs(home, service):
        return []
    taken: List[str] = []
    try:
        taken = put(home, service, indexes, True)
        wait_empty(home, service, indexes, wait_s, say)
    except GatewayError as exc:
        say(f"gateway: {exc}; stopping all the same")
    except Exception as exc:  # whatever a gateway of another version answers
        say(f"gateway: it could not be told that instances leave: {type(exc).__name__}: {exc}; stopping all the same")
    return taken


@contextlib.contextmanager
def away(home: str, service: str, index: int, wait_s: float, over: Callable[[], bool], say: Say) -> Iterator[None]:
    """An instance is stopped within by its supervisor, which may start it again with nobody there to take it in.

    So it may get requests again right after its end (`over`): from then on the gateway goes by what it sees of the instance. One
    that somebody else had taken out stays out, and so does one that has not ended. Never raises by itself.
    """
    taken = leave(home, service, [index], wait_s, say)
    yield
    if not taken or not place.runs(home, service):
        return
    if not over():
        say(f"gateway: {taken[0]} has not ended and stays out; a deploy that proves it takes it in")
        return
    try:
        put(home, service, [index], False)
        say(f"gateway: {taken[0]} gets requests again as soon as it answers")
    except Exception as exc:  # as when it leaves
        say(f"gateway: {taken[0]} stays out, a deploy takes it in: {type(exc).__name__}: {exc}")


def would_leave(home: str, service: str, indexes: Collection[int], wait_s: float) -> List[str]:
    """The same in words, with nothing done."""
    names = _names(home, service, indexes) if place.runs(home, service) else []
    if not names:
        return []
    return [f"would take {', '.join(names)} out of the gateway and wait {wait_s:.0f} s at most until no request is left there"]
