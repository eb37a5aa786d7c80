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
import re
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, stop

LOG_BYTES = 8 * 2**20


def copy_end(source: Path, target: Path) -> None:
    """The last LOG_BYTES of a file."""
    with source.open("rb") as stream:
        stream.seek(max(0, source.stat().st_size - LOG_BYTES))
        target.write_bytes(stream.read())


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
    reason = re.sub(r"[^A-Za-z0-9_.-]+", "_", args["reason"])[:60]
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{args['service']}-{reason}"
    base = Path(args["home"]) / "evidence"
    if module.check_mode:
        module.exit_json(changed=True, path=str(base / name), problems=[])
    problems = []
    folder = base / name
    try:
        base.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 100):
            if not folder.exists():
                break
            folder = base / f"{name}-{attempt}"
        folder.mkdir()
        found = identity.census(stop.claim(args["home"], args["service"]))
        documents = {"processes.json": json.dumps([identity.describe(f) for f in found], indent=1), **args["documents"]}
        for file, content in documents.items():
            (folder / Path(file).name).write_text(str(content), encoding="utf-8")
        for index, instance in layout.instances(args["home"], args["service"]):
            state = layout.state(instance)
            if state is None:
                continue
            layout.write_json(folder / f"instance-{index}-state.json", state)
            copy_end(Path(state["log"]), folder / f"instance-{index}.log")
    except OSError as exc:
        problems.append(str(exc))
    module.exit_json(changed=True, path=str(folder), problems=problems)


if __name__ == "__main__":
    main()
