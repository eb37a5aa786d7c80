"""What a vendor's tool and the PCI bus say, brought together: texts in, cards out. Looks at nothing by itself."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

Record = Dict[str, Any]

#: Errors that name a card which did not answer.
GONE = ("gpu_lost", "device_handle_error")
#: Errors after which an output cannot be taken for whole.
BROKEN = ("truncated", "malformed_json")
SAID_CHARACTERS = 500
#: MiB above an idle card's memory that are noise: a bare context of a process that is gone holds about 250 (vLLM issue 34643).
TOLERANCE_MIB = 128
DETAILS = 4

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
#: What every list of processes begins with, of whichever release. A text without it is no list, not an empty one.
_KFD_LIST = re.compile(r"KFD PID|KFD process|PIDs? Indexed|Indexed by PID|PID\s+PROCESS NAME", re.IGNORECASE)


class Reading(NamedTuple):
    """What a tool said. `unplaced` are processes of which it is not known on which card they are."""

    cards: List[Record]
    errors: List[Record]
    process_list: str
    unplaced: List[Record]


NOTHING = Reading([], [], "unknown", [])


def card(**known: Any) -> Record:
    """A card of which only `known` is known."""
    return {
        "index": None,
        "uuid": "",
        "name": "",
        "bus_id": "",
        "minor": None,
        "memory_total_mib": None,
        "memory_used_mib": None,
        "utilization_pct": None,
        "health": "unknown",
        "compute_mode": "",
        "mig": False,
        "numa_node": None,
        "driver_version": "",
        "device_files": [],
        "processes": [],
        "holders": [],
        **known,
    }


def address(text: Optional[str]) -> str:
    """A PCI address as sysfs writes it: `00000000:01:00.0` is `0000:01:00.0`; empty for what is none."""
    found = _ADDRESS.fullmatch((text or "").strip().lower())
    return f"{int(found.group(1), 16):04x}:{found.group(2)}:{found.group(3)}.{found.group(4)}" if found else ""


def nvidia(text: str) -> Reading:
    """`nvidia-smi -q -x`, whole or not, or what it printed in its place."""
    from ansible_collections.modelyard.core.plugins.module_utils.survey import nvidia_smi  # noqa: PLC0415  (only where needed)

    read = nvidia_smi.read_nvidia_smi(text, {"format": "xml"})
    cards = [
        card(
            index=gpu["index"],
            uuid=gpu["uuid"] or "",
            name=gpu["name"] or "",
            bus_id=address(gpu["bus_id"]),
            minor=gpu["minor_number"],
            memory_total_mib=gpu["memory_total_mib"],
            memory_used_mib=gpu["memory_used_mib"],
            utilization_pct=None if gpu["utilization_gpu_pct"] is None else float(gpu["utilization_gpu_pct"]),
            health=gpu["health"],
            compute_mode=gpu["compute_mode"] or "",
            mig=gpu["mig_mode"] == "Enabled",
            driver_version=gpu["driver_version"] or "",
        )
        for gpu in read["gpus"]
    ]
    errors = _once(_error(e["kind"], e["bus_id"], e["gpu_index"], e["detail"] or e["field"]) for e in read["errors"])
    unplaced: List[Record] = []
    for found in read["processes"]:
        owner = next((c for c in cards if found["gpu_uuid"] and c["uuid"] == found["gpu_uuid"]), None)
        owner = owner or next((c for c in cards if c["index"] is not None and c["index"] == found["gpu_index"]), None)
        into = unplaced if owner is None else owner["processes"]
        into.append(_process(found["pid"], found["name"], found["used_memory_mib"]))
    return Reading(cards, errors, _whole(read["process_list"] or "unknown", unplaced), unplaced)


def needs_indexes(reading: Reading) -> bool:
    """Are there cards whose number is not printed, or was counted although a card is missing in the list?"""
    missing = any(error["kind"] in GONE for error in reading.errors)
    return bool(reading.cards) and (missing or any(c["index"] is None for c in reading.cards))


def with_indexes(reading: Reading, text: str) -> Reading:
    """The same with the numbers that `nvidia-smi --query-gpu=index,uuid,pci.bus_id` prints; None for a card that is not there."""
    from ansible_collections.modelyard.core.plugins.module_utils.survey import nvidia_smi  # noqa: PLC0415  (only where needed)

    asked = {"format": "query_gpu_csv", "fields": ["index", "uuid", "pci.bus_id"], "header": False}
    numbers = {address(gpu["bus_id"]): gpu["index"] for gpu in nvidia_smi.read_nvidia_smi(text, asked)["gpus"]}
    return reading._replace(cards=[{**c, "index": numbers.get(c["bus_id"])} for c in reading.cards])


def rocm(tool: str, text: str, command: str) -> Reading:
    """The cards that hy-smi or rocm-smi lists; their processes come from a second query."""
    read = _rocm_reader(tool)(text, command)
    cards = []
    sick = {e["device_index"] for e in read["errors"] if e["device_index"] is not None}
    for device in read["devices"]:
        live = any(device[key] is not None for key in ("memory_used_mib", "utilization_gpu_pct", "temperature_c", "power_w"))
        cards.append(
            card(
                index=device["index"],
                uuid=device["unique_id"] or "",
                name=device["name"] or "",
                bus_id=address(device["bus_id"]),
                memory_total_mib=device["memory_total_mib"],
                memory_used_mib=device["memory_used_mib"],
                utilization_pct=device["utilization_gpu_pct"],
                health="error" if device["index"] in sick else "ok" if live else "unknown",
                driver_version=device["driver_version"] or "",
            )
        )
    places = {c["index"]: c["bus_id"] for c in cards}
    errors = [_error(e["kind"], places.get(e["device_index"]), e["device_index"], None) for e in read["errors"]]
    return Reading(cards, errors, "unknown", [])


def rocm_processes(reading: Reading, tool: str, text: str, command: str, crashed: bool = False) -> Tuple[Reading, bool]:
    """The same with the processes of `--showpids`; and whether it was no whole list, so that asking again may help."""
    read = _rocm_reader(tool)(text, command)
    kinds = {error["kind"] for error in read["errors"]}
    broken = crashed or bool(kinds & set(BROKEN)) or not (read["processes"] or _KFD_LIST.search(text))
    cards = {c["index"]: {**c, "processes": [*c["processes"]]} for c in reading.cards}
    unplaced: List[Record] = []
    for found in read["processes"]:
        indices = [index for index in found["device_indices"] or [] if index in cards]
        # Of a process on several cards the tool does not say how much lies where.
        row = _process(found["pid"], found["name"], found["used_memory_mib"] if len(indices) < 2 else None)
        for index in indices:
            cards[index]["processes"].append(row)
        if not indices:
            unplaced.append(row)
    if "process_list_unavailable" in kinds or (broken and not read["processes"]):
        state = "unknown"
    elif broken:
        state = "partial"
    else:
        state = "listed" if read["processes"] else "none"
    errors = reading.errors + [_error(kind, None, None, None) for kind in sorted(kinds)]
    result = Reading([*cards.values()], errors, _whole(state, unplaced), unplaced)
    return result, broken and "process_list_unavailable" not in kinds


def merge(reading: Reading, on_bus: Sequence[Record], others: Sequence[str] = ()) -> Tuple[List[Record], List[Record]]:
    """Cards and errors of a backend, in order of index: what the tool lists, what it names as gone, what only the bus shows.

    `others` are PCI addresses of other vendors: what a tool lists there is not of this backend.
    """
    cards = [{**c} for c in reading.cards if c["bus_id"] not in others]
    errors = [*reading.errors]
    for error in (e for e in errors if e["kind"] in GONE):
        known = {c["bus_id"] for c in cards}
        spare = [f["bus_id"] for f in on_bus if f["bus_id"] not in known]
        # A card that is not named by its address is the one that the list lacks, if it lacks just one.
        at = error["bus_id"] or (spare[0] if len(spare) == 1 else "")
        found = [c for c in cards if (at and c["bus_id"] == at) or (not at and c["index"] == error["index"] is not None)]
        if not found and at:
            cards.append(card(index=error["index"], bus_id=at))
            found = cards[-1:]
        for gone in found:
            gone["health"] = "lost"
    known = {c["bus_id"] for c in cards}
    spare = [f["bus_id"] for f in on_bus if f["bus_id"] not in known]
    nameless = sum(1 for c in cards if not c["bus_id"])
    if not nameless:
        cards += [card(bus_id=bus_id) for bus_id in spare]
    elif len(spare) > nameless:
        errors.append(_error("not_listed", None, None, f"{len(on_bus)} cards on the bus, {len(cards)} listed, without address"))
    nodes = {f["bus_id"]: f["numa_node"] for f in on_bus}
    for one in cards:
        one["numa_node"] = nodes.get(one["bus_id"])
    return sorted(cards, key=lambda c: (c["index"] is None, c["index"] or 0, c["bus_id"])), errors


def judge(output: Mapping[str, Any], reading: Reading, on_bus: Sequence[Record]) -> Tuple[str, str]:
    """State of a tool that was run, and what it said when that is not `ok`. Exit codes say little: what was read decides."""
    kinds = {error["kind"] for error in reading.errors}
    if output["timed_out"]:
        state = "hangs"
    elif (reading.cards and not kinds & set(BROKEN)) or (kinds == {"no_devices"} and not on_bus):
        state = "ok"
    elif output["rc"] == 0 and not kinds - set(BROKEN):
        state = "unreadable"
    else:
        state = "failed"
    if state == "ok":
        return state, ""
    lines = [output["note"], *output["stdout"].splitlines(), *output["stderr"].splitlines()]
    # Rules and banners say nothing, and what is no text would do harm on a terminal.
    words = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("==")]
    said = "\n".join("".join(c if c.isprintable() else "\ufffd" for c in line) for line in words)
    return state, (said or f"it printed nothing (exit code {output['rc']})")[:SAID_CHARACTERS]


def _rocm_reader(tool: str) -> Callable[[str, str], Record]:
    from ansible_collections.modelyard.core.plugins.module_utils.survey import rocm_smi  # noqa: PLC0415  (only where needed)

    return rocm_smi.read_hy_smi if tool == "hy-smi" else rocm_smi.read_rocm_smi


def _error(kind: str, bus_id: Optional[str], index: Optional[int], detail: Optional[str]) -> Record:
    return {"kind": kind, "bus_id": address(bus_id), "index": index, "detail": detail or ""}


def _once(errors: Iterable[Record]) -> List[Record]:
    """One error of each kind for a card, which can complain in dozens of fields; `detail` names the first few."""
    found: Dict[Tuple[Any, ...], List[Record]] = {}
    for error in errors:
        found.setdefault((error["kind"], error["bus_id"], error["index"]), []).append(error)
    details = [", ".join(dict.fromkeys(e["detail"] for e in same[:DETAILS] if e["detail"])) for same in found.values()]
    return [{**same[0], "detail": detail} for same, detail in zip(found.values(), details)]


def _process(pid: int, name: Optional[str], memory_mib: Optional[int]) -> Record:
    return {"pid": pid, "name": name or "", "memory_mib": memory_mib}


def _whole(state: str, unplaced: Sequence[Record]) -> str:
    """The state of a list of processes, of which some may be on no card that is known."""
    return "partial" if unplaced and state == "listed" else state
