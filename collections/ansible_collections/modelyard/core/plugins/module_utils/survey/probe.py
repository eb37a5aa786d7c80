"""Asking one instance what a step of the acceptance wants to know, and writing the result of a whole acceptance down."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, opened, proc, sockets, stop
from ansible_collections.modelyard.core.plugins.module_utils.survey import counters, http, services

SCHEMA = 1
ACCEPTED = "accepted.json"
#: In the command line of Python's own helper, which outlives an engine.
TRACKER = "resource_tracker"
#: Results that are kept of a service; older ones are removed.
RESULTS_KEPT = 200


def processes(home: str, service: str, state: Dict[str, Any]) -> Dict[str, Any]:
    """The instance's own process tree."""
    keeper = int(state["keeper"]["pid"])
    found = identity.census(stop.claim(home, service))
    mine = [f.process for f in found if f.verdict == identity.OURS and f.process.sid == keeper and f.process.state not in "ZX"]
    return {
        "alive": layout.leader_alive(state),
        "leader": state["leader"]["pid"],
        "comms": [p.comm for p in mine if p.pid != keeper],
        "helpers": sum(TRACKER in (proc.command(p.pid) or "") for p in mine if p.pid != keeper),
        "pids": [p.pid for p in mine],
    }


def port(home: str, service: str, state: Dict[str, Any]) -> Dict[str, Any]:
    """Who listens on the instance's port."""
    wanted = state["request"]["port"]
    listeners = [x for x in sockets.listeners() if x.port == wanted]
    known = sockets.socket_owners(opened.handles(proc.processes()))
    owners = {known.get(x.inode) for x in listeners}
    mine = processes(home, service, state)["pids"]
    return {"listening": bool(listeners), "pid": next(iter(owners), None), "ours": bool(owners) and owners <= set(mine)}


def address(state: Mapping[str, Any]) -> Any:
    """Where an instance answers."""
    return (state["request"]["host"], state["request"]["port"])


def names(plan: Mapping[str, Any]) -> Mapping[str, str]:
    """What the release calls its figures."""
    found: Mapping[str, str] = plan["metrics"]
    return found


def ask(home: str, plan: Mapping[str, Any], state: Dict[str, Any], wanted: Dict[str, Any], key: str) -> Dict[str, Any]:
    """One ask of one instance; requests stop at the first that is not answered with 200.

    After a time-out the engine's figures are looked at, and after a refused connection its process and port.
    """
    began = time.monotonic()
    service = str(plan["name"])
    seen: Dict[str, Any] = {}
    if wanted["kind"] == "process":
        seen = processes(home, service, state)
    elif wanted["kind"] == "port":
        seen = port(home, service, state)
    else:
        timeout_s = float(plan["acceptance"]["request_timeout_s"])
        seen = {"asked": wanted["bodies"], "answers": []}
        before = counters.read(address(state), names(plan)) if wanted["method"] == "POST" else {}
        for body in wanted["bodies"]:
            answer = http.request(address(state), wanted["method"], wanted["path"], body, key, timeout_s)
            seen["answers"].append(answer)
            if answer["error"] == "timeout":
                seen["counters"] = counters.after_time_out(address(state), names(plan), before)
            elif answer["error"] == "refused":
                listening = any(x.port == state["request"]["port"] for x in sockets.listeners())
                seen["engine"] = {"alive": layout.leader_alive(state), "listening": listening}
            if answer["status"] != 200 or answer["error"]:
                break
    seen["seconds"] = round(time.monotonic() - began, 3)
    return seen


def record(home: str, plan: Mapping[str, Any], wanted: Dict[str, Any]) -> Tuple[Dict[str, Any], str, List[str]]:
    """Write down the result of an acceptance; (the result, its file, what could not be written).

    `plan`: the service; `wanted`: {passed, depth, asked, steps}. A whole and passed ladder makes an instance accepted, bound to
    its very process; a failed step takes that away, one that could not be judged does not. Instances that were not asked keep
    what they have. Where nothing can be written, nothing becomes accepted, and the verdict is returned all the same.
    """
    base = layout.service_dir(home, str(plan["name"]))
    result = {"schema": SCHEMA, "at": round(time.time(), 3), "service": str(plan["name"]), **wanted}
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names_of = [f"{stamp}.json", *(f"{stamp}-{attempt}.json" for attempt in range(1, 1000))]
    path = next((base / "acceptance" / name for name in names_of if not (base / "acceptance" / name).exists()), base)
    problems = []
    try:
        path.parent.mkdir(exist_ok=True)
        layout.write_json(path, result)
    except OSError as exc:
        problems.append(f"the result of the acceptance: {exc}")
    try:
        _accept(home, plan, wanted, {"at": result["at"], "result": str(path)})
        _forget(base)
    except OSError as exc:
        problems.append(_withdrawn(base / ACCEPTED, exc))
    return result, str(path), problems


def _withdrawn(path: Path, exc: OSError) -> str:
    """Words for an acceptance that could not be written down. What was accepted before counts no more, where that can be done."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        if path.exists():
            return f"what is accepted now, and {path} cannot be removed either: it says what was accepted before: {exc}"
    return f"what is accepted now, so nothing of the service is: {exc}"


def _accept(home: str, plan: Mapping[str, Any], wanted: Dict[str, Any], proof: Dict[str, Any]) -> None:
    service = str(plan["name"])
    path = layout.service_dir(home, service) / ACCEPTED
    kept = {int(one["index"]): one for one in services.accepted(home, service)}
    proven = acceptance.proven(plan, wanted["steps"])
    for index in wanted["asked"]:
        own = [step for step in wanted["steps"] if step["instance"] == index]
        state = layout.state(layout.instance_dir(home, service, index))
        if index in proven and state and layout.leader_alive(state):
            kept[index] = {"index": index, "leader": state["leader"], "digest": state["request"]["digest"], **proof}
        elif not own or acceptance.failing(own):
            kept.pop(index, None)
    if kept:
        layout.write_json(path, {"instances": [kept[index] for index in sorted(kept)]})
    elif path.exists():
        path.unlink()


def _forget(base: Path) -> None:
    """Remove the oldest results beyond RESULTS_KEPT, but none that an acceptance rests on."""
    needed = {str(one.get("result")) for one in (layout.read_json(base / ACCEPTED) or {}).get("instances") or ()}
    results: List[Path] = sorted((base / "acceptance").glob("*.json"))
    for path in results[:-RESULTS_KEPT]:
        if str(path) not in needed:
            with contextlib.suppress(OSError):
                path.unlink()
