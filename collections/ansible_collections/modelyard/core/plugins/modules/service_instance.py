#!/usr/bin/python
"""Module: start one instance of a service."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_instance
short_description: Start the engines of a service under their supervisor
description:
  - Starts C(launch.sh) of each instance whose wanted engine does not run yet.
  - An engine that runs with other parameters is never replaced here; stop it first.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  instances: {description: The instances as the plan has them., type: list, elements: dict, required: true}
  host: {description: Address that the engine listens on., type: str, required: true}
  runtime: {description: Folder of the runtime., type: path, required: true}
  model: {description: Fingerprint of the model., type: str, default: ""}
  shutdown_timeout_s: {description: What the engine is allowed for open requests at a stop., type: float, default: 0}
  supervisor: {description: Who keeps it., type: str, choices: [plain], default: plain}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Start the engines
  modelyard.core.service_instance:
    home: /opt/modelyard
    service: qwen3-14b-32k
    instances: "{{ plan_result.services[0].instances }}"
    host: 0.0.0.0
    runtime: /opt/modelyard/runtimes/vllm
"""

RETURN = r"""
states: {description: Keeper and leader (pid and start time) and log by instance., type: dict, returned: success}
"""

import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, supervisor


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "instances": {"type": "list", "elements": "dict", "required": True},
            "host": {"type": "str", "required": True},
            "runtime": {"type": "path", "required": True},
            "model": {"type": "str", "default": ""},
            "shutdown_timeout_s": {"type": "float", "default": 0.0},
            "supervisor": {"type": "str", "choices": ["plain"], "default": "plain"},
        },
        supports_check_mode=True,
    )
    args = module.params
    states, started = {}, []
    for instance in args["instances"]:
        index = int(instance["index"])
        folder = layout.instance_dir(args["home"], args["service"], index)
        state = layout.state(folder)
        alive = state is not None and supervisor.leader_alive(state)
        if alive and state["request"]["digest"] == instance["digest"]:
            pass
        elif alive and not module.check_mode:  # in check mode the stop before this was only shown
            module.fail_json(msg=f"{instance['name']} runs with other parameters (pid {state['leader']['pid']}); stop it first")
        else:
            started.append(instance["name"])
            if module.check_mode:
                continue
            try:
                state = supervisor.SUPERVISORS[args["supervisor"]].start(folder, request(args, instance), sys.executable)
            except (supervisor.StartError, OSError) as exc:
                module.fail_json(msg=str(exc), started=started)
        states[str(index)] = {key: state[key] for key in ("keeper", "leader", "log", "started_at")}
    module.exit_json(changed=bool(started), states=states, started=started)


def request(args: dict, instance: dict) -> dict:
    """What the keeper is asked for, and what a later survey compares with."""
    return {
        "service": args["service"],
        "index": int(instance["index"]),
        "host": args["host"],
        "port": int(instance["port"]),
        "digest": instance["digest"],
        "runtime": args["runtime"],
        "shutdown_timeout_s": args["shutdown_timeout_s"],
        "marker": {identity.MARKER: args["service"]},
        "launch": {"argv": instance["argv"], "environment": instance["environment"], "model": args["model"]},
    }


if __name__ == "__main__":
    main()
