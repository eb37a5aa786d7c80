#!/usr/bin/python
"""Module: reset cards that a person has named, when nobody is on them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: card_reset
short_description: Reset cards with their vendor's tool, when nobody uses them
description:
  - Looks at the host right before, and refuses when anybody has one of the cards open, or one that may be reset together with
    them, or when a service of this project runs there. Needs root.
  - The tool runs under a limit. Afterwards the host is looked at again. Never reloads a driver, never reboots, ends no process.
  - In check mode it looks and judges, and says the command.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  runtimes_dir: {description: Where runtimes are made., type: path, default: ""}
  host: {description: Name of the host in findings., type: str, required: true}
  cards:
    description: The cards, each with C(backend), C(index) and C(bus_id). One that has another address now is not touched.
    type: list
    elements: dict
    required: true
  backends: {description: What to know about each kind of card; see plan/data/backends.yml., type: dict, required: true}
  sysroot: {description: The kernel's files about cards are read below it. For tests., type: str, default: /}
  limit_s: {description: How long the reset may take; 0 for what the table of backends says., type: float, default: 0}
author: [Modelyard]
"""

EXAMPLES = r"""
# By its action plugin, which takes the cards from what a person has confirmed.
- name: Reset the confirmed cards
  modelyard.core.card_reset:
    intent: "{{ modelyard_intent }}"
    confirmed: "{{ __recover_confirmed }}"
    limit_s: 120
"""

RETURN = r"""
command: {description: "What was run or, in check mode, would be.", type: str, returned: always}
findings: {description: "What forbade the reset, or came of it.", type: list, elements: dict, returned: always}
said: {description: What the tool said., type: str, returned: when it was run}
cards: {description: The cards before and after., type: list, elements: dict, returned: when it was run}
"""

import shlex

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan import reset
from ansible_collections.modelyard.core.plugins.module_utils.survey import host, nvidia_smi, tool

SHOWN = ("index", "uuid", "bus_id", "name", "health", "memory_used_mib")


def looked(args):
    """A survey of now, in which the host has the name that people know it by."""
    request = host.Request(
        home=args["home"], runtimes_dir=args["runtimes_dir"], backends=args["backends"], sysroot=args["sysroot"]
    )
    seen = host.look(request)
    seen["host"]["name"] = args["host"]
    return seen


def links(program, words, limit_s):
    """How the cards are linked, by pair; None when the tool does not tell."""
    said = tool.run([program, *words], limit_s)
    read = nvidia_smi.read_nvidia_smi(said["stdout"], {"format": "topo"})
    return read["topology"]["pairs"] if said["rc"] == 0 and read["topology"]["gpu_count"] else None


def refuse(module, findings, **more):
    """Fail with every finding in one line; they are kept for the action to show."""
    what = " ".join(f"{f['id']} {f['where']}: {f['what']} -> {f['do']}." for f in findings)
    module.fail_json(msg=what, findings=findings, invocation={}, **more)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "runtimes_dir": {"type": "path", "default": ""},
            "host": {"type": "str", "required": True},
            "cards": {"type": "list", "elements": "dict", "required": True},
            "backends": {"type": "dict", "required": True},
            "sysroot": {"type": "str", "default": "/"},
            "limit_s": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    args = module.params
    backend = args["cards"][0]["backend"]
    entry = args["backends"][backend].get("confirmed_reset") or {}
    before = looked(args)
    account = before["accelerators"].get(backend, {}).get("tool", {"path": "", "state": "missing"})
    program = account["path"]
    asked = entry and account["state"] == "ok"  # of a tool that hangs no more is asked
    pairs = links(program, entry["links"], args["backends"][backend]["tool_limit_s"]) if asked else None
    findings = reset.judge(before, backend, args["cards"], bool(entry and program), pairs)
    named = {card["bus_id"] for card in args["cards"]}
    wanted = [card for card in before["cards"].get(backend, []) if card["bus_id"] in named]
    command = [program, *entry.get("command", []), ",".join(card["uuid"] or card["bus_id"] for card in wanted)]
    shown = " ".join(map(shlex.quote, command)) if entry and program and wanted else ""
    if findings:
        refuse(module, findings, command=shown)
    if module.check_mode:
        module.exit_json(changed=True, command=shown, findings=[], invocation={})
    said = tool.run(command, args["limit_s"] or entry["limit_s"])
    reading = nvidia_smi.read_nvidia_smi(f"{said['stdout']}\n{said['stderr']}", {"format": "gpu_reset"})
    findings = reset.verdict(said, reading, wanted, args["host"])
    after = looked(args)
    # One that was refused is as it was: how it answers says nothing about the reset.
    done = [card for card in wanted if not any(f["where"] == f"{args['host']}:card {card['index']}" for f in findings)]
    findings += [] if said["timed_out"] else reset.answers(after, backend, done)
    cards = [
        {"when": when, **{key: card[key] for key in SHOWN}}
        for when, seen in (("before", before), ("after", after))
        for card in seen["cards"].get(backend, [])
        if card["bus_id"] in named
    ]
    answer = {"command": shown, "said": f"{said['stdout']}{said['stderr']}".strip(), "cards": cards}
    if findings:
        refuse(module, findings, changed=True, **answer)
    module.exit_json(changed=True, findings=[], invocation={}, **answer)


if __name__ == "__main__":
    main()
