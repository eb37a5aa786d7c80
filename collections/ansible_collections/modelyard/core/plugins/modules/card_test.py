#!/usr/bin/python
"""Module: does every card compute, and do those of one instance reach each other?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: card_test
short_description: Make tensors on cards and compare the results with the CPU's
description:
  - Runs a program for each card in a process of its own that sees only this card, and then one program for each rank of each
    group, whose cards passed. All with the Python of the runtime, in a clean environment and with a deadline. A card that
    hangs or crashes does not disturb the test of the others.
  - The programs come through standard input; nothing is written on the host. All processes are ended, and they end with the
    module. One that cannot be ended, because it hangs in the kernel, is named.
  - Judges nothing but whether a card passed. Changes nothing. In check mode nothing is run.
options:
  python: {description: Python of the runtime., type: path, required: true}
  device:
    description: What torch calls the cards. C(cuda) for those of NVIDIA, Hygon and AMD.
    type: str
    choices: [cuda, cpu]
    required: true
  one_card: {description: Text of the program for one card., type: str, required: true}
  all_reduce: {description: Text of the program for one rank of a group., type: str, required: true}
  cards:
    description: Cards to test, each with C(index), C(environment) and, where known, C(cores), C(device_files) and C(uuid).
    type: list
    elements: dict
    required: true
  groups:
    description: Cards that work together, each group with C(name) and C(ranks); a rank with C(cards), C(environment), C(cores).
    type: list
    elements: dict
    default: []
  deadline_s: {description: How long the test of one card may take., type: float, default: 120}
  all_reduce_deadline_s: {description: How long the test of one group may take., type: float, default: 120}
  parallel:
    description: How many cards are tested at once. 0 means all; on the backend cpu as many as cores and main memory allow.
    type: int
    default: 0
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Test two cards
  modelyard.core.card_test:
    python: /opt/modelyard/runtimes/vllm/bin/python
    device: cuda
    one_card: "{{ lookup('file', 'one_card.py') }}"
    all_reduce: "{{ lookup('file', 'all_reduce.py') }}"
    cards:
      - {index: 0, environment: {CUDA_VISIBLE_DEVICES: '0'}}
      - {index: 1, environment: {CUDA_VISIBLE_DEVICES: '1'}}
    groups:
      - name: qwen3-14b-32k/0
        ranks:
          - {cards: [0], environment: {CUDA_VISIBLE_DEVICES: '0,1'}}
          - {cards: [1], environment: {CUDA_VISIBLE_DEVICES: '0,1'}}
"""

RETURN = r"""
cards:
  description: >-
    For each card C(index), C(ok), C(state), C(rc), C(signal), C(stage), C(answer), C(error), C(said), C(seconds), C(pid_left) and
    C(holders).
  type: list
  elements: dict
  returned: success
groups:
  description: For each group C(name), C(ok), C(state), C(seconds), C(broken) and C(ranks).
  type: list
  elements: dict
  returned: success
ended: {description: Pids of processes that tests had left behind; they were ended., type: list, elements: int, returned: success}
"""

import signal
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import children
from ansible_collections.modelyard.core.plugins.module_utils.survey import card_test


def ended_from_outside(number, _) -> None:
    """End as any program does, so that the processes of the test are ended first."""
    sys.exit(128 + number)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "device": {"type": "str", "choices": ["cuda", "cpu"], "required": True},
            "one_card": {"type": "str", "required": True},
            "all_reduce": {"type": "str", "required": True},
            "cards": {"type": "list", "elements": "dict", "required": True},
            "groups": {"type": "list", "elements": "dict", "default": []},
            "deadline_s": {"type": "float", "default": 120.0},
            "all_reduce_deadline_s": {"type": "float", "default": 120.0},
            "parallel": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
        no_log=True,  # whole programs have no place in the host's log
    )
    args = module.params
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, cards=[], groups=[], ended=[], msg="check mode: no card was tested")
    before = children.pids()
    children.adopt()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_from_outside)
    how = (args["python"], args["one_card"], args["device"])
    cards = card_test.each_card(*how, args["cards"], args["deadline_s"], args["parallel"])
    failed = [card["index"] for card in cards if not card["ok"]]
    how = (args["python"], args["all_reduce"], args["device"])
    groups = card_test.each_group(*how, args["groups"], args["all_reduce_deadline_s"], failed)
    left = [r["pid_left"]["pid"] for r in [*cards, *(r for g in groups for r in g["ranks"])] if r["pid_left"]]
    module.exit_json(changed=False, cards=cards, groups=groups, ended=children.end_all_but([*before, *left]))


if __name__ == "__main__":
    main()
