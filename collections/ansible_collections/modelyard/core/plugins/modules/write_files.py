#!/usr/bin/python
"""Module: write many small files in one step."""

from __future__ import annotations

DOCUMENTATION = r"""
module: write_files
short_description: Write the files of a service in one step
description:
  - Writes those that differ, each whole or not at all. A task for each file costs a round trip each, which with eight instances
    is most of the time of a deploy that changes nothing.
  - The action plugin of the same name renders templates. Shell files are checked with C(bash -n) before the first is written.
  - No secrets here, contents show in diffs.
options:
  files:
    description: >-
      Each with C(path), C(mode), C(content) (or, for the action plugin, C(template) with C(vars), or C(program) for the program
      of the scripts), C(state) (C(present) or C(absent)), C(shell) for a file that bash must be able to read, and C(secret)
      for one that no diff may show.
    type: list
    elements: dict
    required: true
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Write a launch script
  modelyard.core.write_files:
    files:
      - {path: /opt/modelyard/services/a/launch.sh, mode: "0755", template: launch.sh.j2, vars: {port: 8000}, shell: true}
"""

RETURN = r"""
written: {description: Paths that were written or removed., type: list, elements: str, returned: success}
"""

import hashlib

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import files


def readable(text: str | None) -> str:
    """For people: a program is told by its hash."""
    content = (text or "").encode("utf-8", "surrogateescape")
    if b"\0" in content:
        return f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}\n"
    return content.decode("utf-8", "replace")


def shown(change: dict) -> list:
    """A change in the form that --diff prints: text and mode."""
    path = change["path"]
    parts = []
    if change["before"] != change["after"]:
        texts = {key: readable(change[key]) for key in ("before", "after")}
        parts.append({"before_header": path, "after_header": path, **texts})
    if change["mode_before"] != change["mode_after"] and None not in (change["mode_before"], change["mode_after"]):
        modes = [f"mode {change[key]:04o}\n" for key in ("mode_before", "mode_after")]
        parts.append({"before_header": path, "after_header": path, "before": modes[0], "after": modes[1]})
    return parts


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"files": {"type": "list", "elements": "dict", "required": True}},
        supports_check_mode=True,
    )
    try:
        wanted = [files.File.of(one) for one in module.params["files"]]
        changed = files.changes(wanted) if module.check_mode else files.write(wanted)
    except files.Failed as exc:
        module.fail_json(msg=f"{exc}. What stood before it in the list may be written; run again when that is mended.")
    parts = [part for change in changed for part in shown(change)] if module._diff else []
    # Without the arguments: they would come back whole with every result.
    module.exit_json(changed=bool(changed), written=[c["path"] for c in changed], diff=parts, invocation={})


if __name__ == "__main__":
    main()
