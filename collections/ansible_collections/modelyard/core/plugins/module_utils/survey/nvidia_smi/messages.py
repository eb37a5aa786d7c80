"""Messages that nvidia-smi prints in place of an output, or before or after one."""

from __future__ import annotations

import re
from typing import Iterable, List, Optional, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record, error

#: Messages about one card. The others say that nothing could be asked at all.
OF_ONE_GPU = frozenset({"gpu_lost", "device_handle_error", "inforom_corrupted"})

_INIT = re.compile(r"Failed to initiali[sz]e NVML\s*:(.*)", re.IGNORECASE)
_NO_DRIVER = re.compile(r"NVIDIA-SMI has failed because it couldn.?t communicate with the NVIDIA driver", re.IGNORECASE)
_NO_LIBRARY = re.compile(r"couldn.?t find (?:libnvidia-ml\S*|nvml\S*) library", re.IGNORECASE)
_NO_DEVICES = re.compile(r"\bNo devices (?:were )?found\b", re.IGNORECASE)
_HANDLE = re.compile(r"Unable to determine the device handle for\b(.*)", re.IGNORECASE)
_INFOROM = re.compile(r"infoROM is corrupted at gpu\b(.*)", re.IGNORECASE)
_FIELD = re.compile(r"Field [\"'\u201c]?([^\"'\u201c\u201d]{0,200})[\"'\u201d]? is not a valid field to query", re.IGNORECASE)
_LIBRARY_VERSION = re.compile(r"NVML library version:\s*(\S+)", re.IGNORECASE)
#: An index that stands apart: `GPU1: 0000:34:00.0`, but not the domain in `GPU0000:07:00.0`.
_INDEX = re.compile(r"(?:GPU)?\s*([0-9]{1,4})(?:\s*:)?(?:\s|$)", re.IGNORECASE)


def read_messages(lines: Iterable[str]) -> List[Record]:
    """Errors of all lines that are such a message; a message that is repeated counts once."""
    found: List[Record] = []
    seen: Set[Tuple[object, ...]] = set()
    for line in lines:
        entry = read_line(line)
        if entry is not None:
            if tuple(entry.values()) not in seen:
                seen.add(tuple(entry.values()))
                found.append(entry)
        elif found and found[-1]["kind"] == "version_mismatch":
            library = _LIBRARY_VERSION.search(line)
            if library:
                found[-1]["detail"] = library.group(1)
    return found


def read_line(line: str) -> Optional[Record]:
    """The error that a line states, or None. Lines that only follow a message (advice, failed shutdown) state none."""
    found = _INIT.search(line)
    if found:
        return _init_failed(found.group(1).strip())
    if _NO_LIBRARY.search(line):
        return error("nvml_init_failed", detail=line.strip())
    if _NO_DRIVER.search(line):
        return error("driver_not_loaded")
    if _NO_DEVICES.search(line):
        return error("no_devices")
    found = _HANDLE.search(line)
    if found:
        return _no_handle(found.group(1))
    found = _INFOROM.search(line)
    if found:
        return error("inforom_corrupted", bus_id=values.bus_id(found.group(1)))
    found = _FIELD.search(line)
    if found:
        return error("invalid_field", field=found.group(1).strip())
    return None


def _init_failed(cause: str) -> Record:
    lower = cause.lower()
    if lower.startswith("driver not loaded"):
        return error("driver_not_loaded")
    if lower.startswith("driver/library version mismatch"):
        return error("version_mismatch")
    return error("nvml_init_failed", detail=cause or None)


def _no_handle(rest: str) -> Record:
    """`rest` is `GPU 0000:02:00.0: GPU is lost. Reboot ...` in one of its spellings."""
    head, bus_id, verdict = values.split_at_bus_id(rest)
    if bus_id is None:
        head, _, verdict = rest.rpartition(": ")
        head += ":"
    index = _INDEX.match(head.lstrip())
    verdict = verdict.lstrip(": ").strip()
    lost = "gpu is lost" in rest.lower()
    return error(
        "gpu_lost" if lost else "device_handle_error",
        bus_id=bus_id,
        gpu_index=int(index.group(1)) if index else None,
        detail=None if lost else verdict or None,
    )
