"""Reader for `nvidia-smi --query-compute-apps=... --format=csv`."""

from __future__ import annotations

from typing import Dict, List, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import csv_row, messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.request import Request

OF_THE_GPU = ("gpu_uuid", "gpu_bus_id", "gpu_name", "gpu_serial")
NONE_RUN = "no running processes found"


def read(text: str, request: Request) -> Record:
    """One process per row whose pid can be read. What became of the others is told by `process_list` and `errors`."""
    columns: Sequence[str] = tuple(csv_row.canonical(field, csv_row.APP_ALIASES) for field in request.fields)
    lines = [line for line in text.split("\n") if line.strip()]
    processes: List[Record] = []
    errors: List[Record] = []
    said: List[str] = []
    states: List[str] = []
    with_unit = False
    for number, line in enumerate(lines, start=1):
        is_last = number == len(lines)
        if csv_row.is_header(line, columns, request.header and not processes, csv_row.APP_ALIASES):
            is_cut = is_last and csv_row.is_cut_header(line, columns)
            states.append("unknown" if is_cut else "none")
            columns = csv_row.columns_by(line, columns, csv_row.APP_ALIASES)
            continue
        cells = _cells(line, columns)
        row = dict(zip(columns, cells))
        pid = values.whole(row.get("pid", ""))
        is_cut = not row or (is_last and csv_row.lost_unit(columns, cells, with_unit))
        with_unit = with_unit or csv_row.has_unit(columns, cells)
        if pid is not None and not is_cut:
            errors += _complaints(row, OF_THE_GPU)
            processes.append(_process(pid, row))
            states.append("listed")
        elif messages.read_line(line):
            said.append(line)
        elif NONE_RUN in line.lower():
            states.append("none")
        elif not is_cut and values.is_no_value(row.get("pid", "")):
            errors += _complaints(row, ("pid", *OF_THE_GPU))
            states.append("partial")
        else:
            # Cut off, or another text altogether. Who is on the GPU is not known.
            said.append(line)
            states.append("unknown")
            if is_cut and is_last and _begins_like_a_row(line, columns):
                errors.append(records.error("truncated"))
    from_messages = messages.read_messages(said)
    if any(entry["kind"] not in messages.OF_ONE_GPU for entry in from_messages):
        states.append("unknown")
    if not states and (request.header or lines):
        states.append("unknown")
    return records.reading(from_messages + errors, processes=processes, process_list=records.worst_list(states))


def _cells(line: str, columns: Sequence[str]) -> List[str]:
    """The cells of the line, read from both ends around the name; none when the line has too few."""
    free = columns.index("process_name") if "process_name" in columns else None
    cells = csv_row.cells_of(line, len(columns), free)[: len(columns)]
    return cells if len(cells) == len(columns) else []


def _begins_like_a_row(line: str, columns: Sequence[str]) -> bool:
    """Whether a line that was cut off begins like a row. Its last cell may be cut itself and proves nothing."""
    cells = csv_row.cells_of(line, len(columns))[:-1]
    return any(csv_row.fits(column, cell) for column, cell in zip(columns, cells))


def _process(pid: int, row: Dict[str, str]) -> Record:
    uuid = values.word(row.get("gpu_uuid", ""))
    return records.process(pid, None, uuid, None, row.get("process_name", ""), row.get("used_gpu_memory", ""))


def _complaints(row: Dict[str, str], fields: Sequence[str]) -> List[Record]:
    """Errors of the fields of one row, with the GPU that the row names."""
    found: List[Record] = []
    for field in fields:
        kind = values.complaint(row.get(field, ""))
        if kind:
            bus_id = values.bus_id(row.get("gpu_bus_id", ""))
            uuid = values.word(row.get("gpu_uuid", ""))
            found.append(records.error(kind, bus_id, None, uuid, field))
    return found
