"""Lines of `--format=csv`: names of fields, the header line, and a line cut into cells."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import values

#: Fields with two names, by the name that is not used here. A header prints either.
GPU_ALIASES: Dict[str, str] = {
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "mig_mode.current": "mig.mode.current",
    "kmd_version": "driver_version",
}
APP_ALIASES: Dict[str, str] = {
    "name": "process_name",
    "used_memory": "used_gpu_memory",
    "uuid": "gpu_uuid",
    "pci.bus_id": "gpu_bus_id",
}
#: Beginnings of fields whose value is a number, with or without a unit.
NUMBERS = (
    "index",
    "count",
    "pid",
    "used_gpu_memory",
    "memory.",
    "utilization.",
    "temperature.",
    "power.",
    "fan.",
    "clocks.",
    "ecc.errors",
    "pcie.link",
)

#: Columns that name the GPU.
IDENTITIES = ("index", "uuid", "pci.bus_id", "gpu_uuid", "gpu_bus_id")

_HEADER_CELL = re.compile(r"[A-Za-z][A-Za-z0-9_.]*(?: \[[^\]]{0,12}\])?")
_UNIT = re.compile(r" \[[^\]]{0,12}\]$")


def canonical(field: str, aliases: Dict[str, str]) -> str:
    """The one name of a field: `used_gpu_memory [MiB]` and `used_memory` are the same."""
    name = _UNIT.sub("", field.strip().lower())
    if name.startswith("clocks_throttle_reasons"):
        name = name.replace("clocks_throttle_reasons", "clocks_event_reasons", 1)
    return aliases.get(name, name)


def cells_of(line: str, count: int, free: Optional[int] = None) -> List[str]:
    """The line cut into `count` cells where that is possible.

    nvidia-smi puts a comma and a space between cells; a plain comma is tried after that, so that a decimal comma does no
    harm. With too many cells the column `free` gets what is left between the cells before and after it.
    """
    line = line.strip()
    cells: List[str] = []
    for separator in (", ", ","):
        cells = line.split(separator)
        surplus = len(cells) - count
        if surplus > 0 and free is not None:
            middle = separator.join(cells[free : free + surplus + 1])
            cells = [*cells[:free], middle, *cells[free + surplus + 1 :]]
        if len(cells) >= count:
            break
    return [cell.strip() for cell in cells]


def is_header(line: str, columns: Sequence[str], asked: bool, aliases: Dict[str, str]) -> bool:
    """Whether the line holds names of fields. Names differ between drivers, so half of them suffice when a header is due."""
    cells = [cell.strip() for cell in line.strip().split(",")]
    if not all(_HEADER_CELL.fullmatch(cell) for cell in cells):
        return False
    names = [canonical(cell, aliases) for cell in cells]
    if not asked:
        return names == list(columns)
    in_place = [_family(column) for column in columns] if len(names) == len(columns) else []
    hits = sum(name in columns or in_place[place : place + 1] == [_family(name)] for place, name in enumerate(names))
    return hits > 0 and hits * 2 >= len(names)


def is_cut_header(header: str, columns: Sequence[str]) -> bool:
    """Whether a header that ends the text names fewer columns than were asked for."""
    return header.count(",") + 1 < len(columns)


def columns_by(header: str, columns: Sequence[str], aliases: Dict[str, str]) -> Tuple[str, ...]:
    """The columns under a header: those asked for, in order, unless the header says plainly that it is otherwise."""
    names = tuple(canonical(cell, aliases) for cell in header.strip().split(","))
    if len(names) != len(columns) or sorted(names) == sorted(columns):
        return names
    return tuple(columns)


def lost_unit(columns: Sequence[str], cells: Sequence[str], with_unit: bool) -> bool:
    """Whether the memory at the end of a row has no unit although other memory has one (`with_unit`, or in this row).

    Then the text ends inside this number, and digits may be missing too.
    """
    if not columns or len(cells) != len(columns) or not is_memory(columns[-1]) or values.whole(cells[-1]) is None:
        return False
    return with_unit or has_unit(columns, cells)


def has_unit(columns: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether any memory of the row is printed with its unit."""
    return any(is_memory(column) and cell.endswith("iB") for column, cell in zip(columns, cells))


def is_memory(column: str) -> bool:
    """Whether the column is an amount of memory."""
    return column == "used_gpu_memory" or column.startswith("memory.")


def fits(column: str, text: str) -> Optional[bool]:
    """Whether a text can be a value of the column; None where any text can."""
    if not text:
        return None
    if values.is_no_value(text):
        return True
    if column in ("uuid", "gpu_uuid"):
        return text.startswith(("GPU-", "MIG-"))
    if column in ("pci.bus_id", "gpu_bus_id"):
        return values.bus_id(text) is not None
    if column == "driver_version":
        return values.version(text) is not None
    if column == "compute_cap":
        return values.compute_capability(text) is not None
    if column.startswith(NUMBERS):
        return values.is_quantity(text)
    return None


def is_plausible(columns: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether cells can be a row: those that name the GPU fit, and so does any other typed one.

    Without any typed one they must not read like a sentence.
    """
    if not cells:
        return False
    answers = {column: fits(column, cell) for column, cell in zip(columns, cells)}
    if any(answers.get(column) is False for column in IDENTITIES):
        return False
    if any(answers.values()):
        return True
    if False in answers.values():
        return False
    return not any(": " in cell or cell.endswith((".", "!")) or cell[:1] in "|+<" for cell in cells)


def _family(name: str) -> str:
    """The first part of a name; drivers rename fields within a family: `clocks.gr` is `clocks.current.graphics` in a header."""
    return re.split(r"[._]", name, maxsplit=1)[0]
