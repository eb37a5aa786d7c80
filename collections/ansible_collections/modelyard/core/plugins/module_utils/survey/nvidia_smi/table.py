"""Reader for plain `nvidia-smi`: the tables of cards, MIG devices and processes."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record

Rows = List[List[str]]

#: The header as most drivers print it, for a table whose header was left out.
USUAL_LAYOUT: Rows = [
    ["GPU Name Persistence-M", "Bus-Id Disp.A", "Volatile Uncorr. ECC"],
    ["Fan Temp Perf Pwr:Usage/Cap", "Memory-Usage", "GPU-Util Compute M."],
    ["", "", "MIG M."],
]
#: What stands at the right of a card's name: persistence mode, on Windows the driver model.
BESIDE_NAME = frozenset({"On", "Off", "N/A", "WDDM", "TCC", "MCDM", "ERR!", "Enabled", "Disabled"})
COMPUTE_MODES = {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread"}

_DRIVER = re.compile(r"\b(?:Driver|KMD) Version:\s*(\S+)")
_TITLE = re.compile(r"\|\s*(?:NVIDIA-SMI\s+[0-9]|(?:Compute p|P)rocesses:|MIG devices:)")
_INDEXED = re.compile(r"\s*([0-9]{1,4})\s+(\S.*)")
_COMPLAINT = re.compile(r"ERR!|Unknown Error|GPU requires reset|GPU is lost|Insufficient Permissions", re.IGNORECASE)
_TEMPERATURE = re.compile(r"(?:^|\s)-?[0-9]{1,4}\s?[CF](?=\s|$)")
_POWER_DRAW = re.compile(r"[0-9]\s*W\s*/")
_WIDE_GAP = re.compile(r"\s{2,}")
_TYPE = re.compile(r"[A-Z](?:\+[A-Z])*")
#: The memory at the end of a row: an amount or a text in its place.
_ROW_MEMORY = re.compile(
    r"(?:^|\s)((?:[0-9][0-9.,]*\s?[KMGT]i?B)|\[?(?:N/A|Not Supported|Not Found|Insufficient Permissions|Unknown Error|ERR!)\]?)$",
    re.IGNORECASE,
)


class Panel(NamedTuple):
    """One table: which it is, its header, and its rows in blocks between border lines."""

    kind: str
    layout: Rows
    blocks: List[List[str]]
    is_closed: bool


def read(text: str) -> Record:
    """Cards, MIG devices and processes; also the messages that stand before, after or in place of the tables."""
    lines = [line.strip() for line in text.split("\n")]
    boxed = [line for line in lines if line.startswith(("|", "+"))]
    errors = messages.read_messages(line for line in lines if not line.startswith(("|", "+")))
    driver = _driver(boxed)
    gpus: List[Record] = []
    mig_devices: List[Record] = []
    processes: List[Record] = []
    states: List[str] = []
    by_index: Dict[int, Record] = {}
    for panel in _panels(boxed):
        if panel.kind == "gpus":
            for block in panel.blocks:
                found, complaints = _card(panel.layout, [_cells(line) for line in block], driver)
                gpus += found
                by_index.update((gpu["index"], gpu) for gpu in found)
                errors += complaints
        elif panel.kind == "mig":
            mig_devices += _mig_devices(panel, by_index)
        elif panel.kind == "processes":
            rows, state, complaints = _processes(panel, by_index)
            processes += rows
            states.append(state)
            errors += complaints
    if _is_cut(lines):
        errors.append(records.error("truncated"))
    records.mark_inforom(gpus, errors)
    return records.reading(errors, gpus, processes, records.worst_list(states or ["unknown"]), mig_devices)


def _driver(boxed: Sequence[str]) -> Optional[str]:
    """The driver's version from the title; the version beside `NVIDIA-SMI` is that of the tool."""
    for line in boxed:
        if "NVIDIA-SMI" in line:
            found = _DRIVER.search(line)
            return values.version(found.group(1)) if found else None
    return None


def _is_cut(lines: Sequence[str]) -> bool:
    """Whether the text ends inside a row."""
    last = next((line for line in reversed(lines) if line), "")
    return last.startswith("|") and not last.endswith("|")


def _panels(boxed: Sequence[str]) -> List[Panel]:
    """The tables of a text. The `|====|` line divides header and rows; a table of processes ends at the next border."""
    panels: List[Panel] = []
    header: List[str] = []
    current: Optional[Panel] = None
    for line in boxed:
        is_border = line.startswith("+") or line.startswith("|-")
        if line.startswith("|="):
            current = Panel(_kind(header), [_cells(row) for row in header], [[]], False)
            panels.append(current)
            header = []
        elif _TITLE.match(line):
            current, header = None, [line]
        elif current is None and not is_border and _is_card(line):
            current = Panel("gpus", USUAL_LAYOUT, [[line]], False)
            panels.append(current)
        elif current is None and is_border:
            header = []
        elif current is None:
            header.append(line)
        elif not is_border:
            current.blocks[-1].append(line)
        elif current.kind == "processes":
            panels[-1] = current._replace(is_closed=True)
            current, header = None, []
        else:
            current.blocks.append([])
    return panels


def _kind(header: Sequence[str]) -> str:
    text = " ".join(header)
    if "Bus-Id" in text:
        return "gpus"
    if "rocesses:" in text or "Process name" in text:
        return "processes"
    return "mig" if "MIG" in text and "Memory-Usage" in text else ""


def _cells(line: str) -> List[str]:
    """The cells between bars. What follows the last bar was cut off and is left out."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def _is_card(line: str) -> bool:
    cells = _cells(line)
    return len(cells) > 1 and _INDEXED.match(cells[0]) is not None and values.bus_id(cells[1]) is not None


def _labelled(layout: Rows, rows: Rows, label: str) -> str:
    """The cell that stands where the header has this label; empty where there is none."""
    for labels, cells in zip(layout, rows):
        for text, cell in zip(labels, cells):
            if label in text:
                return cell
    return ""


def _card(layout: Rows, rows: Rows, driver: Optional[str]) -> Tuple[List[Record], List[Record]]:
    """One card (or none, for rows that are no card) and its errors, one of each kind."""
    indexed = _INDEXED.match(rows[0][0]) if rows and rows[0] else None
    if indexed is None or len(rows[0]) < 2:
        return [], []
    gpu = records.new_gpu()
    signs = records.Signs()
    name = _name(indexed.group(2))
    bus_cell = _labelled(layout, rows, "Bus-Id")
    load, mode = _load_and_mode(_labelled(layout, rows, "GPU-Util"))
    used, total = _used_and_total(_labelled(layout, rows, "Memory-Usage"))
    gpu["index"] = int(indexed.group(1))
    gpu["name"] = values.word(name)
    gpu["bus_id"] = values.bus_id(bus_cell)
    gpu["memory_used_mib"] = values.mib(used)
    gpu["memory_total_mib"] = values.mib(total)
    gpu["utilization_gpu_pct"] = values.percent(load)
    gpu["compute_mode"] = COMPUTE_MODES.get(mode, values.word(mode))
    gpu["mig_mode"] = values.mig_mode(_labelled(layout, rows, "MIG M."))
    gpu["driver_version"] = driver
    signs.field("name", name, vital=True)
    signs.field("utilization", load, vital=True)
    if gpu["bus_id"] is None:
        said = _COMPLAINT.search(bus_cell)
        signs.field("bus_id", said.group() if said else "", vital=True)
    for cells in rows:
        for cell in cells:
            for text in _COMPLAINT.findall(cell):
                signs.field(None, text)
    sensors = _labelled(layout, rows, "Temp")
    signs.live(_TEMPERATURE.search(sensors) is not None or _POWER_DRAW.search(sensors) is not None)
    signs.live(values.is_number(used) or values.is_number(load))
    gpu["health"] = signs.health
    return [gpu], signs.errors(gpu, once=True)


def _name(text: str) -> str:
    """The name in the text after a card's index, without the mode at its right."""
    head, _, last = text.strip().rpartition(" ")
    return head.strip() if head and last in BESIDE_NAME else text.strip()


def _load_and_mode(cell: str) -> Tuple[str, str]:
    """GPU utilisation and compute mode; a wide gap stands between them."""
    parts = _WIDE_GAP.split(cell, maxsplit=1)
    if len(parts) == 1:
        parts = cell.split(" ", 1)
    return parts[0], parts[1].strip() if len(parts) > 1 else ""


def _used_and_total(cell: str) -> Tuple[str, str]:
    """Used and total memory. With unified memory one text stands over the whole cell."""
    # The bar has a space before it; that of `N/A` has none.
    used, bar, total = cell.partition(" /")
    return (used.strip(), total.strip()) if bar else ("", "")


def _mig_devices(panel: Panel, by_index: Dict[int, Record]) -> List[Record]:
    """MIG devices: GPU, GPU instance, compute instance and device number in the first cell, memory beside it."""
    found: List[Record] = []
    for block in panel.blocks:
        for line in block:
            cells = _cells(line)
            numbers = [number for number in map(values.whole, cells[0].split()) if number is not None] if cells else []
            if len(numbers) != 4:
                continue
            device = records.new_mig_device(by_index.get(numbers[0]) or records.new_gpu())
            device["gpu_instance_id"], device["compute_instance_id"], device["index"] = numbers[1:]
            if len(cells) > 1:
                used, total = _used_and_total(cells[1])
                device["memory_used_mib"], device["memory_total_mib"] = values.mib(used), values.mib(total)
            found.append(device)
    return found


def _processes(panel: Panel, by_index: Dict[int, Record]) -> Tuple[List[Record], str, List[Record]]:
    """Processes, the state of their list, and errors of pids that cannot be read."""
    header = " ".join(" ".join(row) for row in panel.layout)
    has_instances = re.search(r"\bGI\b", header) is not None
    has_type = "Type" in header
    found: List[Record] = []
    errors: List[Record] = []
    states: List[str] = []
    for line in (line for block in panel.blocks for line in block):
        if "no running processes found" in line.lower():
            states.append("none")
            continue
        if len(line) < 2 or not line.endswith("|"):
            states.append("unknown")
            continue
        content = line[1:-1].strip()
        if not content:
            continue
        index_text, _, rest = content.partition(" ")
        index = values.whole(index_text)
        row = _process(index, rest, has_instances, has_type)
        if row is not None:
            found.append(row)
            states.append("listed")
            continue
        states.append("partial")
        complaint = _pid_complaint(rest, has_instances)
        if complaint:
            gpu = by_index.get(-1 if index is None else index) or records.new_gpu()
            errors.append(records.error(complaint, gpu["bus_id"], index, gpu["uuid"], "pid"))
    # Without any row the panel must say that nothing runs, and a panel without its lower border is not all of it.
    if not states or (not panel.is_closed and set(states) != {"none"}):
        states.append("unknown")
    return found, records.worst_list(states), errors


def _process(index: Optional[int], rest: str, has_instances: bool, has_type: bool) -> Optional[Record]:
    """The process of a row from the text after the GPU's index, or None where the pid cannot be read."""
    if has_instances:
        rest = _after_words(rest, 2)
    pid_text, _, rest = rest.strip().partition(" ")
    pid = values.whole(pid_text)
    if pid is None:
        return None
    rest = rest.strip()
    kind: Optional[str] = None
    if has_type:
        first, _, remainder = rest.partition(" ")
        if _TYPE.fullmatch(first):
            kind, rest = first, remainder.strip()
    memory = _ROW_MEMORY.search(rest)
    name = rest[: memory.start()] if memory else rest
    return records.process(pid, index, None, kind, name, memory.group(1) if memory else "")


def _pid_complaint(rest: str, has_instances: bool) -> Optional[str]:
    """The kind of error that stands where a pid should be."""
    found = _COMPLAINT.match(_after_words(rest, 2) if has_instances else rest.strip())
    return values.complaint(found.group()) if found else None


def _after_words(text: str, count: int) -> str:
    """The text after its first words."""
    parts = text.split(None, count)
    return parts[count] if len(parts) > count else ""
