#!/usr/bin/python
"""Module: walk the acceptance ladder of one service on its host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_probe
short_description: Walk the acceptance ladder of a service and write the result down
description:
  - All instances are asked at the same time, requests to one instance one after the other; an instance is asked no further
    step once one has failed. One round trip, because a busy engine leaves little processor to anything else.
  - A whole and passed ladder makes the service accepted, bound to these very processes. Restarts nothing. Never reports a
    change. The action plugin of the same name shows the verdicts and keeps the evidence of a failure.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: The service as the plan has it., type: dict, required: true}
  steps: {description: Ids of the acceptance steps to walk; empty for all., type: list, elements: str, default: []}
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
steps: {description: Verdict and evidence of every step and instance., type: list, elements: dict, returned: success}
passed: {description: No step failed., type: bool, returned: success}
result: {description: File with the result on the host., type: str, returned: success}
manifest: {description: "What was deployed, as the host has it; null for none.", type: dict, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import probe


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "dict", "required": True},
            "steps": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    args = module.params
    if module.check_mode:
        module.exit_json(changed=False, skipped=True)
    try:
        ladder = acceptance.ladder(args["steps"])
    except KeyError as exc:
        module.fail_json(msg=str(exc.args[0]))
    steps = probe.walk(args["home"], args["service"], args["steps"])
    asked = [int(instance["index"]) for instance in args["service"]["instances"]]
    passed = len(steps) == len(ladder) * len(asked) > 0 and all(step["passed"] for step in steps)
    shown = [{k: v for k, v in step.items() if k != "evidence"} for step in steps]
    wanted = {"passed": passed, "asked": asked, "steps": shown}
    result = probe.record(args["home"], args["service"]["name"], wanted)
    manifest = layout.read_json(layout.service_dir(args["home"], args["service"]["name"]) / "manifest.json")
    module.exit_json(changed=False, passed=passed, steps=steps, result=result, manifest=manifest)


if __name__ == "__main__":
    main()
