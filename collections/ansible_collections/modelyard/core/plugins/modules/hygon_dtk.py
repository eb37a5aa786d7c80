#!/usr/bin/python
"""Module: Hygon's driver and DTK at stated releases; or why not now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hygon_dtk
short_description: Install Hygon's driver and DTK from files, side by side with what is there
description:
  - Looks, judges, and refuses with every finding at once before anything is changed. A DTK is unpacked beside others and gets its
    name when it is whole; C(/opt/dtk) is a link that leads to one of them. Ends no process, unloads no driver, never reboots.
  - In check mode, and without root, it looks, plans and judges.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  host: {description: Name of the host in findings., type: str, required: true}
  backends: {description: What to know about the cards; see plan/data/backends.yml., type: dict, required: true}
  sysroot: {description: The kernel's files and /opt are looked for below it. For tests., type: str, default: /}
  tool_path: {description: Folders where programs are looked for first., type: list, elements: str, default: []}
  state:
    description: C(installed) where there is none; C(pinned) also in place of others.
    type: str
    choices: [installed, pinned]
    required: true
  dtk: {description: Release of the DTK., type: str, default: ""}
  tarball: {description: The vendor's archive on the host or on a mirror., type: str, default: ""}
  sha256: {description: Its SHA-256., type: str, default: ""}
  package: {description: The vendor's installer of the driver on the host or on a mirror., type: str, default: ""}
  package_sha256: {description: Its SHA-256., type: str, default: ""}
  answers: {description: "What the installer is told, a line for each question.", type: list, elements: str, default: []}
  users: {description: Users who are to open the cards., type: list, elements: str, default: []}
  limit_s: {description: How long the installer may take., type: int, default: 3600}
author: [Modelyard]
"""

EXAMPLES = r"""
# By its action plugin, which takes the release from the inventory.
- name: Install the toolkit
  modelyard.core.hygon_dtk:
    intent: "{{ modelyard_intent }}"
    state: installed
    tarball: /srv/hygon/DTK-26.04-Ubuntu22.04-x86_64.tar.gz
    sha256: 8d1c...
"""

RETURN = r"""
findings: {description: "What forbade the change, or came of it.", type: list, elements: dict, returned: always}
steps: {description: "What was done or, in check mode, would be.", type: list, elements: dict, returned: always}
reload: {description: "Why the installed driver does not run yet; empty for not.", type: str, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import dtk


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "host": {"type": "str", "required": True},
            "backends": {"type": "dict", "required": True},
            "sysroot": {"type": "str", "default": "/"},
            "tool_path": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["installed", "pinned"], "required": True},
            "dtk": {"type": "str", "default": ""},
            "tarball": {"type": "str", "default": ""},
            "sha256": {"type": "str", "default": ""},
            "package": {"type": "str", "default": ""},
            "package_sha256": {"type": "str", "default": ""},
            "answers": {"type": "list", "elements": "str", "default": []},
            "users": {"type": "list", "elements": "str", "default": []},
            "limit_s": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    done = dtk.Change(module.params).run(module.check_mode)
    lines = "".join(f"{step.kind}: {step.words}\n" for step in done.steps)
    answer = {
        "findings": done.findings,
        "steps": [{"kind": step.kind, "words": step.words} for step in done.steps],
        "reload": done.reload,
        "invocation": {},
    }
    if done.findings:
        what = " ".join(f"{f['id']} {f['where']}: {f['what']} -> {f['do']}." for f in done.findings)
        module.fail_json(msg=what, changed=done.done, **answer)
    module.exit_json(changed=bool(done.steps), diff={"before": "", "after": lines}, **answer)


if __name__ == "__main__":
    main()
