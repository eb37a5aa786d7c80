#!/usr/bin/python
"""Module: one NVIDIA driver at one version, kept as it is; or why not now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver
short_description: Install or keep an NVIDIA driver of an exact version
description:
  - Asks the package manager for a dry run and compares it with what was asked for. Refuses with every finding at once, before
    anything is changed. Finishes a run that was interrupted.
  - Holds the set, keeps nouveau out, and switches the daemons on that the packages bring. Ends no process, reloads no driver that
    is loaded, never reboots.
  - In check mode, and without root, it looks, plans and judges.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  runtimes_dir: {description: Where runtimes are made., type: path, default: ""}
  host: {description: Name of the host in findings., type: str, required: true}
  backends: {description: What to know about each kind of card; see plan/data/backends.yml., type: dict, required: true}
  sysroot: {description: The kernel's and the packages' files are read below it. For tests., type: str, default: /}
  tool_path: {description: Folders where programs are looked for first., type: list, elements: str, default: []}
  version: {description: The driver's version., type: str, required: true}
  flavour: {description: Kind of the kernel modules. Empty means whichever is there., type: str, default: ""}
  names:
    description: Packages to ask for, each a list of names of which the first that is offered counts. Empty keeps what is there.
    type: list
    elements: list
    default: []
  signed: {description: The modules are signed by the distribution., type: bool, default: false}
  pending_reboot_allowed: {description: Change it also when a reboot is due already., type: bool, default: false}
  boot_mib: {description: What must be free in /boot., type: int, default: 500}
  usr_mib: {description: What must be free in /usr., type: int, default: 2000}
  wait_s: {description: How long to wait for another run of the package manager., type: int, default: 300}
  limit_s: {description: How long a step may take before it is left to itself., type: int, default: 3600}
author: [Modelyard]
"""

EXAMPLES = r"""
# By its action plugin, which takes version and packages from inventory, verdict and tables.
- name: Install or keep the driver
  modelyard.core.nvidia_driver:
    intent: "{{ modelyard_intent }}"
    state: installed
"""

RETURN = r"""
findings: {description: "What forbade the change, or came of it.", type: list, elements: dict, returned: always}
steps: {description: "What was done or, in check mode, would be.", type: list, elements: dict, returned: always}
reboot: {description: "Why only a reboot makes this driver the one that runs; empty for not.", type: str, returned: always}
next_kernel: {description: "What is wrong with the kernel that boots next; empty for nothing.", type: str, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import steps
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.process import driver


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "runtimes_dir": {"type": "path", "default": ""},
            "host": {"type": "str", "required": True},
            "backends": {"type": "dict", "required": True},
            "sysroot": {"type": "str", "default": "/"},
            "tool_path": {"type": "list", "elements": "str", "default": []},
            "version": {"type": "str", "required": True},
            "flavour": {"type": "str", "default": ""},
            "names": {"type": "list", "elements": "list", "default": []},
            "signed": {"type": "bool", "default": False},
            "pending_reboot_allowed": {"type": "bool", "default": False},
            "boot_mib": {"type": "int", "default": 500},
            "usr_mib": {"type": "int", "default": 2000},
            "wait_s": {"type": "int", "default": 300},
            "limit_s": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    args = module.params
    request = driver.Request(
        survey={key: args[key] for key in ("home", "runtimes_dir", "backends", "sysroot")},
        name=args["host"],
        wanted=Wanted("driver", args["version"], tuple(tuple(names) for names in args["names"])),
        **{key: args[key] for key in driver.Request._fields if key in args},
    )
    done = driver.change(request, module.check_mode)
    answer = {
        "findings": done.findings,
        "steps": [{"kind": step.kind, "words": step.words} for step in done.steps],
        "reboot": done.reboot,
        "next_kernel": done.next_kernel,
        "invocation": {},
    }
    if done.findings:
        what = " ".join(f"{f['id']} {f['where']}: {f['what']} -> {f['do']}." for f in done.findings)
        module.fail_json(msg=what, changed=done.done, **answer)
    module.exit_json(changed=bool(done.steps), diff=steps.diff(done.steps, done.before), **answer)


if __name__ == "__main__":
    main()
