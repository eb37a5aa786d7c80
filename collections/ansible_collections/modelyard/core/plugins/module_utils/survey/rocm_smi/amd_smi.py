"""amd-smi as text: the default table with two lines a card, and the blocks `GPU: n` of `list`, `process` and `metric`."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import fields, processes, tables, values

_GPU = re.compile(r"\s*GPU\s*:\s*([0-9]{1,9})\s*\Z", re.IGNORECASE)
_CPU = re.compile(r"\s*CPU\s*:\s*[0-9]{1,9}\s*\Z", re.IGNORECASE)
# The order of the cells is fixed, so it holds for an excerpt without the header, too.
_FIRST = ("mem-uti", "temp", "uec", "power-usage")
_SECOND = ("gfx-uti", "fan", "mem-usage")


class Blocks(NamedTuple):
    """What the blocks gave. `devices` holds every heading that is not one of a list of processes."""

    devices: List[Tuple[int, fields.Fields]]
    processes: List[processes.Row]
    driver_version: Optional[str]


def box(lines: Sequence[str], sensors: Sequence[str]) -> List[Tuple[int, fields.Fields]]:
    """Cards of the default table. A line without its closing bar is cut; a card has its index in its second line."""
    found: List[Tuple[int, fields.Fields]] = []
    order = {"bdf": _FIRST, "gpu": _SECOND}
    above: Dict[str, str] = {}
    for line in lines:
        parts = _halves(line)
        if len(parts) != 2:
            above = {}
            continue
        left, right = parts[0].split(), tables.cells(parts[1])
        if left[0].lower() in order:
            order[left[0].lower()] = tuple(cell.lower() for cell in right)
        elif values.bus_id(left[0]) or left[0].upper() == "N/A":
            above = {"bdf": left[0], "gpu-name": " ".join(left[1:]), **_named(order["bdf"], right)}
        elif values.whole(left[0]) is not None:
            raw = {**above, **_named(order["gpu"], right)}
            found.append((int(left[0]), fields.read(raw, sensors)))
            above = {}
    return found


def _halves(line: str) -> List[str]:
    """What stands between the bars of a whole line; nothing for other lines and for empty cells."""
    stripped = line.strip()
    if len(stripped) < 2 or stripped[0] != "|" or stripped[-1] != "|":
        return []
    parts = stripped[1:-1].split("|")
    return parts if all(part.strip() for part in parts) else []


def _named(names: Sequence[str], row: Sequence[str]) -> Dict[str, str]:
    """Cells by name, or nothing if their number is another: then it is not known which is which."""
    return dict(zip(names, row)) if len(names) == len(row) else {}


def has_blocks(lines: Sequence[str]) -> bool:
    """Whether amd-smi's blocks are there, so that `PID: n` is a field and not the head of one of hy-smi's."""
    return any(_GPU.match(line) or _is_process_head(line) for line in lines)


def _is_process_head(line: str) -> bool:
    return line.strip().upper().startswith("PROCESS_INFO")


def blocks(lines: Sequence[str], sensors: Sequence[str], lists_processes: bool) -> Blocks:
    """Devices and processes of the blocks. `lists_processes`: the headings are those of a list of processes."""
    devices: List[Tuple[int, fields.Fields]] = []
    rows: List[processes.Row] = []
    drivers: List[str] = []
    for gpu, body in _parted(lines):
        heads = [at for at, line in enumerate(body) if _is_process_head(line)]
        pairs = _pairs(body[: heads[0]] if heads else body)
        read = fields.read(fields.raw_of((key, value) for _, key, value in pairs), sensors)
        if gpu is not None and not lists_processes and (read or not heads):
            devices.append((gpu, read))
        drivers += [value for section, key, value in pairs if (section, key) == ("driver", "version") and values.word(value)]
        rows += _processes(body[heads[0] :], gpu) if heads else []
    return Blocks(devices, rows, drivers[0] if drivers else None)


def _parted(lines: Sequence[str]) -> List[Tuple[Optional[int], List[str]]]:
    """Lines by the heading above them; None before the first and below a CPU."""
    parts: List[Tuple[Optional[int], List[str]]] = [(None, [])]
    for line in lines:
        gpu = _GPU.match(line)
        if gpu or _CPU.match(line):
            parts.append((int(gpu.group(1)) if gpu else None, []))
        else:
            parts[-1][1].append(line)
    return parts


def _pairs(lines: Sequence[str]) -> List[Tuple[str, str, str]]:
    """(section, key, value) of lines `KEY: value`; a section is a key without a value. Indents are not looked at."""
    found: List[Tuple[str, str, str]] = []
    section = ""
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and value.strip():
            found.append((section, fields.key(name), value.strip()))
        elif colon:
            section = fields.key(name)
    return found


def _processes(lines: Sequence[str], gpu: Optional[int]) -> List[processes.Row]:
    """A process begins at `PROCESS_INFO`, or where a name or id comes that the one before it has already."""
    entries: List[Dict[str, str]] = []
    for line in lines:
        name, _, value = line.partition(":")
        key = fields.key(name)
        if _is_process_head(line) or not entries or (key in ("name", "pid") and key in entries[-1]):
            entries.append({})
        entries[-1].setdefault(key, value)
    rows = []
    for entry in entries:
        pid = values.whole(entry.get("pid", ""))
        if pid is not None:
            devices = None if gpu is None else [gpu]
            rows.append(processes.Row(pid, processes.name(entry.get("name", "")), devices, _vram(entry)))
    return rows


def _vram(entry: Dict[str, str]) -> Optional[int]:
    return values.mib(entry.get("vram_mem", ""), "b")
