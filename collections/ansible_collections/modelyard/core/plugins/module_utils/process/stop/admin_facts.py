"""The facts for a report to an admin, gathered when a stop could not solve it."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import admin, cards, look
from ansible_collections.modelyard.core.plugins.module_utils.survey import device_files, processes

Record = Dict[str, Any]


def gather(
    watch: look.Watch,
    place: cards.Place,
    why: Sequence[str],
    verdicts: Sequence[Record],
    others: Sequence[Record],
    actions: Sequence[Tuple[float, str]],
) -> Record:
    """What is there now: our processes with threads and stacks, the cards, who else is on them, who else uses the host."""
    table = proc.processes()
    living = {found.process.pid: found for found in watch.living()}
    described = cards.describe(living, table, place)
    for one in described:
        one["signs"] = ", ".join(sorted(living[one["pid"]].signs))
        one["command"] = watch.describe(living[one["pid"]])["command"]
    zombies = [found.process for found in watch.zombies()]
    on_devices = set(processes.device_holders(opened.handles(table), place.paths, place.sysroot)) if place.watched else set()
    return {
        "service": watch.service,
        "instances": watch.indexes,
        "host": os.uname().nodename,
        "at": admin.stamp(),
        "boot": proc.boot_id(),
        "why": list(why),
        "processes": described,
        "zombies": [{"pid": z.pid, "comm": z.comm, "ppid": z.ppid} for z in zombies],
        "parents": _parents(zombies, {p.pid for p in watch.keepers}, table, place),
        "cards": list(verdicts),
        "others": list(others),
        "on_devices": cards.describe(on_devices - set(living), table, place),
        "users": admin.users(table),
        "actions": list(actions),
        "backend": place.backend,
        "entry": {**place.entry, "reload": _modules(place)},
        "file": str(admin.path(watch.home, watch.service)),
    }


def _parents(zombies: Sequence[proc.Process], keepers: Any, table: Dict[int, proc.Process], place: cards.Place) -> List[Record]:
    """Living parents, other than process 1 and our keepers, that have not read how their children ended."""
    waiting: Dict[int, List[int]] = {}
    for zombie in zombies:
        if zombie.ppid > 1 and zombie.ppid not in keepers:
            waiting.setdefault(zombie.ppid, []).append(zombie.pid)
    return [{**parent, "children": waiting[parent["pid"]]} for parent in cards.describe(waiting, table, place)]


def _modules(place: cards.Place) -> List[str]:
    """The driver's modules that are in the kernel, in the order in which they can be taken out."""
    names = place.entry.get("reload") or []
    return [name for name in names if os.path.isdir(device_files.below(place.sysroot, f"/sys/module/{name}"))]
