"""Tables: a line of column names, then rows. Columns are found by name, and nothing is measured in character positions."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import fields, processes, values

#: Names of the column with the index, the surest first: `Device` stands beside a node number.
INDEX = ("device", "dcu", "hcu", "gpu", "card")
_INDEX_CELL = re.compile(r"(?:(?:card|[dh]cu|gpu)\[?)?([0-9]{1,9})\]?\Z", re.IGNORECASE)
# Columns of process tables whose names are two words.
_PAIRS = {"process": "name", "vram": "used", "sdma": "used", "cu": "occupancy"}
_UNIT = {"temp": "c", "gpu_temp": "c", "gpu_t": "c", "avgpwr": "w", "power": "w"}
_VRAM = re.compile(r"vram(?:_mem| used)(?:\(([kmg]?i?b)\))?\Z")


class Table(NamedTuple):
    """Column names as `fields.key` writes them, and the rows that have them all."""

    columns: List[str]
    rows: List[List[str]]


def cells(line: str) -> List[str]:
    """The cells of a line, parted by blanks. One cell are words joined by commas, brackets, or a number with its unit.

    `0x74a1,   28851` and `N/A, N/A, 0` are one cell each, and so are `[0x0b0c : 0x00]`, `Temp (DieEdge)` and `42 °C`.
    """
    found: List[List[str]] = []
    open_bracket = ""
    for token in line.split():
        if found and (open_bracket or found[-1][-1].endswith(",") or token.startswith("(") or _continues(found[-1], token)):
            found[-1].append(token)
        else:
            found.append([token])
        if token[0] in "([" and not open_bracket:
            open_bracket = ")" if token[0] == "(" else "]"
        if open_bracket and open_bracket in token:
            open_bracket = ""
    return [" ".join(words) for words in found]


def _continues(words: Sequence[str], token: str) -> bool:
    """`OD` is the second word of a column of ROCm 2; a unit follows its number, and nothing follows that."""
    if len(words) != 1:
        return False
    return (token == "OD" and words[0] in ("SCLK", "MCLK")) or (values.takes_unit(words[0]) and values.is_unit(token))


def devices(lines: Sequence[str], sensors: Sequence[str]) -> List[Tuple[int, fields.Fields]]:
    """The rows of all tables of devices. A row that lacks cells is not complete and makes no device."""
    found: List[Tuple[int, fields.Fields]] = []
    for table in _device_tables(lines):
        found += _rows(table, sensors).items()
    return found


def _device_tables(lines: Sequence[str]) -> List[Table]:
    tables: List[Table] = []
    current: Optional[Table] = None
    for line in lines:
        row = [] if line.lstrip().startswith(("|", "+")) else cells(line)
        columns = [fields.key(cell.split(" (")[0]) for cell in row]
        if _is_header(columns):
            current = Table(columns, [])
            tables.append(current)
        elif processes.is_heading(line) or "pid" in columns:
            current = None
        elif current and len(row) >= len(current.columns) and not _is_cut(row, line is lines[-1]):
            current.rows.append(row)
    return tables


def _is_header(columns: Sequence[str]) -> bool:
    return (
        any(name in INDEX for name in columns)
        and any(name in fields.KNOWN_COLUMNS for name in columns)
        and "pid" not in columns
        and not any(name[:1].isdigit() for name in columns)
    )


def _is_cut(row: Sequence[str], last: bool) -> bool:
    """Whether the last cell of the last line is the beginning of a percentage, as the others of its row show."""
    return last and row[-1][-1:].isdigit() and any(cell.endswith("%") for cell in row)


def _rows(table: Table, sensors: Sequence[str]) -> Dict[int, fields.Fields]:
    """Fields by index. Where a card has several rows (partitions), the first row that gives a value counts."""
    place = min((INDEX.index(name), at) for at, name in enumerate(table.columns) if name in INDEX)[1]
    found: Dict[int, fields.Fields] = {}
    for row in table.rows:
        index = _INDEX_CELL.match(row[place])
        read = fields.read(fields.raw_of(zip(table.columns, row)), sensors)
        if index and (len(row) == len(table.columns) or _fits(table.columns, row)):
            found[int(index.group(1))] = {**read, **found.get(int(index.group(1)), {})}
    return found


def _fits(columns: Sequence[str], row: Sequence[str]) -> bool:
    """Whether a row with more cells than columns stands right: what should bear a unit bears it, and one does."""
    below = [
        (values.quantity(cell), unit)
        for name, cell in zip(columns, row)
        for unit in [_UNIT.get(name, "%" if name.endswith("%") else "")]
        if unit and values.word(cell) is not None
    ]
    return bool(below) and all(found is not None and found[1] == unit for found, unit in below)


def process_rows(lines: Sequence[str]) -> List[processes.Row]:
    """The rows of tables of processes: rocm-smi's `--showpids`, amd-smi's default output and `monitor -q`."""
    rows: List[processes.Row] = []
    header: List[str] = []
    for line in lines:
        inner = _without_bars(line)
        columns = _process_columns(inner)
        if columns:
            header = columns
        elif processes.is_heading(inner):
            header = []
        elif header:
            row = _process_row(header, _process_cells(inner, header))
            rows += [row] if row else []
    return rows


def _without_bars(line: str) -> str:
    """What stands between the bars of amd-smi's table; nothing if the second is missing, for then the line is cut."""
    stripped = line.strip()
    if not stripped.startswith("|"):
        return line
    return stripped[1:-1] if stripped.endswith("|") else ""


def _process_columns(line: str) -> List[str]:
    """Names of the columns when `line` is the header of a table of processes, else nothing."""
    names: List[str] = []
    for token in line.lower().split():
        before = names[-1] if names else ""
        if (token == "%" and before == "cu") or (before in _PAIRS and token.startswith(_PAIRS[before])):
            names[-1] = f"{before} {token}"
        else:
            names.append(token)
    named = ["name" if name == "process name" else name for name in names]
    return named if named.count("pid") == 1 and named.count("name") == 1 and len(named) > 2 else []


def _process_cells(line: str, header: Sequence[str]) -> List[str]:
    """Cells in the order of the header, or nothing when the line has too few.

    Names hold blanks. So what stands before and behind the name is counted off from both ends, and the name is what is left.
    """
    if "\t" in line.strip():
        parted = [part.strip() for part in line.strip("\n").split("\t")]
        while len(parted) > len(header) and not parted[-1]:
            parted.pop()
        if len(parted) == len(header):
            return parted
    tokens = line.split()
    at = list(header).index("name")
    head, rest = tokens[:at], tokens[at:]
    tail: List[str] = []
    for _ in header[at + 1 :]:
        if len(rest) > 2 and values.is_unit(rest[-1]) and values.takes_unit(rest[-2]):
            rest, cell = rest[:-2], f"{rest[-2]} {rest[-1]}"
        elif len(rest) > 1:
            rest, cell = rest[:-1], rest[-1]
        else:
            return []
        tail.insert(0, cell)
    return [*head, " ".join(rest), *tail] if rest else []


def _process_row(header: Sequence[str], row: Sequence[str]) -> Optional[processes.Row]:
    named = dict(zip(header, row))
    pid = values.whole(named.get("pid", ""))
    if pid is None:
        return None
    memory = [values.mib(cell, found.group(1) or "b") for name, cell in named.items() for found in [_VRAM.match(name)] if found]
    gpu = values.whole(named.get("gpu", ""))
    return processes.Row(pid, processes.name(named["name"]), None if gpu is None else [gpu], memory[0] if memory else None)
