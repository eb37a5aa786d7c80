"""Reader for `nvidia-smi --query-gpu=... --format=csv`."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import csv_row, messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.request import Request

#: Column -> key of the record and how its text is read. `minor_number` is asked for in vain so far: only XML prints it.
KEYS: Dict[str, Tuple[str, Callable[[str], Any]]] = {
    "index": ("index", values.whole),
    "uuid": ("uuid", values.word),
    "name": ("name", values.word),
    "pci.bus_id": ("bus_id", values.bus_id),
    "minor_number": ("minor_number", values.whole),
    "memory.total": ("memory_total_mib", values.mib),
    "memory.used": ("memory_used_mib", values.mib),
    "utilization.gpu": ("utilization_gpu_pct", values.percent),
    "compute_mode": ("compute_mode", values.word),
    "mig.mode.current": ("mig_mode", values.mig_mode),
    "driver_version": ("driver_version", values.version),
    "compute_cap": ("compute_cap", values.compute_capability),
}
VITAL = ("name", "uuid", "pci.bus_id", "utilization.gpu")
LIVE = ("memory.used", "memory.free", "temperature.gpu", "temperature.gpu.tlimit", "temperature.memory")
LIVE_BEGINNINGS = ("utilization.", "power.draw")


def read(text: str, request: Request) -> Record:
    """One record per row. A row that was cut off gives what was printed whole, and the error `truncated`."""
    columns: Sequence[str] = tuple(csv_row.canonical(field, csv_row.GPU_ALIASES) for field in request.fields)
    lines = [line for line in text.split("\n") if line.strip()]
    gpus: List[Record] = []
    errors: List[Record] = []
    said: List[str] = []
    with_unit = False
    for number, line in enumerate(lines, start=1):
        is_last = number == len(lines)
        if csv_row.is_header(line, columns, request.header and not gpus, csv_row.GPU_ALIASES):
            if is_last and csv_row.is_cut_header(line, columns):
                errors.append(records.error("truncated"))
            columns = csv_row.columns_by(line, columns, csv_row.GPU_ALIASES)
            continue
        cells = _row(line, columns)
        if cells is None:
            said.append(line)
            continue
        is_cut = len(cells) < len(columns) or (is_last and csv_row.lost_unit(columns, cells, with_unit))
        with_unit = with_unit or csv_row.has_unit(columns, cells)
        gpu, complaints = _gpu(columns, cells[:-1] if is_cut else cells)
        gpus.append(gpu)
        errors += complaints
        if is_cut:
            errors.append(records.error("truncated"))
    errors = messages.read_messages(said) + errors
    records.mark_inforom(gpus, errors)
    return records.reading(errors, gpus)


def _row(line: str, columns: Sequence[str]) -> Optional[List[str]]:
    """The cells of a row, fewer than columns where it was cut off; None for a line that is no row."""
    free = columns.index("name") if "name" in columns else None
    cells = csv_row.cells_of(line, len(columns), free)[: len(columns)]
    # A lone name looks like any other sentence, and of a row that is cut the last cell proves nothing.
    is_short = len(cells) < len(columns)
    if (is_short or len(columns) == 1) and messages.read_line(line):
        return None
    return cells if csv_row.is_plausible(columns, cells[:-1] if is_short else cells) else None


def _gpu(columns: Sequence[str], cells: Sequence[str]) -> Tuple[Record, List[Record]]:
    gpu = records.new_gpu()
    signs = records.Signs()
    for column, text in zip(columns, cells):
        signs.field(column, text, vital=column in VITAL)
        if column in LIVE or column.startswith(LIVE_BEGINNINGS):
            signs.live(values.is_number(text))
        elif column.endswith(records.RESET_FLAGS):
            signs.reset_flag(column, text)
        elif column == records.RECOVERY_ACTION:
            signs.recovery_action(column, text)
        key, read_value = KEYS.get(column, ("", values.word))
        if key and gpu[key] is None:
            gpu[key] = read_value(text)
    gpu["health"] = signs.health
    return gpu, signs.errors(gpu)
