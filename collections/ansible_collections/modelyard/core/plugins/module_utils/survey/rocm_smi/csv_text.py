"""`--csv` of rocm-smi, hy-smi and amd-smi: a header with a column `device` or `gpu`, then one line a card or process."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import fields, processes, values

_CARD = re.compile(r"(?:card)?([0-9]{1,9})\Z", re.IGNORECASE)
_PID = re.compile(r"pid ?([0-9]{1,9})\Z")


class Csv(NamedTuple):
    """What the lines gave."""

    devices: List[Tuple[int, fields.Fields]]
    processes: List[processes.Row]
    driver_version: Optional[str]


def read(lines: Sequence[str], sensors: Sequence[str], lists_processes: bool) -> Csv:
    """Rows below a header. `lists_processes`: the command asked for processes, so that an index names no device."""
    devices: List[Tuple[int, fields.Fields]] = []
    rows: List[processes.Row] = []
    driver: Optional[str] = None
    header: List[str] = []
    for line in lines:
        printed = split(line) if "," in line else []
        columns = [fields.key(cell) for cell in printed]
        if _index_column(columns) is not None:
            header = columns
            continue
        row = _fitted(printed, header)
        if not header or not row:
            continue
        raw = fields.raw_of(zip(header, row))
        card = _CARD.match(row[_index_column(header) or 0].strip())
        if "pid" in header:
            rows += _process(raw, card)
        elif row[0].strip().lower() == "system":
            driver = driver or values.word(raw.get("driver version", ""))
            rows += [row for row in map(_system_process, raw.items()) if row]
        elif card and not lists_processes and not any(name.startswith("process") for name in header):
            devices.append((int(card.group(1)), fields.read(raw, sensors)))
    return Csv(devices, rows, driver)


def split(line: str) -> List[str]:
    """The cells of a line; a cell in quotes may hold commas, and two quotes in it are one."""
    if '"' not in line:
        return line.split(",")
    found: List[str] = []
    cell = ""
    pieces = line.split('"')
    for at, piece in enumerate(pieces):
        if at % 2:
            cell += piece
        elif not piece and 0 < at < len(pieces) - 1:
            cell += '"'
        else:
            first, *others = piece.split(",")
            cell += first
            for other in others:
                found.append(cell)
                cell = other
    return [*found, cell]


def _index_column(columns: Sequence[str]) -> Optional[int]:
    """Place of the column that names the card, when this is a header."""
    return next((at for at, name in enumerate(columns) if name in ("device", "gpu")), None)


def _fitted(row: Sequence[str], header: Sequence[str]) -> List[str]:
    """Cells that fit the header; nothing when the row is shorter. Commas that no quotes protected are put back.

    A process name takes what is too much. Elsewhere a cell that begins with a blank continues the one before it
    (`Advanced Micro Devices, Inc.`), for the tools print none behind a comma.
    """
    surplus = len(row) - len(header)
    if surplus < 0:
        return []
    if surplus and "name" in header:
        at = list(header).index("name")
        return [*row[:at], ",".join(row[at : at + surplus + 1]), *row[at + surplus + 1 :]]
    fitted: List[str] = []
    for cell in row:
        if surplus and fitted and cell.startswith(" "):
            fitted[-1] += "," + cell
            surplus -= 1
        else:
            fitted.append(cell)
    return fitted


def _process(raw: fields.Raw, card: Optional[re.Match[str]]) -> List[processes.Row]:
    pid = values.whole(raw["pid"])
    if pid is None:
        return []
    devices = [int(card.group(1))] if card else None
    return [processes.Row(pid, processes.name(raw.get("name", "")), devices, values.mib(raw.get("vram_mem", ""), "b"))]


def _system_process(item: Tuple[str, str]) -> Optional[processes.Row]:
    found = _PID.match(item[0])
    return processes.from_json(found.group(1), item[1]) if found else None
