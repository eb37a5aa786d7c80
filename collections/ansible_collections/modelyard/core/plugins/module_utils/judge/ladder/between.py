"""What is looked at after every step, whatever it said: the engine's log, the kernel's log, the memory of the cards. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import memory
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import Verdict, failed

EVIDENCE_FIRST = "the evidence is kept; read it, then stop and start the service"
#: Of the log, in the message: the first ones are often signs of what the next one says.
LINES = 3
#: Kinds of kernel_log.py about the host: they are ours only when they name one of our processes.
OF_PROCESSES = ("oom_kill", "hung_task", "segfault")


def events_of(events: Sequence[Mapping[str, Any]], bus_ids: Sequence[str], pids: Sequence[int]) -> List[Mapping[str, Any]]:
    """Events that concern an instance with these cards and processes.

    One about a card that names none counts for everybody on cards; one about a process only for its own service.
    """
    found = []
    for event in events:
        on_cards = bool(bus_ids) and event["bus_id"] in ("", *bus_ids)
        if event["pid"] in pids or (on_cards and event["kind"] not in OF_PROCESSES):
            found.append(event)
    return found


def stop(seen: Dict[str, Any]) -> Optional[Verdict]:
    """Why the ladder ends after this step although the step itself may have passed; None when nothing is wrong.

    `seen`: {fatal: lines, kernel: events, alive, log, cards_before, cards, share}.
    """
    if seen["kernel"]:
        event = seen["kernel"][0]
        line = str(event["line"]).strip()[:200]
        if event["kind"] == "oom_kill":
            do = "give the host more free memory, or the engine less, before it is started again"
            return failed(f"the kernel ended a process of it for lack of memory: {line}", "oom", do, True)
        return failed(f"the kernel's log has become fatal: {line}", "kernel", memory.CARD_FIRST)
    if seen["fatal"]:
        lines = " / ".join(str(line).strip()[:200] for line in seen["fatal"][:LINES])
        return failed(f"the engine's log has become fatal: {lines} (log: {seen['log']})", "log", EVIDENCE_FIRST, True)
    if not seen["alive"]:
        return failed(f"the engine has ended (log: {seen['log']})", "ended", "read the end of its log, then deploy", True)
    wrong = memory.broken(seen["cards"])
    if wrong:
        return failed(wrong, "card", memory.CARD_FIRST)
    moves = memory.moved(seen["cards_before"], seen["cards"], seen["share"])
    if moves:
        return failed(f"memory moved wrongly: {moves}", "memory_moved", EVIDENCE_FIRST, True)
    return None
