#!/usr/bin/python
"""Module: one look at a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: survey_host
short_description: Look at a host, its runtimes, models, services and ports, in one round trip
description:
  - Reads only. Needs no root; what this user may not read is said in the result and not guessed.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  runtimes: {description: Runtime folders to look into., type: list, elements: path, default: []}
  runtimes_dir: {description: Where runtimes are made., type: path, required: true}
  locks: {description: Name and digest of the locks whose runtimes are wanted., type: dict, default: {}}
  models: {description: Model folders to look into., type: list, elements: path, default: []}
  services: {description: Names of the services that are wanted., type: list, elements: str, default: []}
  ports: {description: Ports that are wanted., type: list, elements: int, default: []}
  python: {description: Interpreter for new runtimes; empty for the module's own., type: str, default: ""}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Look at the host
  modelyard.core.survey_host:
    home: /opt/modelyard
    runtimes_dir: /opt/modelyard/runtimes
    ports: [8000]
"""

RETURN = r"""
survey: {description: What was seen; see module_utils/survey/host.py., type: dict, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id
from ansible_collections.modelyard.core.plugins.module_utils.survey import host


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "runtimes": {"type": "list", "elements": "path", "default": []},
            "runtimes_dir": {"type": "path", "required": True},
            "locks": {"type": "dict", "default": {}},
            "models": {"type": "list", "elements": "path", "default": []},
            "services": {"type": "list", "elements": "str", "default": []},
            "ports": {"type": "list", "elements": "int", "default": []},
            "python": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    args = module.params
    version = host.python(args["python"])["version"]
    wanted = [f"{args['runtimes_dir']}/{runtime_id(name, digest, version)}" for name, digest in args["locks"].items()]
    survey = host.look(
        args["home"],
        wanted + args["runtimes"],
        args["models"],
        args["ports"],
        args["python"],
        args["services"],
        args["runtimes_dir"],
    )
    module.exit_json(changed=False, survey=survey)


if __name__ == "__main__":
    main()
