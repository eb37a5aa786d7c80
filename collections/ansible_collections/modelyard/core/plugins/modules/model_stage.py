#!/usr/bin/python
"""Module: one call of staging a model."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_stage
short_description: Fetch a model's files for a while, or check them
description:
  - A call works for O(budget_s) at most, and the next one goes on where it stopped. The action plugin of the same name calls it
    until all is there, and says how far it is.
  - Nothing that lies in the folder is deleted. A file that is replaced is moved to C(.cache/modelyard/set-aside) below it.
options:
  path: {description: Folder of the model., type: path, required: true}
  phase:
    description: >-
      C(offer) says what the source has. C(look) says what of O(entries) is missing, and whether there is room. C(step) fetches.
      C(end) says that the staging is over. C(verify) hashes O(names) against the manifest; without names it says which there are.
      C(record) makes a manifest of what lies there.
    type: str
    choices: [offer, look, step, end, verify, record]
    required: true
  source: {description: "Where it comes from: kind, address, repository, patterns.", type: dict, default: {}}
  token: {description: What the source wants to see before it gives anything., type: str, default: ""}
  entries: {description: Files that are wanted., type: list, elements: dict, default: []}
  told: {description: What the manifest says about the source., type: dict, default: {}}
  names: {description: Files to check., type: list, elements: str, default: []}
  budget_s: {description: Seconds that the call may take., type: float, default: 20.0}
  holder: {description: The run that is at work., type: dict, default: {}}
  dead_run: {description: A run that the control node knows to have ended., type: str, default: ""}
  piece: {description: "A piece that the control node has brought: name, offset, file, sha256.", type: dict, default: {}}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Stage the model
  modelyard.core.model_stage:
    model: "{{ plan_result['models'][0] }}"
    state: staged
    copies: ~/.cache/modelyard/models
    tokens: model_tokens
"""

RETURN = r"""
answer: {description: What came out of the phase., type: dict, returned: success}
status: {description: Of the server that refused; 0 for none., type: int, returned: failure}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import serve


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "phase": {"type": "str", "choices": ["offer", "look", "step", "end", "verify", "record"], "required": True},
            "source": {"type": "dict", "default": {}},
            "token": {"type": "str", "default": "", "no_log": True},
            "entries": {"type": "list", "elements": "dict", "default": []},
            "told": {"type": "dict", "default": {}},
            "names": {"type": "list", "elements": "str", "default": []},
            "budget_s": {"type": "float", "default": 20.0},
            "holder": {"type": "dict", "default": {}},
            "dead_run": {"type": "str", "default": ""},
            "piece": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    phase = module.params["phase"]
    if module.check_mode and phase in ("step", "end", "verify", "record"):
        module.exit_json(changed=phase in ("step", "record"), answer={}, invocation={})
    try:
        answer = serve.answer(phase, module.params)
    except serve.Failed as exc:
        # Without the arguments: the list of files is long.
        said = {"status": exc.status, "passing": exc.passing, "pause_s": exc.pause_s, "holder": exc.holder}
        module.fail_json(msg=str(exc), invocation={}, **said)
    module.exit_json(changed=phase in ("step", "record"), answer=answer, invocation={})


if __name__ == "__main__":
    main()
