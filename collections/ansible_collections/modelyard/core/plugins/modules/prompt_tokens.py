#!/usr/bin/python
"""Module: count the tokens of prompts with a model's own tokenizer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: prompt_tokens
short_description: Count the tokens of prompts with a model's own tokenizer, and say what the engine's log tells of its cache
description:
  - Without C(part) it only looks, whether the tokenizer can be loaded, what the model's configuration says, and what the log of a
    deployed service tells of its KV cache.
  - The name of C(part) is removed as soon as the file is open. No word of a prompt is written or returned, only numbers of lines
    and of tokens. Needs no service and no card. Changes nothing.
options:
  part: {description: File on the host with lines of prompts; it is removed. Empty to look only., type: path, default: ""}
  first_line: {description: Number of its first line in the whole file., type: int, default: 1}
  plain: {description: "Every line is a text, whatever it looks like.", type: bool, default: false}
  reserve: {description: Tokens of an answer where a line does not say how many., type: int, default: 0}
  limit: {description: The max_model_len of today. 0 when it is not known., type: int, default: 0}
  python: {description: Python of a runtime that has transformers. Empty for none., type: str, default: ""}
  program: {description: Text of the program that counts., type: str, required: true}
  model: {description: Folder with the tokenizer., type: str, required: true}
  chat_template: {description: "Another chat template than the tokenizer's, a file or the text.", type: str, default: ""}
  trust: {description: Code in the model's folder may be run., type: bool, default: false}
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service. Empty for none., type: str, default: ""}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Count the prompts of a part
  modelyard.core.prompt_tokens:
    part: /home/llm/.ansible/tmp/ansible-tmp-1/part-1
    python: /opt/modelyard/runtimes/vllm/bin/python
    program: "{{ lookup('file', 'count_tokens.py') }}"
    model: /srv/models/Qwen3-14B
    home: /opt/modelyard
"""

RETURN = r"""
counts: {description: What was counted in the part., type: dict, returned: with part}
config: {description: "The model's configuration, with the defaults of transformers.", type: dict, returned: without part}
tokenizer: {description: Kind of the tokenizer., type: str, returned: without part}
template: {description: Whether there is a chat template., type: bool, returned: without part}
problem: {description: Why there is no tokenizer. Empty when there is one., type: str, returned: without part}
deployed: {description: What runs or ran of the service., type: dict, returned: without part}
"""

import contextlib
import signal
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan.token_counts import Counts
from ansible_collections.modelyard.core.plugins.module_utils.survey import models, token_count


HELP = "An environment with transformers is enough: context_fit_runtime names it; a deploy makes the runtime of a service"


def ended_from_outside(number, _) -> None:
    """End as any program does, so that the tokenizer's program is ended first."""
    sys.exit(128 + number)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "part": {"type": "path", "default": ""},
            "first_line": {"type": "int", "default": 1},
            "plain": {"type": "bool", "default": False},
            "reserve": {"type": "int", "default": 0},
            "limit": {"type": "int", "default": 0},
            "python": {"type": "str", "default": ""},
            "program": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "chat_template": {"type": "str", "default": ""},
            "trust": {"type": "bool", "default": False},
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
        no_log=True,  # a whole program has no place in the host's log
    )
    args = module.params
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_from_outside)
    with contextlib.ExitStack() as stack:
        opened = []

        def tokenizer() -> token_count.Tokenizer:
            if not opened:
                if not args["python"]:
                    raise token_count.Failed("no runtime is known on this host that could count them")
                wanted = (args["python"], args["program"], args["model"], args["chat_template"], args["trust"])
                opened.append(stack.enter_context(token_count.Tokenizer(*wanted)))
            return opened[0]

        if not args["part"]:
            look(module, tokenizer)
        try:
            stream = stack.enter_context(token_count.taken(args["part"]))
            counts = Counts(args["reserve"], args["limit"] or None)
            token_count.count(stream, counts, args["first_line"], args["plain"], tokenizer)
        except token_count.Failed as exc:
            module.fail_json(msg=f"texts are there whose tokens must be counted, but {exc}. {HELP}")
        except OSError as exc:
            module.fail_json(msg=f"the part of the prompts could not be read: {exc}")
        module.exit_json(changed=False, counts=counts.data())


def look(module, tokenizer) -> None:
    """Say what is there, and end."""
    args = module.params
    listing = models.model_listing(args["model"])
    found = {"config": listing["config"], "tokenizer": "", "template": False, "problem": listing["problem"]}
    try:
        loaded = tokenizer().loaded
        found.update({key: value for key, value in loaded.items() if value is not None})
    except token_count.Failed as exc:
        found["problem"] = str(exc)
    module.exit_json(changed=False, **found, deployed=token_count.deployed(args["home"], args["service"]))


if __name__ == "__main__":
    main()
