#!/usr/bin/python
"""Module: which layer of a service failed, from what lies on its host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: triage
short_description: Say which layer of each service failed, from the logs of all its starts, its processes and the kernel's log
description:
  - Reads the logs of all starts of every instance, in pieces and in bounded memory; the service's own processes, with the kernel
    stacks of those that may be stuck, where they can be read; and the kernel's log. Changes nothing, asks no engine.
  - Secrets are taken out of what is returned.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: The one service to look at; empty for all., type: str, default: ""}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Find out why the service has ended
  modelyard.core.triage:
    home: /opt/modelyard
    service: qwen3-14b-32k
"""

RETURN = r"""
services: {description: "Of each: starts, processes, stacks, now, left, kernel, problems; survey/triage.py has their meaning.",
  type: list, elements: dict, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import triage


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"home": {"type": "path", "required": True}, "service": {"type": "str", "default": ""}},
        supports_check_mode=True,
    )
    home, wanted = module.params["home"], module.params["service"]
    there = layout.services(home)
    if wanted and wanted not in there:
        module.fail_json(msg=f"No service {wanted} was deployed below {home}; there are: {', '.join(there) or 'none'}")
    names = [wanted] if wanted else there
    module.exit_json(changed=False, services=[triage.look(home, name) for name in names])


if __name__ == "__main__":
    main()
