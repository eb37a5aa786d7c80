#!/usr/bin/python
"""Module: take or release the lock of a home."""

from __future__ import annotations

DOCUMENTATION = r"""
module: deploy_lock
short_description: One deploy or teardown at a time
description:
  - Takes or releases the lock file of a home. The action plugin of the same name says who holds it.
  - Never reports a change, so that an unchanged deploy stays unchanged. Does nothing in check mode.
options:
  home: {description: The project's folder on the host; made when it is absent., type: path, required: true}
  state: {description: What to do., type: str, choices: [held, released], default: held}
  holder: {description: Who asks., type: dict, required: true}
  dead_run: {description: A run whose end the control node has seen; its lock is taken over., type: str, default: ""}
  unwritable_allowed:
    description: Go on without a lock when the disk takes none, because it is full, read-only or broken.
    type: bool
    default: false
  expect: {description: State digest of the survey; taking fails when the state has changed since., type: str, default: ""}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Take the lock
  modelyard.core.deploy_lock:
    home: /opt/modelyard
    what: deploy
"""

RETURN = r"""
holder: {description: Who holds the lock when it could not be taken., type: dict, returned: when held by another run}
"""

import errno
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import lock
from ansible_collections.modelyard.core.plugins.module_utils.survey import services

ROOM = " Free some space there first, for example old files in services/*/instance-*/logs."
LOOK = " Look into the kernel's log (dmesg) for what has befallen the disk."
#: A disk that takes no lock: error -> (what is said of it, what to do).
DISKS = {
    errno.ENOSPC: ("is full", ROOM),
    errno.EDQUOT: ("has no room left for this user", ROOM),
    errno.EROFS: ("is read-only", LOOK),
    errno.EIO: ("cannot be written (input/output error)", LOOK),
}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
            "holder": {"type": "dict", "required": True},
            "dead_run": {"type": "str", "default": ""},
            "unwritable_allowed": {"type": "bool", "default": False},
            "expect": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    args = module.params
    if module.check_mode:
        module.exit_json(changed=False)
    if args["state"] == "released":
        try:
            released = lock.release(args["home"], args["holder"]["run"])
        except OSError as exc:
            released = False
            module.warn(f"the lock {lock.path(args['home'])} could not be given back: {exc}. The next run here takes it over.")
        module.exit_json(changed=False, released=released)
    try:
        Path(args["home"]).mkdir(parents=True, exist_ok=True)
        lock.take(args["home"], args["holder"], args["dead_run"])
    except lock.Held as exc:
        module.exit_json(changed=False, held_by=exc.holder or {})
    except OSError as exc:
        what, do = DISKS.get(exc.errno, ("", ""))
        if what and args["unwritable_allowed"]:
            module.warn(f"the disk of {args['home']} {what}: going on without a lock")
            module.exit_json(changed=False)
        module.fail_json(msg=f"the lock {lock.path(args['home'])} could not be taken: {exc}. Nothing was changed.{do}")
    if args["expect"] and services.state_digest(args["home"]) != args["expect"]:
        lock.release(args["home"], args["holder"]["run"])
        module.fail_json(
            msg="another run changed this host while this one was planning. Nothing was changed by this run; run it again."
        )
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
