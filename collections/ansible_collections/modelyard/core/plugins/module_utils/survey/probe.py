"""Walking the acceptance ladder on the host: ask an instance, judge, go on or stop, write the result down."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance, engine_log
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, opened, proc, sockets, stop
from ansible_collections.modelyard.core.plugins.module_utils.survey import http, services

LOG_BYTES = 4 * 2**20


def processes(home: str, service: str, state: Dict[str, Any]) -> Dict[str, Any]:
    """The instance's own process tree."""
    keeper = int(state["keeper"]["pid"])
    found = identity.census(stop.claim(home, service))
    mine = [f.process for f in found if f.verdict == identity.OURS and f.process.sid == keeper and f.process.state not in "ZX"]
    return {
        "alive": layout.leader_alive(state),
        "leader": state["leader"]["pid"],
        "comms": [p.comm for p in mine if p.pid != keeper],
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


def ask(home: str, service: str, state: Dict[str, Any], wanted: Dict[str, Any], key: str, timeout_s: float) -> Dict[str, Any]:
    """One ask of one instance; requests stop at the first that is not answered with 200."""
    began = time.monotonic()
    seen: Dict[str, Any] = {}
    if wanted["kind"] == "process":
        seen = processes(home, service, state)
    elif wanted["kind"] == "port":
        seen = port(home, service, state)
    else:
        address = (state["request"]["host"], state["request"]["port"])
        seen["answers"] = []
        for body in wanted["bodies"]:
            seen["answers"].append(http.request(address, wanted["method"], wanted["path"], body, key, timeout_s))
            if seen["answers"][-1]["status"] != 200:
                break
    seen["seconds"] = round(time.monotonic() - began, 3)
    return seen


def log_since(state: Dict[str, Any], offset: int) -> str:
    """What an engine has logged since."""
    try:
        with Path(state["log"]).open("rb") as stream:
            stream.seek(offset)
            return stream.read(LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def record(home: str, service: str, wanted: Dict[str, Any]) -> str:
    """Keep the result of every acceptance; returns the file.

    `wanted`: {steps, asked, passed}. A whole and passed ladder makes an instance accepted, bound to its very process; a
    failed step takes that away. Instances that were not asked keep what they have.
    """
    base = layout.service_dir(home, service)
    (base / "acceptance").mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = base / "acceptance" / f"{stamp}.json"
    for attempt in range(1, 1000):
        if not path.exists():
            break
        path = base / "acceptance" / f"{stamp}-{attempt}.json"
    result = {"at": round(time.time(), 3), "service": service, **wanted}
    layout.write_json(path, result)
    _accept(home, service, wanted, {"at": result["at"], "result": str(path)})
    return str(path)


def _accept(home: str, service: str, wanted: Dict[str, Any], proof: Dict[str, Any]) -> None:
    path = layout.service_dir(home, service) / "accepted.json"
    kept = {int(one["index"]): one for one in services.accepted(home, service)}
    proven = acceptance.proven(wanted["steps"])
    for index in wanted["asked"]:
        own = [step for step in wanted["steps"] if step["instance"] == index]
        passed = bool(own) and all(step["passed"] for step in own)
        state = layout.state(layout.instance_dir(home, service, index))
        if index in proven and state and layout.leader_alive(state):
            kept[index] = {"index": index, "leader": state["leader"], "digest": state["request"]["digest"], **proof}
        elif not passed:
            kept.pop(index, None)
    if kept:
        layout.write_json(path, {"instances": [kept[index] for index in sorted(kept)]})
    elif path.exists():
        path.unlink()


def entry(id: str, instance: Dict[str, Any], complaint: str, detail: str, evidence: Dict[str, Any]) -> Dict[str, Any]:
    """The verdict on one step, with what it rests on."""
    return {
        "id": id,
        "instance": instance["index"],
        "passed": not complaint,
        "seconds": evidence["seconds"],
        "detail": complaint or detail,
        "evidence": evidence,
    }


def walk_one(
    home: str,
    plan: Dict[str, Any],
    instance: Dict[str, Any],
    steps: Sequence[acceptance.Step],
    key: str,
    walked: List[Dict[str, Any]],
) -> None:
    """Walk the ladder of one instance, up to and with the first step that fails; entries go to `walked` one by one."""
    name = plan["name"]
    state = layout.state(layout.instance_dir(home, name, int(instance["index"])))
    log = Path(state["log"]) if state else None
    offset = log.stat().st_size if log and log.exists() else 0
    for step in steps:
        if state is None:
            evidence: Dict[str, Any] = {"seconds": 0.0}
            complaint, detail = "it was never started here; deploy it first", ""
        else:
            timeout_s = float(plan["acceptance"]["request_timeout_s"])
            evidence = ask(home, name, state, step.ask(plan, instance), key, timeout_s)
            complaint, detail = step.judge(plan, instance, evidence)
            evidence["fatal"] = engine_log.fatal_lines(log_since(state, offset))
            if not complaint and evidence["fatal"]:
                complaint = f"the engine's log has become fatal: {evidence['fatal'][0]} (log: {log})"
            if not complaint and not layout.leader_alive(state):
                complaint = f"the engine has ended (log: {log})"
        walked.append(entry(step.id, instance, complaint, detail, evidence))
        if complaint:
            break


def walk(home: str, plan: Dict[str, Any], ids: List[str]) -> List[Dict[str, Any]]:
    """The ladder of every instance at the same time; entries in the order of the ladder, then of the instances."""
    steps = acceptance.ladder(ids)
    secret = layout.service_dir(home, plan["name"]) / "api_key"
    key = secret.read_text(encoding="utf-8").strip() if secret.exists() else ""
    walked: List[List[Dict[str, Any]]] = [[] for _ in plan["instances"]]

    def one(place: int) -> None:
        instance = plan["instances"][place]
        try:
            walk_one(home, plan, instance, steps, key, walked[place])
        except Exception as exc:  # whatever went wrong, it is no pass
            done = len(walked[place])
            what = f"the step could not be judged: {type(exc).__name__}: {str(exc)[:200]}"
            walked[place].append(entry(steps[min(done, len(steps) - 1)].id, instance, what, "", {"seconds": 0.0}))

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(walked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = [step.id for step in steps]
    return sorted((entry for entries in walked for entry in entries), key=lambda e: (order.index(e["id"]), e["instance"]))
