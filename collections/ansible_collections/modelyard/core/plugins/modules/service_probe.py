#!/usr/bin/python
"""Module: walk the acceptance ladder of one service on its host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_probe
short_description: Walk the acceptance ladder of a service and write the result down
description:
  - All instances are asked at the same time, requests to one instance one after the other; an instance is asked no further
    step once one has failed. One round trip, because a busy engine leaves little processor to anything else.
  - After each step the engine's log, the kernel's log and the memory of the cards are looked at. A failure is kept as evidence.
  - An instance that is at work for others is not asked for tokens; after a while it is called busy, which is no failure.
  - A whole and passed ladder makes the service accepted, bound to these very processes. Restarts nothing. Never reports a
    change. The action plugin of the same name shows the verdicts.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: The service as the plan has it., type: dict, required: true}
  steps: {description: Ids of the acceptance steps to walk; empty for those of the depth., type: list, elements: str, default: []}
  depth: {description: How much of the ladder is walked., type: str, choices: [quick, full], default: full}
  gateway_comes_after: {description: A deploy puts the gateway in front later., type: bool, default: false}
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
acceptance: {description: "The result as it was written down: docs/acceptance.md.", type: dict, returned: success}
result: {description: File with the result on the host., type: str, returned: success}
manifest: {description: "What was deployed, as the host has it; null for none.", type: dict, returned: success}
load: {description: "The newest load test of the service; null for none.", type: dict, returned: success}
evidence: {description: Folder with the evidence of a failure; empty without one., type: str, returned: success}
problems: {description: What could not be kept or written down., type: list, elements: str, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.load import place
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import failure_evidence, probe, walk


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "dict", "required": True},
            "steps": {"type": "list", "elements": "str", "default": []},
            "depth": {"type": "str", "choices": ["quick", "full"], "default": "full"},
            "gateway_comes_after": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    args = module.params
    if module.check_mode:
        module.exit_json(changed=False, skipped=True)
    home, service = args["home"], args["service"]
    try:
        steps = acceptance.ladder(service, args["steps"], args["depth"])
    except KeyError as exc:
        module.fail_json(msg=str(exc.args[0]))
    walked = walk.Walk(home, service, steps, args["gateway_comes_after"])
    entries = walked.run()
    wanted = {
        "passed": len(entries) == len(steps) * len(walked.indexes) > 0 and all(entry["passed"] for entry in entries),
        "depth": acceptance.depth_of(args["steps"], args["depth"]),
        "asked": walked.indexes,
        "steps": [{key: value for key, value in entry.items() if key != "evidence"} for entry in entries],
    }
    failing = acceptance.failing(entries)
    folder, problems = failure_evidence.keep(home, service["name"], failing[0], entries, walked) if failing else ("", [])
    written, path, why = probe.record(home, service, wanted)
    manifest = layout.read_json(layout.service_dir(home, service["name"]) / "manifest.json")
    said = {"acceptance": written, "result": path, "evidence": folder, "problems": [*problems, *why], "manifest": manifest}
    said["load"] = next(reversed(place.records(place.folder(home, service["name"]))), None)
    module.exit_json(changed=False, **said)


if __name__ == "__main__":
    main()
