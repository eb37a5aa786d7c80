"""Asking through a service's gateway and, each time, the instance that answered: the pairs that the step `gateway` compares."""

from __future__ import annotations

import contextlib
import os
import statistics
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_counters
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import entry
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import CHAT
from ansible_collections.modelyard.core.plugins.module_utils.survey import counters, stream

NO_GATEWAY = "the service has no gateway"
LATER = "the deploy puts the gateway in front after this; playbooks/acceptance.yml asks through it"


def look(
    plan: Mapping[str, Any], indexes: Sequence[int], key: str, names: Mapping[str, str], after: bool
) -> Dict[int, Dict[str, Any]]:
    """What the judge of the step wants, for each of these instances.

    Requests go one after the other. Their number is bounded: a gateway gives equals their turn. `after`: the gateway comes later.
    """
    seen: Dict[int, Dict[str, Any]] = {
        index: {"why": "", "refused": [], "asked": 0, "pairs": [], "others": 0.0, "crowd": 0.0, "seconds": 0.0}
        for index in indexes
    }
    runnable: List[int] = []
    own, listen = plan["gateway"], plan["listen"]
    if not own or after:
        for one in seen.values():
            one["why"] = LATER if own else NO_GATEWAY
        return seen
    ports = {int(i["index"]): int(i["port"]) for i in plan["instances"]}
    addresses = {index: (listen["host"], ports[index]) for index in seen}
    before = {index: counters.read(address, names) for index, address in addresses.items()}
    for index, one in seen.items():
        one["others"] = engine_counters.in_work(before[index])
    backends = {f"{plan['name']}/{index}": index for index in indexes}
    limit_s = float(plan["acceptance"]["request_timeout_s"])
    for _ in range((entry.PAIRS + 1) * int(plan["topology"]["replicas"]) + 2):
        waiting = [one for one in seen.values() if len(one["pairs"]) < entry.PAIRS and not one["refused"]]
        if not waiting:
            break
        runnable.append(_runnable())
        through = {**stream.ask((own["host"], int(own["port"])), CHAT, entry.body(plan), key, limit_s), "way": "through"}
        usable = through["status"] == 200 and not through["error"]
        late = {} if through["error"] != "timeout" else counters.all_after_time_out(addresses, names, before)
        at_work = [seen[index] for index, figures in late.items() if engine_counters.in_work(figures["later"])]
        # Of several, the one that has the request in work is the one that has not answered it.
        blamed = [one for one in waiting if any(one is other for other in at_work)] or waiting
        for one in waiting:
            one["asked"] += 1
            one["seconds"] = round(one["seconds"] + through["seconds"], 3)
        for one in [] if usable else blamed:
            one["refused"].append(through)
        for index, figures in late.items():
            seen[index]["counters"] = figures
        index = backends.get(through["backend"], -1)
        hit = seen.get(index)
        if usable and any(hit is one for one in waiting):
            direct = {**stream.ask(addresses[index], CHAT, entry.body(plan), key, limit_s), "way": "direct"}
            _add(hit, through, direct)
        if usable and hit is not None:
            before[index] = counters.read(addresses[index], names)
    for one in seen.values():
        one["crowd"] = round(statistics.median(runnable) / (os.cpu_count() or 1), 1) if runnable else 0.0
    return seen


def _runnable() -> int:
    """How many programs of the whole machine run or wait for a processor just now; 0 where that is not told."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            if line.startswith("procs_running "):
                return int(line.split()[1])
    return 0


def _add(one: Any, through: Dict[str, Any], direct: Dict[str, Any]) -> None:
    one["seconds"] = round(one["seconds"] + direct["seconds"], 3)
    if direct["status"] == 200 and not direct["error"]:
        pairs: List[Dict[str, Any]] = one["pairs"]
        pairs.append({"through": through, "direct": direct})
    else:
        one["refused"].append(direct)
