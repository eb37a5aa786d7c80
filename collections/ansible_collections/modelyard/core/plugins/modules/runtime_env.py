#!/usr/bin/python
"""Module: make a runtime, one phase a call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_env
short_description: Make an immutable Python environment from a lock file
description:
  - One phase a call (C(begin), C(torch), C(packages), C(finish)), so that the control node can say what is being done.
    The action plugin of the same name calls them in order.
  - A runtime counts only when its last file, C(modelyard.json), is written; a half-made one is removed and made again.
options:
  path: {description: Folder of the runtime., type: path, required: true}
  phase: {description: What to do., type: str, choices: [begin, torch, packages, finish], required: true}
  lock: {description: Content of the lock file., type: str, required: true}
  digest: {description: Digest of the lock., type: str, required: true}
  python: {description: Interpreter to make it with., type: str, required: true}
  torch_packages: {description: Packages that come from the torch index., type: list, elements: str, default: []}
  torch_index_url: {description: Index for them where pip has no place of its own that holds them., type: str, default: ""}
  index_url: {description: Index for all others; empty for pip's own configuration., type: str, default: ""}
  find_links: {description: "A folder or page with packages, asked besides the index.", type: str, default: ""}
  wheelhouse: {description: "A folder with all wheels of the lock; then nothing else is asked.", type: str, default: ""}
  expect: {description: "What the installed torch must say of itself: torch, cuda, hip.", type: dict, default: {}}
  check: {description: Python code that proves it; empty imports vllm., type: str, default: ""}
  metadata_shim: {description: Name and version of a metadata-only package to add., type: dict, default: {}}
  left_out: {description: Packages that are left out on purpose., type: list, elements: str, default: []}
  run: {description: Id of the run that makes it., type: str, required: true}
  vendor: {description: "Files of a vendor to install: path, sha256 (or empty).", type: list, elements: dict, default: []}
  environment: {description: What the vendor's packages need set to be imported., type: dict, default: {}}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Make the runtime
  modelyard.core.runtime_env:
    name: vllm-cpu-0.32.0
    path: /opt/modelyard/runtimes/vllm-cpu-0.32.0-py3.11-1f2e3d4c5b6a
    python: /usr/bin/python3
"""

RETURN = r"""
log: {description: File with the output of pip., type: str, returned: always}
present: {description: The runtime was there already., type: bool, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import runtime


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "phase": {"type": "str", "choices": ["begin", "torch", "packages", "finish"], "required": True},
            "lock": {"type": "str", "required": True},
            "digest": {"type": "str", "required": True},
            "python": {"type": "str", "required": True},
            "torch_packages": {"type": "list", "elements": "str", "default": []},
            "torch_index_url": {"type": "str", "default": "", "no_log": True},
            "index_url": {"type": "str", "default": "", "no_log": True},
            "find_links": {"type": "str", "default": ""},
            "wheelhouse": {"type": "str", "default": ""},
            "expect": {"type": "dict", "default": {}},
            "check": {"type": "str", "default": ""},
            "metadata_shim": {"type": "dict", "default": {}},
            "left_out": {"type": "list", "elements": "str", "default": []},
            "run": {"type": "str", "required": True},
            "vendor": {"type": "list", "elements": "dict", "default": []},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    args = module.params
    making = runtime.Making(**{k: v for k, v in args.items() if k != "phase"})
    if making.complete():
        module.exit_json(changed=False, present=True, log=str(making.log))
    if module.check_mode:
        module.exit_json(changed=True, present=False, log=str(making.log))
    try:
        making.do(args["phase"])
    except runtime.RuntimeFailed as exc:
        module.fail_json(msg=str(exc), log=str(making.log))
    except OSError as exc:
        module.fail_json(msg=f"{args['path']}: {exc}", log=str(making.log))
    module.exit_json(changed=True, present=False, log=str(making.log))


if __name__ == "__main__":
    main()
