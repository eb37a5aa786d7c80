#!/usr/bin/python
"""Module: write down what was deployed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: manifest_write
short_description: Write the manifest of a service, when something in it has changed
description:
  - Adds what only the host can tell (versions of what is installed, hashes of the rendered files) and writes
    C(services/<name>/manifest.json). When all but C(deployed) is as it was, the file stays as it is, and with it who deployed
    and when.
  - In check mode the hashes of files are not compared, because nothing was rendered.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  manifest: {description: What the control node knows; see module_utils/plan/manifest.py., type: dict, required: true}
  deployed: {description: "Who deploys, from where and with which playbook.", type: dict, default: {}}
author: [Modelyard]
"""

EXAMPLES = r"""
# By its action plugin, which says who deploys.
- name: Write the manifest
  modelyard.core.manifest_write:
    home: /opt/modelyard
    manifest: "{{ service | modelyard_manifest(plan_result) }}"
"""

RETURN = r"""
path: {description: The file., type: str, returned: success}
"""

import getpass
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan import manifest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import deployed


def completed(wanted, folder):
    """The manifest with what the host adds."""
    versions = {**wanted["versions"], "os": deployed.operating_system(), **deployed.software(wanted["runtime"]["path"])}
    return {**wanted, "versions": versions, "files": deployed.files(folder)}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "manifest": {"type": "dict", "required": True},
            "deployed": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
        no_log=True,  # the whole manifest has no place in the host's log
    )
    args, checking = module.params, module.check_mode
    folder = layout.service_dir(args["home"], args["manifest"]["name"])
    path = folder / "manifest.json"
    before = layout.read_json(path)
    after = completed(manifest.merged(before, args["manifest"]), folder)
    if manifest.is_same(before, after, checking):
        module.exit_json(changed=False, path=str(path), invocation={})
    if not checking:
        user = getpass.getuser()
        stamp = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "as_user": user, **args["deployed"]}
        try:
            layout.write_json(path, {**after, "deployed": stamp})
        except OSError as exc:
            module.fail_json(msg=f"the manifest {path} could not be written: {exc}. The old one is as it was; run again.")
    shown = {"before_header": str(path), "after_header": str(path)}
    diff = {**shown, "before": manifest.text(before, checking), "after": manifest.text(after, checking)}
    module.exit_json(changed=True, path=str(path), diff=diff, invocation={})


if __name__ == "__main__":
    main()
