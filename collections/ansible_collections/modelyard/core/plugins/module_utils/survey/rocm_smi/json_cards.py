"""What the JSON of rocm-smi and hy-smi (`cardN`, `system`) and of amd-smi (a list of objects with `gpu`) says."""

from __future__ import annotations

import re
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import fields, json_text, processes, values

_CARD = re.compile(r"card([0-9]{1,9})\Z", re.IGNORECASE)
_PID = re.compile(r"PID ?([0-9]{1,9})\Z", re.IGNORECASE)
_PROCESS_KEYS = frozenset(["process_list", "process_info", "pid", "processes"])


class Cards(NamedTuple):
    """What the documents gave."""

    devices: List[Tuple[int, fields.Fields]]
    processes: List[processes.Row]
    driver_version: Optional[str]


def read(roots: Sequence[Any], sensors: Sequence[str], lists_processes: bool) -> Cards:
    """All cards and processes, wherever they are nested. `lists_processes`: an index in a list of processes is no device."""
    devices: List[Tuple[int, fields.Fields]] = []
    rows: List[processes.Row] = []
    drivers: List[str] = []
    for found in (found for root in roots for found in json_text.objects(root)):
        devices += _cards(found, sensors)
        rows += _system_processes(found)
        drivers += _drivers(found)
        gpu = values.whole(json_text.scalar(found.get("gpu")) or "")
        if gpu is not None:
            rows += _gpu_processes(found, gpu)
            if not lists_processes:
                devices += _gpu(found, gpu, sensors)
    return Cards(devices, rows, drivers[0] if drivers else None)


def _cards(found: json_text.Object, sensors: Sequence[str]) -> Iterator[Tuple[int, fields.Fields]]:
    for name, value in found.pairs:
        card = _CARD.match(name)
        if card and isinstance(value, json_text.Object):
            yield int(card.group(1)), fields.read(fields.raw_of(json_text.scalars(value)), sensors)


def _system_processes(found: json_text.Object) -> Iterator[processes.Row]:
    for name, text in json_text.scalars(found):
        pid = _PID.match(name)
        row = processes.from_json(pid.group(1), text) if pid else None
        if row:
            yield row


def _drivers(found: json_text.Object) -> Iterator[str]:
    for name, text in json_text.scalars(found):
        version = values.word(text)
        if version and fields.key(name) in ("driver version", "amdgpu version"):
            yield version.split()[0]
    # amd-smi static: {"driver": {"name": "amdgpu", "version": "6.10.5"}}
    driver = found.get("driver")
    if isinstance(driver, json_text.Object):
        version = values.word(json_text.scalar(driver.get("version")) or "")
        if version:
            yield version


def _gpu(found: json_text.Object, gpu: int, sensors: Sequence[str]) -> Iterator[Tuple[int, fields.Fields]]:
    """The device of an object of amd-smi. If it lists processes it is one only if it measures something, too."""
    own = [member for name, member in found.pairs if name.lower() not in _PROCESS_KEYS]
    parts = [found, *(part for member in own for part in json_text.objects(member, but="gpu"))]
    pairs = [pair for part in parts if part is found or part.get("gpu") is None for pair in json_text.scalars(part)]
    read = fields.read(fields.raw_of(pairs), sensors)
    if read or len(own) == len(found.pairs):
        yield gpu, read


def _gpu_processes(found: json_text.Object, gpu: int) -> Iterator[processes.Row]:
    for below in json_text.objects(found, but="gpu"):
        pid = values.whole(json_text.scalar(below.get("pid")) or "")
        if pid is not None:
            name = processes.name(json_text.scalar(below.get("name")) or "")
            yield processes.Row(pid, name, [gpu], _vram(below))


def _vram(process: json_text.Object) -> Optional[int]:
    """`vram_mem` of the process itself or of its `memory_usage`; a bare number is bytes."""
    for part in [process, *(value for _, value in process.pairs if isinstance(value, json_text.Object))]:
        found = values.mib(json_text.scalar(part.get("vram_mem")) or "", "b")
        if found is not None:
            return found
    return None
