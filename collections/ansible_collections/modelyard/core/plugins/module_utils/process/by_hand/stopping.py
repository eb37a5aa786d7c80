"""stop.sh, and the careful stop of a unit of systemd: the same rules as the module guarded_stop."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed, gateway
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand.deployed import Deployed, Refused
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run as careful
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import settings

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
    try:
        result = careful.stop_service(service.home, service.name, indexes, {}, say)
    except KeyboardInterrupt:
        gateway.say_who_is_out(service, say)
        raise
    _say_report(result, say)
    took = f"{proc.age_s(proc.identity(os.getpid())[1]):.1f} s"
    gone = f"stopped and verified in {took}: nothing of it is left"
    say(result["msg"] if result["failed"] else gone if ended else f"stopped and verified in {took}, but not its gateway")
    return 0 if ended and not result["failed"] else 1


def for_supervisor(service: Deployed, folder: Path, only_signals: bool, say: Say) -> int:
    """The stop of one instance as systemd calls it (ExecStop), or the keeper when an API server has left parts behind.

    `only_signals`: the keeper, after whose end systemd calls a whole stop.
    """
    # Not service.instances: one that the inventory wants no more is stopped after service.json has forgotten it.
    found = (pair for pair in layout.instances(service.home, service.name) if pair[1].resolve() == folder.resolve())
    index, place = next(found, (-1, folder))
    if index < 0:
        raise Refused(f"{folder} is no instance of {service.name}")
    known = layout.state(place)
    layout.asked_to_stop(place)
    options = {"release_supervisor": False, "only_signals": only_signals}
    with contextlib.ExitStack() as ended:
        # One whose API server has ended by itself has no requests, and its gateway has seen that.
        if known and layout.leader_alive(known):
            drain_s = settings.read(service.home, service.name, [known]).drain_s
            ended.enter_context(
                doors.away(service.home, service.name, index, drain_s, lambda: not layout.leader_alive(known), say)
            )
        result = careful.stop_service(service.home, service.name, [index], options, say)
    _say_report(result, say)
    if result["failed"]:
        say(result["msg"])
    return 1 if result["failed"] else 0


def _say_report(result: Mapping[str, Any], say: Say) -> None:
    """A report that found no place on the disk is said instead."""
    if not result.get("report_written", True):
        say(result["report"])
