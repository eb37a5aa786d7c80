"""The cards that a stopped instance had: who still holds them, and whether their memory is back.

Port closed and exit status 0 prove nothing: only the cards say whether an engine is gone. What idle cards hold differs from host
to host, so memory is compared with what was written down in cards.json of the home, else with the usual figure of the backend.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import cards as survey_cards
from ansible_collections.modelyard.core.plugins.module_utils.survey import processes
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_records import TOLERANCE_MIB

Record = Dict[str, Any]
#: BACK: the memory is as on an idle card, but for what others use. HELD: more is in use, and nobody is known who does.
#: TAKEN: others are on the card and how much is theirs is not known. SILENT: the card or its tool does not answer.
#: UNCHECKED: there is no tool that could be asked, or it fails for a reason of its own.
BACK, HELD, TAKEN, SILENT, UNCHECKED = "back", "held", "taken", "silent", "unchecked"
#: Between two looks at the memory: the tools wake the cards up.
POLL_S = (0.5, 1.0, 2.0, 3.0)


class Place(NamedTuple):
    """Where to look for cards: what a service's service.json says about it, and its instances about their devices."""

    backend: str = ""
    entry: Mapping[str, Any] = {}
    sysroot: str = "/"
    devices: Sequence[Record] = ()
    baseline: Mapping[str, Any] = {}

    @property
    def watched(self) -> bool:
        """Are there cards to look at? A CPU core is none."""
        return bool(self.devices) and "vendor" in self.entry

    @property
    def paths(self) -> List[str]:
        """Device files of the cards, without the sysroot."""
        return sorted({path for device in self.devices for path in files_of(device)})


def files_of(device: Mapping[str, Any]) -> List[str]:
    """Paths of a card's own device files, as a plan or a survey has them."""
    return [str(file["path"] if isinstance(file, Mapping) else file) for file in device.get("device_files") or []]


def place(home: str, service: str, indexes: Optional[Collection[int]] = None) -> Place:
    """The cards of a service's instances; none where nothing is written down about them."""
    settings = layout.read_json(layout.service_dir(home, service) / "service.json") or {}
    backend = str(settings.get("backend") or "")
    entry = (settings.get("backends") or {}).get(backend) or {}
    if "tool_places" in entry:
        entry = {**entry, "tool_places": [*(settings.get("tool_path") or []), *entry["tool_places"]]}
    devices: Dict[str, Record] = {}
    for index, folder in layout.instances(home, service):
        if indexes is None or index in indexes:
            for device in (layout.read_json(folder / "instance.json") or {}).get("devices") or []:
                if isinstance(device, dict):
                    devices[str(device.get("uuid") or device.get("bus_id") or device.get("index"))] = device
    baseline = layout.read_json(Path(home) / "cards.json") or {}
    return Place(backend, entry, str(settings.get("sysroot") or "/"), list(devices.values()), baseline)


def usable_place(home: str, service: str, indexes: Optional[Collection[int]] = None) -> Tuple[Place, str]:
    """The same, and why not when people have edited these files: a stop goes on without the cards then."""
    try:
        return place(home, service, indexes), ""
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        return Place(), f"service.json of {service} cannot be used ({type(exc).__name__}: {exc}): its cards were not looked at"


def idle_mib(device: Mapping[str, Any], where: Place) -> Tuple[int, bool]:
    """(MiB that the card holds when nobody uses it, was that written down on this host?)."""
    for key in (device.get("uuid"), device.get("bus_id")):
        written = where.baseline.get(str(key))
        amount = written.get("memory_mib") if isinstance(written, dict) else None
        if isinstance(amount, (int, float)) and math.isfinite(amount):
            return int(amount), True
    return int(where.entry.get("idle_mib") or 0), False


def holders(where: Place, table: Dict[int, proc.Process]) -> Dict[int, List[str]]:
    """Pid -> device files of these cards that it has open, as far as this user may see; programs that only look are left out."""
    seen = opened.handles(table)
    found: Dict[int, List[str]] = {}
    for path, pids in processes.holders(where.paths, seen, where.sysroot).items():
        for pid in pids:
            if table[pid].comm not in where.entry.get("bystanders", []):
                found.setdefault(pid, []).append(path)
    return found


def describe(pids: Collection[int], table: Dict[int, proc.Process], where: Place) -> List[Record]:
    """Plain data about processes, as the survey has it; of those that hang nothing is read that could hang as well."""
    seen = opened.handles({pid: table[pid] for pid in pids if pid in table})
    hung = processes.stuck({pid: table[pid] for pid in pids if pid in table}, watched=pids)
    return [processes.describe(table[pid], seen, set(where.paths), where.sysroot, hung) for pid in sorted(pids) if pid in table]


def look(where: Place, limit_s: float) -> Tuple[List[Record], Record]:
    """(the cards as the vendor's tool and the bus show them, the account of asking the tool); bounded by about `limit_s`."""
    entry = {**where.entry, "tool_limit_s": max(1.0, min(float(where.entry["tool_limit_s"]), limit_s))}
    found, accelerators, _ = survey_cards.look({where.backend: entry}, where.sysroot, lambda paths: {})
    nobody = {"tool": {"state": "missing", "said": "there is no trace of such cards"}, "process_list": "unknown"}
    return found.get(where.backend, []), accelerators.get(where.backend, nobody)


def _same(device: Mapping[str, Any], card: Mapping[str, Any]) -> bool:
    """By what names a card for good; by its number only where nothing else is known of it."""
    for key in ("uuid", "bus_id"):
        if device.get(key) and card.get(key):
            return bool(device[key] == card[key])
    return device.get("index") is not None and device.get("index") == card.get("index")


def of_device(device: Mapping[str, Any], seen: Sequence[Record]) -> Optional[Record]:
    """The card of an instance among those that were looked at."""
    return next((card for card in seen if _same(device, card)), None)


def judge(
    device: Mapping[str, Any],
    where: Place,
    seen: Sequence[Record],
    accelerator: Mapping[str, Any],
    living: Collection[int],
    ours: Collection[int],
    silent: Collection[int],
) -> Record:
    """The verdict on one card. Pure.

    `living`: pids of the table; `ours`: those of the service, whose memory is what must come back; `silent`: other processes with
    the card's device file open.
    """
    idle, written = idle_mib(device, where)
    found = of_device(device, seen)
    title = f"card {device.get('index')}" + (f" ({device['bus_id']})" if device.get("bus_id") else "")
    verdict: Record = {
        "card": title,
        "index": device.get("index"),
        "uuid": device.get("uuid") or "",
        "bus_id": device.get("bus_id") or "",
    }
    verdict.update(backend=where.backend, idle_mib=idle, written=written, used_mib=found["memory_used_mib"] if found else None)
    verdict["others"] = []
    tool = accelerator["tool"]
    if tool["state"] == "hangs":
        return {**verdict, "verdict": SILENT, "what": f"{where.entry['tool']} hangs: {tool['said']}"}
    if found is not None and found["health"] in ("lost", "needs_reset"):
        return {**verdict, "verdict": SILENT, "what": f"the card is {found['health'].replace('_', ' ')}"}
    if found is None or found["memory_used_mib"] is None:
        said = tool["said"] or "the tool says nothing about this card"
        return {**verdict, "verdict": UNCHECKED, "what": f"its memory could not be looked at: {said}"}
    others = [p for p in found["processes"] if p["pid"] in living and p["pid"] not in ours]
    used = found["memory_used_mib"]
    rest = used - sum(p["memory_mib"] or 0 for p in others) - idle
    verdict["others"] = sorted({*(p["pid"] for p in others), *silent})
    base = f"idle is {idle} MiB{'' if written else ' (assumed)'}"
    if rest <= TOLERANCE_MIB:
        return {**verdict, "verdict": BACK, "what": f"{used} MiB in use, {base}"}
    whole = accelerator["process_list"] in ("listed", "none")
    unknown = [p["pid"] for p in others if p["memory_mib"] is None]
    unplaced = [p["pid"] for p in accelerator.get("unplaced_processes", []) if p["pid"] in living and p["pid"] not in ours]
    # A program often has the files of all cards open and uses one; a whole list from the tool shows whether it uses this one.
    mine = sorted({*unknown, *unplaced, *(silent if not whole else [])})
    if mine:
        verdict["others"] = sorted({*verdict["others"], *mine})
        pids = ", ".join(map(str, mine))
        return {**verdict, "verdict": TAKEN, "what": f"{used} MiB in use, {base}; how much of it pid {pids} uses is not known"}
    own = sorted(p["pid"] for p in found["processes"] if p["pid"] in living and p["pid"] in ours)
    whose = (
        f"pid {', '.join(map(str, own))} of this service has not ended" if own else "no living process is known to use the rest"
    )
    return {**verdict, "verdict": HELD, "what": f"{used} MiB in use, {base}; {whose}"}


def watch(
    where: Place,
    limit_s: float,
    ours: Callable[[Dict[int, proc.Process]], Collection[int]],
    say: Callable[[str], None],
    look_s: float = 5.0,
) -> List[Record]:
    """Look at the memory of the cards until all of it is back, or `limit_s` is over; the last verdict on each card.

    DCUs give memory back seconds after their process has ended. `ours`: the service's pids in a table of processes. When time is
    up one look still takes `look_s` at most: the tool may hang.
    """
    began = time.monotonic()
    said = False
    turn = 0
    while True:
        left = limit_s - (time.monotonic() - began)
        seen, accelerator = look(where, max(look_s, left))
        table = proc.processes()
        mine = ours(table)
        open_by = holders(where, table)
        verdicts = []
        for device in where.devices:
            files = set(files_of(device))
            silent = [pid for pid, paths in open_by.items() if files & set(paths) and pid not in mine]
            verdicts.append(judge(device, where, seen, accelerator, table, mine, silent))
        left = limit_s - (time.monotonic() - began)
        waits = [v for v in verdicts if v["verdict"] in (HELD, SILENT)]
        if not waits or left <= 0:
            return verdicts
        if not said:
            said = True
            say(f"waiting up to {limit_s:.0f} s for memory: {'; '.join(v['card'] + ': ' + v['what'] for v in waits)}")
        time.sleep(min(left, POLL_S[min(turn, len(POLL_S) - 1)]))
        turn += 1
