#!/usr/bin/python
"""Module: the scheduled acceptance of this control node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: schedule
short_description: Install or remove the scheduled acceptance on a control node
description:
  - Installs a timer of systemd (the system's, or this user's), or one line in a crontab, whichever is there. Of one name there
    is one schedule. Units and lines of others are left as they are.
options:
  state: {description: Whether it is there., type: str, choices: [present, absent], default: present}
  kind: {description: Who starts it., type: str, choices: [auto, systemd, systemd_user, cron], default: auto}
  name: {description: Tells one schedule from another., type: str, required: true}
  words: {description: The command with its words., type: list, elements: str, required: true}
  folder: {description: Where it runs., type: path, required: true}
  calendar: {description: When; as in man systemd.time., type: str, required: true}
  cron: {description: When; as in man 5 crontab., type: str, required: true}
  random_delay_s: {description: Longest delay in seconds., type: int, default: 0}
  user: {description: Who runs it; empty for the user that works here., type: str, default: ""}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Schedule the acceptance
  modelyard.core.schedule:
    name: lab
    words: [/opt/modelyard/.venv/bin/modelyard, accept, -i, /opt/modelyard/inventory/lab]
    folder: /opt/modelyard
    calendar: hourly
    cron: 7 * * * *
"""

RETURN = r"""
kind: {description: "Who starts it; empty when nobody does.", type: str, returned: success}
"""

import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan import timer as wanted
from ansible_collections.modelyard.core.plugins.module_utils.process import systemctl, timer


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "kind": {"type": "str", "choices": ["auto", "systemd", "systemd_user", "cron"], "default": "auto"},
            "name": {"type": "str", "required": True},
            "words": {"type": "list", "elements": "str", "required": True},
            "folder": {"type": "path", "required": True},
            "calendar": {"type": "str", "required": True},
            "cron": {"type": "str", "required": True},
            "random_delay_s": {"type": "int", "default": 0},
            "user": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    args = module.params
    mine = pwd.getpwuid(os.geteuid()).pw_name
    user = args["user"] or mine
    present = args["state"] == "present"
    if user != mine and os.geteuid() != 0:
        module.fail_json(msg=f"only root can schedule it for {user}; this is {mine}. Nothing was changed")
    if present and not os.access(args["words"][0], os.X_OK):
        what = f"there is no program {args['words'][0]}: run `make .venv/control` in the checkout"
        module.fail_json(msg=f"{what}. Nothing was changed")
    keys = ("name", "folder", "calendar", "cron", "random_delay_s")
    wish = wanted.Wish(words=tuple(args["words"]), user=user, **{key: args[key] for key in keys})
    try:
        done = timer.apply(wish, args["kind"], present, module.check_mode)
    except (timer.Failed, systemctl.Refused) as exc:
        module.fail_json(msg=f"the acceptance was not scheduled: {exc}")
    diff = [{"before_header": change.pop("path"), **change} for change in done["changes"]]
    module.exit_json(changed=done["changed"], kind=done["kind"], diff=diff)


if __name__ == "__main__":
    main()
