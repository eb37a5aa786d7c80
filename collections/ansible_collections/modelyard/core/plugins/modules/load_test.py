#!/usr/bin/python
"""Module: begin a load test on its host, look how far it is, or end it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: load_test
short_description: Load a service with requests and measure what it sustains
description:
  - C(begin) looks whether a test may begin and starts it as a process of its own. C(look) waits for news. C(stop) ends it. The
    action plugin of the same name calls them in turn and shows what happens.
  - A test ends by itself when nobody has looked for a minute, and at once when the task that looks is ended. It has a lock of its
    own for the home. It restarts nothing, and its load generator is the only process that it ever signals.
  - The record is written to C(services/<name>/load/).
options:
  home: {description: The project's folder on the host., type: path, required: true}
  service: {description: Name of the service., type: str, required: true}
  id: {description: "A name for the test that C(begin) starts; the others are about this very one.", type: str, required: true}
  state: {description: What to do., type: str, choices: [begin, look, stop], required: true}
  request: {description: "What is to be done (module_utils/plan/load_test.py, request); for C(begin).", type: dict, default: {}}
  holder: {description: "Who begins it, for those who find the lock taken.", type: dict, default: {}}
  seen: {description: So many levels are known to who looks., type: int, default: 0}
  wait_s: {description: How long C(look) waits for news., type: float, default: 8.0}
author: [Modelyard]
"""

EXAMPLES = r"""
- name: Load the service
  modelyard.core.load_test:
    service: "{{ plan_result.services[0] }}"
    intent: "{{ modelyard_intent }}"
    options: {concurrency: [8, 16, 32]}
"""

RETURN = r"""
progress: {description: How far it is; the record at the end., type: dict, returned: C(look)}
notes: {description: What should be known before the figures are read., type: list, elements: str, returned: C(begin)}
tool: {description: The load generator that is used., type: str, returned: C(begin)}
"""

import contextlib
import os
import select
import signal
import sys
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.load import bench, detached, look, place
from ansible_collections.modelyard.core.plugins.module_utils.plan import load_test as plan

POLL_S = 0.2
#: The runner ends its generator first, which may need a moment for its result.
STOP_S = 15.0


class Gone(Exception):
    """The one who asked us is not there any more."""


def chosen(request: dict, addresses: list) -> tuple:
    """(the request, without `bench` where our own generator is used; what is to be noted about that). Raises look.Refused."""
    if not request["bench"] and request["tool"] != plan.VLLM:
        return request, ""
    why = bench.missing(request["runtime"], request["bench"])
    if not why and len(addresses) > 1:
        why = f"{bench.NAME} asks one address, and {request['service']} has {len(addresses)} without a gateway"
    if not why:
        return request, ""
    if request["tool"] == plan.VLLM:
        raise look.Refused(f"{why}. Use load_test_tool=own, which gives the same figures")
    return {**request, "bench": {}}, f"{why}; the project's own generator is used"


def begin(home: str, request: dict, holder: dict, id: str) -> dict:
    """Look, refuse or start."""
    if place.free_bytes(home) < place.FREE_BYTES:
        raise look.Refused(f"only {place.free_bytes(home) // 2**20} MiB are free below {home}: the record would not fit")
    look.nobody_deploys(home)
    lock = place.take(home, {**holder, "service": request["service"]})
    running = look.instances(home, request)
    look.fits(request, running)
    notes = [look.nobody_else(request, running)]
    secret = look.key(home, request)
    one = [{"index": r.index, "host": r.host, "port": r.port} for r in running]
    entry, listed = plan.entry(request, one)
    addresses = [(look.http.reachable(host), port) for host, port in listed]
    words = look.words_for(request, addresses, secret)
    request, note = chosen(request, addresses)
    notes.append(note)
    found = {
        "id": id,
        "running": running,
        "addresses": addresses,
        "entry": entry,
        "words": words,
        "key": secret,
        "notes": [note for note in notes if note],
        "measured": look.deployed(home, request, running),
    }
    folder = place.prepare(home, request["service"], id)
    (folder / place.WATCH).touch()
    detached.begin(home, request, found, folder, lock)
    return {"notes": found["notes"], "tool": bench.NAME if request["bench"] else "modelyard"}


def wait(home: str, service: str, id: str, seen: int, wait_s: float) -> dict:
    """Wait until a level is over, or the whole, or the time. Raises Gone."""
    folder = place.run_folder(home, service)
    until = time.monotonic() + wait_s
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):
        poll.register(sys.stdout.fileno(), select.POLLERR | select.POLLHUP)
    while True:
        with contextlib.suppress(OSError):
            (folder / place.WATCH).touch()
        progress = place.progress(folder)
        if progress is None or progress["id"] != id:
            return {"ended": True, "stopped": "its files were taken away or are of another test", "levels": []}
        over = progress["ended"] or len(progress["levels"]) > seen or time.monotonic() >= until
        if not progress["ended"] and not place.is_held(home):
            # It may just have written its last word.
            last = place.progress(folder) or progress
            if last["ended"]:
                return last
            return {
                "ended": True,
                "stopped": f"it has ended without a word (log: {folder / place.LOG}; is the disk full?)",
                "levels": last["levels"],
            }
        if over:
            return progress
        if poll.poll(POLL_S * 1000):
            raise Gone  # nobody reads what we say: the connection to the control node has gone
        time.sleep(POLL_S)


def stop(home: str, service: str, id: str) -> None:
    """End this very test, and wait until it has gone; another one is left alone."""
    folder = place.run_folder(home, service)
    place.ask_to_end(folder, id)
    until = time.monotonic() + STOP_S
    while time.monotonic() < until and place.is_held(home) and (place.progress(folder) or {}).get("id") == id:
        time.sleep(0.05)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "id": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["begin", "look", "stop"], "required": True},
            "request": {"type": "dict", "default": {}},
            "holder": {"type": "dict", "default": {}},
            "seen": {"type": "int", "default": 0},
            "wait_s": {"type": "float", "default": 8.0},
        },
        supports_check_mode=True,
        no_log=True,  # the whole request has no place in the host's log
    )
    args = module.params
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="check mode: no load was made")
    home, service = args["home"], args["service"]
    if args["state"] == "stop":
        stop(home, service, args["id"])
        module.exit_json(changed=False)

    def ended(number, _) -> None:
        raise Gone

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ended)
    try:
        if args["state"] == "begin":
            module.exit_json(changed=False, **begin(home, args["request"], args["holder"], args["id"]))
        module.exit_json(changed=False, progress=wait(home, service, args["id"], args["seen"], args["wait_s"]))
    except (look.Refused, place.Busy) as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"the load test could not be begun: {exc}")
    except Gone:
        stop(home, service, args["id"])
        os._exit(130)


if __name__ == "__main__":
    main()
