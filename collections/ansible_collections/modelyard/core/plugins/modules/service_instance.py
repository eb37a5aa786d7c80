#!/usr/bin/python
"""Module: start some instances of a service."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_instance
short_description: Start engines of a service under their supervisor
description:
  - Starts each of the instances that does not run, as its C(instance.json) on the host says.
  - An engine that runs with other parameters is never replaced here; stop it first.
  - Starts nothing when an instance that an earlier call has started has ended already. The action plugin service_start calls it
    once for each wave.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  instances: {description: "Name, index and digest of each instance to start.", type: list, elements: dict, required: true}
  earlier: {description: Indexes of instances that were started just before., type: list, elements: int, default: []}
  stagger_s: {description: Seconds that must lie between the newest of C(earlier) and these., type: float, default: 0}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Start the engines
  modelyard.core.service_instance:
    home: /opt/modelyard
    service: qwen3-14b-32k
    instances: [{name: qwen3-14b-32k/0, index: 0, digest: 0123456789abcdef}]
"""

RETURN = r"""
states: {description: "Keeper, leader, supervisor and log by instance.", type: dict, returned: success}
started: {description: Names of the instances that were started., type: list, elements: str, returned: always}
indexes: {description: Their indexes., type: list, elements: int, returned: always}
ended: {description: Those of C(earlier) that have ended; then nothing was started., type: list, elements: int, returned: success}
"""

import sys
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc, supervisor


def wanted(folder: Path, instance: dict, check_mode: bool) -> dict:
    """The request on the host, when it is the one of the plan; raises StartError."""
    request = layout.read_json(folder / layout.REQUEST_FILE)
    if not check_mode and (request is None or request.get("digest") != instance["digest"]):
        what = "is not there" if request is None else "is of another plan"
        raise supervisor.StartError(f"{folder / layout.REQUEST_FILE} {what}: another run has changed it, deploy again")
    return request


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "instances": {"type": "list", "elements": "dict", "required": True},
            "earlier": {"type": "list", "elements": "int", "default": []},
            "stagger_s": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    args = module.params
    result = {"states": {}, "started": [], "indexes": [], "ended": []}
    folders = {index: layout.instance_dir(args["home"], args["service"], index) for index in args["earlier"]}
    ages = [proc.age_s(state["leader"]["start"]) for state in map(layout.state, folders.values()) if state]
    if ages and not module.check_mode:
        time.sleep(max(0.0, args["stagger_s"] - min(ages)))
    for index, folder in folders.items():
        state = layout.state(folder)
        if state is None or not layout.leader_alive(state):
            result["ended"].append(index)
    for instance in [] if result["ended"] else args["instances"]:
        folder = layout.instance_dir(args["home"], args["service"], int(instance["index"]))
        state = layout.state(folder)
        alive = state is not None and layout.leader_alive(state)
        if alive and state["request"]["digest"] == instance["digest"]:
            result["states"][str(instance["index"])] = shown(state)
            continue
        try:
            request = wanted(folder, instance, module.check_mode)
            if module.check_mode:  # the stop before this was only shown
                result["started"].append(instance["name"])
                continue
            if alive:
                raise supervisor.StartError(
                    f"{instance['name']} runs with other parameters (pid {state['leader']['pid']}); stop it first"
                )
            # Before the start: one that fails half-way is stopped with the others.
            result["started"].append(instance["name"])
            result["indexes"].append(int(instance["index"]))
            state = supervisor.start_once(folder, request, sys.executable)
        except (supervisor.StartError, OSError) as exc:
            module.fail_json(msg=str(exc), changed=bool(result["started"]), **result)
        result["states"][str(instance["index"])] = shown(state)
    module.exit_json(changed=bool(result["started"]), **result)


def shown(state: dict) -> dict:
    """What is of interest about a start."""
    return {key: state.get(key) for key in ("keeper", "leader", "supervised", "log", "started_at")}


if __name__ == "__main__":
    main()
