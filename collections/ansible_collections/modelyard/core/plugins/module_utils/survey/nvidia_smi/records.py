"""The shapes that a reading is made of, and the judgement of a GPU's health from what its fields say."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import values

Record = Dict[str, Any]

#: From worst to best. If several hold for one output, the first counts.
PROCESS_LISTS = ("unknown", "partial", "listed", "none")
#: Fields that give a reset or recovery state, by the end of their name in CSV and by their name in XML.
RESET_FLAGS = ("reset_required", "drain_and_reset_recommended")
RECOVERY_ACTION = "gpu_recovery_action"


def new_gpu() -> Record:
    """A GPU of which nothing is known yet. Memory in MiB, utilisation in percent."""
    return {
        "index": None,
        "uuid": None,
        "name": None,
        "bus_id": None,
        "minor_number": None,
        "memory_total_mib": None,
        "memory_used_mib": None,
        "utilization_gpu_pct": None,
        "compute_mode": None,
        "mig_mode": None,
        "driver_version": None,
        "compute_cap": None,
        "health": "unknown",
    }


def new_mig_device(parent: Record) -> Record:
    """A MIG device of `parent` of which nothing is known yet. Memory in MiB."""
    return {
        "parent_bus_id": parent["bus_id"],
        "parent_uuid": parent["uuid"],
        "index": None,
        "gpu_instance_id": None,
        "compute_instance_id": None,
        "uuid": None,
        "profile": None,
        "memory_total_mib": None,
        "memory_used_mib": None,
    }


def process(pid: int, gpu_index: Optional[int], gpu_uuid: Optional[str], kind: Optional[str], name: str, memory: str) -> Record:
    """A process on a GPU. Texts in place of its name or memory give null."""
    return {
        "pid": pid,
        "gpu_index": gpu_index,
        "gpu_uuid": gpu_uuid,
        "type": kind if kind in ("C", "G", "C+G") else None,
        "name": values.process_name(name),
        "used_memory_mib": values.mib(memory),
    }


def error(
    kind: str,
    bus_id: Optional[str] = None,
    gpu_index: Optional[int] = None,
    gpu_uuid: Optional[str] = None,
    field: Optional[str] = None,
    detail: Optional[str] = None,
) -> Record:
    """One entry of `errors`."""
    return {
        "kind": kind,
        "bus_id": bus_id,
        "gpu_index": gpu_index,
        "gpu_uuid": gpu_uuid,
        "field": field,
        "detail": detail,
    }


def reading(
    errors: List[Record],
    gpus: Optional[List[Record]] = None,
    processes: Optional[List[Record]] = None,
    process_list: Optional[str] = None,
    mig_devices: Optional[List[Record]] = None,
) -> Record:
    """What a reader returns; a format adds its own key. `mig_devices` is there only when there are any."""
    result: Record = {
        "gpus": gpus or [],
        "processes": processes or [],
        "process_list": process_list,
        "errors": errors,
    }
    if mig_devices:
        result["mig_devices"] = mig_devices
    return result


def worst_list(states: Iterable[str]) -> str:
    """The state of a process list that is made of several parts; `none` for no parts."""
    seen = set(states)
    return next((state for state in PROCESS_LISTS if state in seen), "none")


def mark_inforom(gpus: Iterable[Record], errors: Iterable[Record]) -> None:
    """A warning line about a corrupted infoROM makes the card with that bus id degraded, unless it is worse already."""
    warned = {entry["bus_id"] for entry in errors if entry["kind"] == "inforom_corrupted" and entry["bus_id"]}
    for gpu in gpus:
        if gpu["bus_id"] in warned and gpu["health"] in ("ok", "unknown"):
            gpu["health"] = "degraded"


class Signs:
    """What the fields of one GPU say beside their values: complaints, and whether any reading is live."""

    def __init__(self) -> None:
        self._complaints: List[Tuple[str, Optional[str], Optional[str]]] = []
        self._needs_reset = False
        self._error = False
        self._degraded = False
        self._live = False

    def live(self, is_live: bool) -> None:
        """Note that a reading which proves life could be read."""
        self._live = self._live or is_live

    def field(self, name: Optional[str], text: str, vital: bool = False) -> bool:
        """Look at the text of a field; True when it complains. `vital`: name, UUID, bus id or GPU utilisation."""
        kind = values.complaint(text)
        if kind:
            self.complain(kind, name, vital)
        return kind is not None

    def complain(self, kind: str, field: Optional[str], vital: bool = False, detail: Optional[str] = None) -> None:
        """Note a complaint of a field."""
        self._complaints.append((kind, field, detail))
        if kind == "needs_reset":
            self._needs_reset = True
        elif kind == "gpu_lost" or (kind == "field_error" and vital):
            self._error = True
        elif kind == "field_error":
            self._degraded = True

    def reset_flag(self, name: str, text: str) -> None:
        """A field that answers with yes or no whether a reset is needed."""
        answer = values.bare(text).lower()
        self.live(answer in ("yes", "no"))
        if answer == "yes":
            self.complain("needs_reset", name)

    def recovery_action(self, name: str, text: str) -> None:
        """The action the driver asks for. `None` is well, any other is a reset; a text in place of a value is neither."""
        if values.is_no_value(text):
            return
        self.live(True)
        if values.bare(text).lower() != "none":
            self.complain("needs_reset", name, detail=text.strip())

    @property
    def health(self) -> str:
        """The first of the closed list that holds."""
        if self._needs_reset:
            return "needs_reset"
        if self._error:
            return "error"
        if self._degraded:
            return "degraded"
        return "ok" if self._live else "unknown"

    def errors(self, gpu: Record, once: bool = False) -> List[Record]:
        """Entries for `errors`, with the identity of the GPU's record. `once`: one of each kind."""
        found: List[Record] = []
        for kind, field, detail in self._complaints:
            if once and any(entry["kind"] == kind for entry in found):
                continue
            found.append(error(kind, gpu["bus_id"], gpu["index"], gpu["uuid"], field, detail))
        return found
