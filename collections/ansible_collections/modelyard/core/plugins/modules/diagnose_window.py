#!/usr/bin/python
"""Module: look at an instance, or send it requests at the same moment and watch it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose_window
short_description: Send requests to one instance at the same moment, and watch engine, cards and logs meanwhile
description:
  - Without C(bodies) it only looks, whether the instance serves, and whether it works for others.
  - With them it sends all at once, watches about once a second, and ends when each is answered or C(limit_s) is over. Restarts
    and stops nothing. Meant for the action plugin C(diagnose), which comes after a person's word.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  index: {description: Which instance., type: int, required: true}
  metrics: {description: Names of the engine's counters by ours., type: dict, required: true}
  backends: {description: What to know about the cards of its kind. Empty where there are none., type: dict, default: {}}
  sysroot: {description: Folder below which the kernel's files about cards lie., type: str, default: "/"}
  bodies: {description: Bodies of chat requests to send at the same moment., type: list, elements: dict, default: []}
  limit_s: {description: How long an answer may take., type: float, default: 120}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Look whether the instance is idle
  modelyard.core.diagnose_window:
    home: /opt/modelyard
    service: qwen3-14b-32k
    index: 0
    metrics: {running: "vllm:num_requests_running"}
"""

RETURN = r"""
seen: {description: What was seen; survey/diagnose.py says what its keys mean., type: dict, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import diagnose


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "index": {"type": "int", "required": True},
            "metrics": {"type": "dict", "required": True},
            "backends": {"type": "dict", "default": {}},
            "sysroot": {"type": "str", "default": "/"},
            "bodies": {"type": "list", "elements": "dict", "default": []},
            "limit_s": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    args = module.params
    watched = diagnose.Watched(args["home"], args["service"], args["index"], args["metrics"], args["backends"], args["sysroot"])
    if not args["bodies"]:
        module.exit_json(changed=False, seen=diagnose.look(watched))
    if module.check_mode:
        module.exit_json(changed=False, skipped=True)
    if watched.state is None:
        module.fail_json(msg=f"{args['service']}/{args['index']} was never started here")
    secret = layout.service_dir(args["home"], args["service"]) / "api_key"
    key = secret.read_text(encoding="utf-8").strip() if secret.exists() else ""
    module.exit_json(changed=False, seen=diagnose.ask(watched, args["bodies"], key, args["limit_s"]))


if __name__ == "__main__":
    main()
