#!/usr/bin/python
"""Module: end exactly one service's processes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guarded_stop
short_description: Stop a service, its processes and nobody else's
description:
  - Finds the processes by several signs (never by port or name alone), asks them to end, ends them firmly when they do not,
    and checks that nothing is left, the ports are closed and the shared memory is given back.
  - Processes that show only one sign are reported and left alone. In check mode it only says what it would end.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  runtimes_dir: {description: Where runtimes are made., type: path, default: ""}
  grace_s: {description: How long the engine may take to end by itself., type: float, default: 45}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Stop the service
  modelyard.core.guarded_stop:
    home: /opt/modelyard
    service: qwen3-14b-32k
"""

RETURN = r"""
actions: {description: "What was done, in words and in order.", type: list, elements: str, returned: always}
found: {description: "Processes of the service before, with the signs they showed.", type: list, elements: dict, returned: always}
left: {description: Processes that are still there., type: list, elements: dict, returned: always}
suspects: {description: Processes with one sign only; they were left alone., type: list, elements: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, proc, stop


def listening(states: dict) -> list:
    """Ports of the service that somebody listens on."""
    wanted = {s["request"]["port"] for s in states.values() if s}
    return sorted({x.port for x in proc.listeners() if x.port in wanted})


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "runtimes_dir": {"type": "path", "default": ""},
            "grace_s": {"type": "float", "default": 45.0},
        },
        supports_check_mode=True,
    )
    args = module.params
    stopper = stop.Stopper(args["home"], args["service"], stop.Limits(grace_s=args["grace_s"]), args["runtimes_dir"])
    before = identity.census(stopper.claim)
    ours = [f for f in before if f.verdict == identity.OURS]
    result = {
        "found": [identity.describe(f) for f in ours],
        "suspects": [identity.describe(f) for f in before if f.verdict == identity.SUSPECT],
        "left": [],
        "actions": [],
    }
    unreadable = layout.unreadable(args["home"], args["service"])
    if module.check_mode:
        result["actions"] = [
            f"would end {p['pid']} {p['comm']} of {p['user']} ({', '.join(p['signs'])})" for p in result["found"]
        ]
        module.exit_json(changed=bool(ours), **result)
    left = stopper.run()
    removed = stopper.remove_segments()
    accepted = layout.service_dir(args["home"], args["service"]) / "accepted.json"
    if accepted.exists():
        accepted.unlink()
    living = [identity.describe(f) for f in left if f.process.state not in "ZX"]
    zombies = [identity.describe(f) for f in left if f.process.state in "ZX"]
    result.update(left=living, actions=stopper.actions, changed=bool(stopper.signalled or removed))
    for zombie in zombies:
        result["actions"].append(
            f"{zombie['pid']} has ended and waits for its parent {zombie['ppid']} to reap it; it holds nothing"
        )
    ended = len({(s["pid"], s["start"]) for s in stopper.signalled})
    open_ports, known = listening(stopper.states), any(stopper.states.values()) or not stopper.states
    result["actions"].append(
        f"checked: {len(ours)} process(es) found, {ended} signalled, {len(living)} left; "
        + (f"port {', '.join(map(str, open_ports))} still open" if open_ports else "port closed" if known else "port unknown")
        + f"; {len(removed)} shared-memory segment(s) removed"
    )
    if living:
        pids = ", ".join(f"{p['pid']} {p['comm']} (state {p['state']}, user {p['user']})" for p in living)
        module.fail_json(
            msg=f"{args['service']} was not stopped whole; still there: {pids}. They did not end when killed: look at "
            "/proc/PID/status and the kernel log; nothing else was touched.",
            **result,
        )
    doubtful = [p for p in result["suspects"] if {"marker", "session", "recorded"} & set(p["signs"]) and p["state"] not in "ZX"]
    if unreadable and doubtful:
        pids = ", ".join(f"{p['pid']} {p['command']} ({', '.join(p['signs'])})" for p in doubtful)
        module.fail_json(
            msg=f"state.json of instance {', '.join(map(str, unreadable))} of {args['service']} cannot be read, and these may be "
            f"its processes: {pids}. They were left alone: look at them, and end them yourself if they are.",
            **result,
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
