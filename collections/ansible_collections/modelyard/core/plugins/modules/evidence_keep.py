#!/usr/bin/python
"""Module: keep evidence of a failure."""

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence_keep
short_description: Keep logs, processes and replies of a failure in a folder that says why
description:
  - Copies the ends of the instances' logs, what the keepers wrote down, the service's processes and given documents into
    C(evidence/<time>-<service>-<reason>). Never overwrites an earlier one. May not hide the failure it documents, so
    what cannot be kept is said in the result and is no error.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  reason: {description: "Why, in a word that makes a file name.", type: str, required: true}
  documents: {description: Texts to keep by file name., type: dict, default: {}}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Keep the evidence
  modelyard.core.evidence_keep:
    home: /opt/modelyard
    service: qwen3-14b-32k
    reason: died_at_start
"""

RETURN = r"""
path: {description: The folder., type: str, returned: success}
problems: {description: What could not be kept., type: list, elements: str, returned: success}
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import evidence, identity, stop


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "reason": {"type": "str", "required": True},
            "documents": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    args = module.params
    if module.check_mode:
        name = evidence.name(args["service"], args["reason"])
        module.exit_json(changed=True, path=str(Path(args["home"]) / "evidence" / name), problems=[])
    found = identity.census(stop.claim(args["home"], args["service"]))
    documents = {"processes.json": json.dumps([identity.describe(f) for f in found], indent=1), **args["documents"]}
    folder, problems = evidence.keep(args["home"], args["service"], args["reason"], documents)
    module.exit_json(changed=True, path=str(folder), problems=problems)


if __name__ == "__main__":
    main()
