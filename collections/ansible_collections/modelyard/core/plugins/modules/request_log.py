#!/usr/bin/python
"""Module: read the result logs of the gateways on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: request_log
short_description: Say what happened to requests, from the result logs of the gateways
description:
  - Reads C(services/<name>.gateway/instance-0/logs/results.jsonl) and its older parts of every service of the home. Groups failed
    requests by status and cause and compares them with those that succeeded. Changes nothing.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: The one service to read; empty for all., type: str, default: ""}
  user: {description: Only requests with this C(user); empty for all., type: str, default: ""}
  request: {description: Only the request with this id; empty for all., type: str, default: ""}
  since_s: {description: Only requests of the last so many seconds; 0 for all., type: int, default: 0}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Read the result logs
  modelyard.core.request_log:
    home: /opt/modelyard
    user: batch-17
"""

RETURN = r"""
logs: {description: What the log of each service says., type: list, elements: dict, returned: success}
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.survey import request_log


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "request": {"type": "str", "default": ""},
            "since_s": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    args = module.params
    since = ""
    if args["since_s"]:
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - args["since_s"]))
    names = request_log.services(args["home"], args["service"])
    logs = [request_log.read(args["home"], name, args["user"], args["request"], since) for name in names]
    module.exit_json(changed=False, logs=logs)


if __name__ == "__main__":
    main()
