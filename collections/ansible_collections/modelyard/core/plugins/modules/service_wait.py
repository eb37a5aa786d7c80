#!/usr/bin/python
"""Module: watch starting engines until something about them changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_wait
short_description: Watch the engines of a service until one gets further, is ready, or ends
description:
  - Returns as soon as an instance has reached another phase than the caller knows, answers on /health, or has ended; at the
    latest after C(wait_s). The action plugin of the same name calls it until all are ready.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  indexes: {description: Instances to watch., type: list, elements: int, required: true}
  known: {description: "Words that the caller has shown last, by instance.", type: dict, default: {}}
  wait_s: {description: How long to watch., type: float, default: 20}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Wait until the engine answers
  modelyard.core.service_wait:
    home: /opt/modelyard
    service: qwen3-14b-32k
    indexes: [0]
    timeout_s: 900
"""

RETURN = r"""
instances: {description: "Phase, words, seconds, ready, ended, deciding lines, log; by instance.", type: dict, returned: success}
news: {description: "What the caller did not know yet, in order.", type: list, elements: dict, returned: success}
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, stop
from ansible_collections.modelyard.core.plugins.module_utils.survey import watching

POLL_S = 0.25
#: News are handed over at most this often: each call costs the host half a second of processor that the engine needs.
NEWS_S = 6.0


def watch(home: str, service: str, index: int) -> dict:
    """One look at one instance; of one that is ready the shared memory is written down."""
    folder = layout.instance_dir(home, service, index)
    seen = watching.look(folder)
    if seen["ready"]:
        keeper = int(layout.state(folder)["keeper"]["pid"])
        found = identity.census(stop.claim(home, service))
        stop.record_segments(folder, [f.process.pid for f in found if f.verdict == identity.OURS and f.process.sid == keeper])
    return seen


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "indexes": {"type": "list", "elements": "int", "required": True},
            "known": {"type": "dict", "default": {}},
            "wait_s": {"type": "float", "default": 20.0},
        },
        supports_check_mode=True,
    )
    args = module.params
    began = time.monotonic()
    known, news = dict(args["known"]), []
    while True:
        seen = {str(i): watch(args["home"], args["service"], i) for i in args["indexes"]}
        for index, one in seen.items():
            if known.get(index) != one["words"]:
                known[index] = one["words"]
                news.append({"index": index, "elapsed_s": one["elapsed_s"], "words": one["words"]})
        waited = time.monotonic() - began
        decided = any(s["ended"] for s in seen.values()) or all(s["ready"] for s in seen.values())
        if decided or waited > args["wait_s"] or (news and waited > NEWS_S):
            module.exit_json(changed=False, instances=seen, news=news)
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
