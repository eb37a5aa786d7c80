#!/usr/bin/python
"""Module: take instances out of their running gateway, and in again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_control
short_description: Take instances of a service out of their running gateway, and in again
description:
  - An instance that is out gets no new requests; those that it has go on to their end.
  - Does nothing where no gateway of the service runs, and changes nothing where an instance is already as wanted. Instances
    that the gateway does not know yet are left out.
  - In check mode it says what is and changes nothing.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  out: {description: Indexes of instances that are to get no new requests., type: list, elements: int, default: []}
  in: {description: Indexes of instances that are to get requests again., type: list, elements: int, default: []}
  wait_s:
    description: "How long to wait until those in C(out) have no request left, in seconds. That some are left is no failure."
    type: float
    default: 0
  prepare:
    description: Check the configuration that was deployed, before a gateway is started with it. Nothing need run.
    type: bool
    default: false
  reload:
    description: Let the running gateway take over the configuration that was deployed. Who is out stays out.
    type: bool
    default: false
  follow:
    description: "Put the gateway that was deployed, of whatever kind, in the place of the one that runs. The port stays open, and
      the last request of the one before is waited for. Where that is not possible nothing is done, and C(followed) is false."
    type: bool
    default: false
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Take one instance out before it is looked after
  modelyard.core.gateway_control:
    home: /opt/modelyard
    service: qwen3-14b-32k
    out: [3]
    wait_s: 30
"""

RETURN = r"""
runs: {description: Whether a gateway of the service runs., type: bool, returned: always}
backends:
  description: "C(name), C(draining) and C(in_flight) of all instances that the gateway has; none where no gateway runs."
  type: list
  elements: dict
  returned: success
followed: {description: "With C(follow): whether it was possible, or would be.", type: bool, returned: success}
actions: {description: What was done or seen in words., type: list, elements: str, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors, place
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "out": {"type": "list", "elements": "int", "default": []},
            "in": {"type": "list", "elements": "int", "default": []},
            "wait_s": {"type": "float", "default": 0.0},
            "prepare": {"type": "bool", "default": False},
            "reload": {"type": "bool", "default": False},
            "follow": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    home, service, out, into = (module.params[key] for key in ("home", "service", "out", "in"))
    both = sorted(set(out) & set(into))
    if both:
        module.fail_json(msg=f"{', '.join(f'{service}/{index}' for index in both)} cannot be both out and in", runs=False)
    runs = place.runs(home, service)
    actions = []
    try:
        wanted = module.params["reload"] and runs
        if (module.params["prepare"] or wanted) and not module.check_mode:
            doors.prepare(home, service)
        if not runs or module.params["prepare"]:  # who is to be followed may be of another kind
            module.exit_json(changed=False, runs=runs, followed=False, backends=[], actions=[])
        followed = module.params["follow"] and _followed(module, actions)
        if wanted and not module.check_mode:
            doors.reload(home, service)
        if wanted:
            actions.append("gateway: takes over its configuration")
        put = doors.would_put if module.check_mode else doors.put
        changed = {draining: put(home, service, indexes, draining) for indexes, draining in ((out, True), (into, False))}
        if changed[False]:
            actions.append(f"gateway: {', '.join(changed[False])} may get requests again")
        if out and not module.check_mode:
            doors.wait_empty(home, service, out, module.params["wait_s"], actions.append)
        backends = [door._asdict() for door in doors.look(home, service)]
    except GatewayError as exc:
        module.fail_json(msg=f"the gateway of {service}: {exc}", runs=runs)
    module.exit_json(
        changed=any(changed.values()) or wanted or followed, runs=True, followed=followed, backends=backends, actions=actions
    )


def _followed(module: AnsibleModule, actions: list) -> bool:
    """Whether the deployed gateway is, or in check mode would be, in the place of the one that runs."""
    home, service = module.params["home"], module.params["service"]
    problem = doors.obstacle(home, service)
    if problem:
        actions.append(f"gateway: it has to be stopped before the new one starts: {problem}")
    elif module.check_mode:
        actions.append("gateway: the new one would take its place; the port stays open")
    else:
        doors.follow(home, service, actions.append)
    return not problem


if __name__ == "__main__":
    main()
