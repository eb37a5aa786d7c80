#!/usr/bin/python
"""Module: end exactly one service's processes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guarded_stop
short_description: Stop a service or some of its instances, and nobody else
description:
  - Finds the processes by several signs (never by port or name alone), asks them to end, ends them firmly when they do not,
    and checks that nothing is left, the ports are closed, the memory of the cards is back and the shared memory is given back.
  - Processes with signs that prove nothing, and strangers on the cards, are reported and left alone. What cannot be solved is
    written down for an admin, and the module fails with the place of that report.
  - In check mode it says which signals it would send, to whom and in which order, and does nothing.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  indexes: {description: Instances to stop; empty for all of the service., type: list, elements: int, default: []}
  runtimes_dir: {description: Where runtimes are made., type: path, default: ""}
  grace_s: {description: "How long the engine may take to end by itself; 0 for what service.json says.", type: float, default: 0}
  memory_s: {description: "How long cards may keep memory; negative for what service.json says.", type: float, default: -1}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Stop the service
  modelyard.core.guarded_stop:
    home: /opt/modelyard
    service: qwen3-14b-32k
"""

RETURN = r"""
actions: {description: "What was done, or would be done, in words and in order.", type: list, elements: str, returned: always}
found: {description: "Processes of the service before, with the signs they showed.", type: list, elements: dict, returned: always}
left: {description: Processes that are still there., type: list, elements: dict, returned: always}
suspects: {description: Processes whose signs prove nothing; they were left alone., type: list, elements: dict, returned: always}
cards: {description: "Verdict on the memory of each card, with the figures.", type: list, elements: dict, returned: always}
others: {description: "Who else has the cards open; left alone.", type: list, elements: dict, returned: always}
needs_admin: {description: Folder of the report for an admin; empty when none is needed., type: str, returned: always}
report: {description: Text of that report., type: str, returned: when an admin is needed}
report_written: {description: It lies whole in that folder., type: bool, returned: when an admin is needed}
stopped: {description: Nothing of it is left., type: bool, returned: always}
seconds: {description: From the beginning of the stop on the host until all was verified., type: float, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import preview, run


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "indexes": {"type": "list", "elements": "int", "default": []},
            "runtimes_dir": {"type": "path", "default": ""},
            "grace_s": {"type": "float", "default": 0.0},
            "memory_s": {"type": "float", "default": -1.0},
        },
        supports_check_mode=True,
    )
    args = module.params
    options = {
        "runtimes_dir": args["runtimes_dir"] or None,
        "grace_s": args["grace_s"] or None,
        "memory_s": args["memory_s"] if args["memory_s"] >= 0 else None,
    }
    act = preview.preview if module.check_mode else run.stop_service
    result = act(args["home"], args["service"], args["indexes"] or None, options)
    if result.pop("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
