"""stop.sh, and the careful stop of a unit of systemd: the same rules as the module guarded_stop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed, gateway
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand.deployed import Deployed, Refused
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run as careful

Say = Callable[[str], None]


def run(service: Deployed, words: Sequence[str], say: Say) -> int:
    """Stop the service, or the instances that the words name. Exit code 0: nothing of them is left. Raises Refused."""
    problem = deployed.user_problem(service)
    if problem and os.geteuid() != 0:
        raise Refused(problem)
    chosen = deployed.chosen(service, words)
    indexes = [instance.index for instance in chosen] if words else None
    # With words some others serve on, and their gateway does.
    ended = bool(words) or gateway.stop(service, say)
    say(f"stopping {', '.join(instance.name for instance in chosen)}")
    result = careful.stop_service(service.home, service.name, indexes, {}, say)
    say(result["msg"] if result["failed"] else "stopped: nothing of it is left" if ended else "stopped, but not its gateway")
    return 0 if ended and not result["failed"] else 1


def for_supervisor(service: Deployed, folder: Path, say: Say) -> int:
    """The stop of one instance as systemd calls it (ExecStop), or the keeper when an API server has left parts behind."""
    # Not service.instances: one that the inventory wants no more is stopped after service.json has forgotten it.
    found = (pair for pair in layout.instances(service.home, service.name) if pair[1].resolve() == folder.resolve())
    index, place = next(found, (-1, folder))
    if index < 0:
        raise Refused(f"{folder} is no instance of {service.name}")
    layout.asked_to_stop(place)
    result = careful.stop_service(service.home, service.name, [index], {"release_supervisor": False}, say)
    return 1 if result["failed"] else 0
