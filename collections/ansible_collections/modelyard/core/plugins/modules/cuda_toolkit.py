#!/usr/bin/python
"""Module: the CUDA toolkit of one release; or why not now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit
short_description: Install a CUDA toolkit beside the driver
description:
  - Asks the package manager for a dry run and refuses when that would touch a driver, or packages of others.
  - In check mode, and without root, it plans and judges.
options:
  host: {description: Name of the host in findings., type: str, required: true}
  sysroot: {description: The packages' files are read below it. For tests., type: str, default: /}
  tool_path: {description: Folders where programs are looked for first., type: list, elements: str, default: []}
  version: {description: "Release of CUDA, C(13.0).", type: str, required: true}
  names: {description: "Packages to ask for, each a list of alternatives.", type: list, elements: list, required: true}
  usr_mib: {description: What must be free in /usr., type: int, default: 8000}
  wait_s: {description: How long to wait for another run of the package manager., type: int, default: 300}
  limit_s: {description: How long a step may take before it is left to itself., type: int, default: 3600}
author: [Modelyard]
"""

EXAMPLES = r"""
# By its action plugin, which takes release and packages from inventory and verdict.
- name: Install the CUDA toolkit that the services want
  modelyard.core.cuda_toolkit:
    intent: "{{ modelyard_intent }}"
    state: installed
"""

RETURN = r"""
findings: {description: "What forbade the change, or came of it.", type: list, elements: dict, returned: always}
steps: {description: "What was done or, in check mode, would be.", type: list, elements: dict, returned: always}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import steps
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.process import proc, toolkit
from ansible_collections.modelyard.core.plugins.module_utils.process.packages.exact import Limits


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "sysroot": {"type": "str", "default": "/"},
            "tool_path": {"type": "list", "elements": "str", "default": []},
            "version": {"type": "str", "required": True},
            "names": {"type": "list", "elements": "list", "required": True},
            "usr_mib": {"type": "int", "default": 8000},
            "wait_s": {"type": "int", "default": 300},
            "limit_s": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    args = module.params
    wanted = Wanted("toolkit", args["version"], tuple(tuple(names) for names in args["names"]))
    host = {"name": args["host"], "uid": os.geteuid(), "user": proc.user_name(os.geteuid()), "usr_mib": args["usr_mib"]}
    limits = Limits(args["sysroot"], args["wait_s"], args["limit_s"])
    done = toolkit.install(wanted, host, limits, args["tool_path"], module.check_mode)
    listed = [{"kind": step.kind, "words": step.words} for step in done.steps]
    if done.findings:
        what = " ".join(f"{f['id']} {f['where']}: {f['what']} -> {f['do']}." for f in done.findings)
        module.fail_json(msg=what, changed=done.done, findings=done.findings, steps=listed, invocation={})
    module.exit_json(changed=bool(done.steps), findings=[], steps=listed, diff=steps.diff(done.steps, {}), invocation={})


if __name__ == "__main__":
    main()
