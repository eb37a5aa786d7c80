#!/usr/bin/python
"""Module: ask running instances what one acceptance step wants to know."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_probe
short_description: Gather what an acceptance step needs from every instance of a service
description:
  - Instances are asked at the same time, requests to one instance one after the other, and an instance is asked no further
    step once one has failed. The action plugin of the same name walks the ladder, validates and gives the verdict.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  plan: {description: The service as the plan has it., type: dict, default: {}}
  steps: {description: Ids of the acceptance steps to ask., type: list, elements: str, default: []}
  offsets: {description: Where in its log each instance was when the ladder began; empty to begin here., type: dict, default: {}}
  timeout_s: {description: Limit of one request., type: float, default: 120}
  record: {description: Write this down as the result of the acceptance., type: dict}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Walk the acceptance ladder
  modelyard.core.service_probe:
    home: /opt/modelyard
    service: "{{ plan_result.services[0] }}"
    steps: [health, schema]
"""

RETURN = r"""
seen: {description: Evidence by instance and step., type: dict, returned: success}
"""

import threading
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance, engine_log
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, proc, stop, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.survey import host, http


def processes(home: str, service: str, state: dict) -> dict:
    """The instance's own process tree."""
    keeper = int(state["keeper"]["pid"])
    found = identity.census(stop.claim(home, service))
    mine = [f.process for f in found if f.verdict == identity.OURS and f.process.sid == keeper and f.process.state not in "ZX"]
    return {
        "alive": supervisor.leader_alive(state),
        "leader": state["leader"]["pid"],
        "comms": [p.comm for p in mine if p.pid != keeper],
        "pids": [p.pid for p in mine],
    }


def port(home: str, service: str, state: dict) -> dict:
    """Who listens on the instance's port."""
    table = proc.processes()
    wanted = state["request"]["port"]
    listeners = [x for x in proc.listeners() if x.port == wanted]
    owners = {proc.socket_owner(x.inode, table) for x in listeners}
    mine = processes(home, service, state)["pids"]
    return {"listening": bool(listeners), "pid": next(iter(owners), None), "ours": bool(owners) and owners <= set(mine)}


def ask(home: str, service: str, state: dict, wanted: dict, key: str, timeout_s: float) -> dict:
    """One ask of one instance; requests stop at the first that is not answered with 200."""
    began = time.monotonic()
    if wanted["kind"] == "process":
        seen = processes(home, service, state)
    elif wanted["kind"] == "port":
        seen = port(home, service, state)
    else:
        address = (state["request"]["host"], state["request"]["port"])
        seen = {"answers": []}
        for body in wanted["bodies"]:
            seen["answers"].append(http.request(address, wanted["method"], wanted["path"], body, key, timeout_s))
            if seen["answers"][-1]["status"] != 200:
                break
    seen["seconds"] = round(time.monotonic() - began, 3)
    return seen


def log_since(state: dict, offset: int) -> str:
    """What an engine has logged since."""
    try:
        with Path(state["log"]).open("rb") as stream:
            stream.seek(offset)
            return stream.read(4 * 2**20).decode("utf-8", "replace")
    except OSError:
        return ""


def record(home: str, service: str, wanted: dict) -> str:
    """Keep the result of every acceptance; a whole and passed one makes the service accepted, bound to these processes."""
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
    accepted = base / "accepted.json"
    if wanted["passed"] and wanted["complete"]:
        instances = []
        for index, folder in layout.instances(home, service):
            state = layout.state(folder)
            if state and supervisor.leader_alive(state):
                instances.append({"index": index, "alive": True, "leader": state["leader"], "digest": state["request"]["digest"]})
        layout.write_json(accepted, {"at": result["at"], "instances": host.accepted_for(instances), "result": str(path)})
    elif not wanted["passed"] and accepted.exists():
        accepted.unlink()
    return str(path)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "plan": {"type": "dict", "default": {}},
            "steps": {"type": "list", "elements": "str", "default": []},
            "offsets": {"type": "dict", "default": {}},
            "timeout_s": {"type": "float", "default": 120.0},
            "record": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    args = module.params
    home, service = args["home"], args["service"]
    if args["record"] is not None:
        module.exit_json(changed=False, result=record(home, service, args["record"]))
    secret = layout.service_dir(home, service) / "api_key"
    key = secret.read_text(encoding="utf-8").strip() if secret.exists() else ""
    seen: dict = {}
    threads = []

    def gather(index: str, state: dict, instance: dict) -> None:
        for step in acceptance.ladder(args["steps"]):
            answer = ask(home, service, state, step.ask(args["plan"], instance), key, args["timeout_s"])
            seen[index]["answers"].append(answer)
            if step.judge(args["plan"], instance, answer, lambda value, schema: [])[0]:
                break
        seen[index]["fatal"] = engine_log.fatal_lines(log_since(state, seen[index]["offset"]))
        seen[index]["alive"] = supervisor.leader_alive(state)

    for instance in args["plan"]["instances"]:
        index = str(instance["index"])
        state = layout.state(layout.instance_dir(home, service, int(index)))
        if state is None:
            module.fail_json(msg=f"{service}/{index} was never started here; deploy it first")
        offset = args["offsets"].get(index)
        if offset is None:
            offset = Path(state["log"]).stat().st_size if Path(state["log"]).exists() else 0
        seen[index] = {"offset": offset, "log": state["log"], "answers": []}
        threads.append(threading.Thread(target=gather, args=(index, state, instance)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    module.exit_json(changed=False, seen=seen)


if __name__ == "__main__":
    main()
