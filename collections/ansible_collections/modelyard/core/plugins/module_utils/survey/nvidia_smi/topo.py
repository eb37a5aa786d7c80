"""Reader for `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record

#: Connections from near to far, after NVLink. `SOC` and `PSB` are what drivers before 384 called SYS and PXB.
CLOSENESS = {"PIX": 1, "PXB": 2, "PSB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")

#: More columns are no matrix of one machine; the number of pairs grows with the square.
DEVICES_LIMIT = 512

#: Colours whose escape character got lost on the way.
_LOST_COLOUR = re.compile(r"\[[0-9;]{0,8}m")
_GPU = re.compile(r"GPU([0-9]{1,4})")
_NVLINK = re.compile(r"NV([0-9]{1,4})")
_LIST_GAP = re.compile(r"(?<=[0-9]), {1,4}(?=[0-9])")
_HEADER_PART = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID|\S+")

#: Index of a GPU and the place of its column in the matrix.
Columns = Sequence[Tuple[int, int]]


class Header(NamedTuple):
    """Columns of the matrix, GPUs among other devices, and the columns that follow it."""

    devices: List[str]
    affinities: List[str]


def read(text: str) -> Record:
    """The topology of the GPUs; empty (no GPU) where the text holds no matrix."""
    header: Optional[Header] = None
    rows: Dict[int, List[str]] = {}
    said: List[str] = []
    for raw in text.split("\n"):
        line = _LOST_COLOUR.sub("", raw)
        if header is None:
            header = _header(line)
            if header is not None:
                continue
        label = _GPU.fullmatch((line.split(None, 1) or [""])[0])
        if header is not None and label:
            rows.setdefault(int(label.group(1)), _cells(line, len(header.devices)))
        else:
            said.append(line)
    errors = messages.read_messages(said)
    topology = _topology(header or Header([], []), rows)
    if topology["gpu_count"] > len(rows):
        errors.append(records.error("truncated"))
    return {**records.reading(errors), "topology": topology}


def _header(line: str) -> Optional[Header]:
    """The header, or None for another line. It begins with a GPU and holds no connection."""
    parts = _HEADER_PART.findall(line)
    if not parts or not _GPU.fullmatch(parts[0]) or any(part == "X" or rank(part) for part in parts):
        return None
    devices = [part for part in parts if part not in AFFINITIES]
    if len(devices) > DEVICES_LIMIT:
        return None
    return Header(devices, [part for part in parts if part in AFFINITIES])


def _cells(line: str, count: int) -> List[str]:
    """The cells of a row after its label. Cells may be empty only where tabs are left."""
    line = _LIST_GAP.sub(",", line.strip(" "))
    if "\t" in line:
        cells = [cell.strip() for cell in line.strip("\t").split("\t")]
        if len(cells) > count and not any(" " in cell for cell in cells[: count + 1]):
            return cells[1:]
    return line.split()[1:]


def _topology(header: Header, rows: Dict[int, List[str]]) -> Dict[str, Any]:
    columns = _gpu_columns(header)
    pairs = _pairs(columns, rows)
    return {
        "gpu_count": len(columns),
        "pairs": pairs,
        "cpu_affinity": _affinity("CPU Affinity", header, columns, rows),
        "numa_affinity": _affinity("NUMA Affinity", header, columns, rows),
        "closest_pairs": _closest(pairs),
    }


def _gpu_columns(header: Header) -> Columns:
    """Index and place of each GPU among the columns, by index."""
    found = ((_GPU.fullmatch(name), place) for place, name in enumerate(header.devices))
    return sorted((int(gpu.group(1)), place) for gpu, place in found if gpu)


def _pairs(columns: Columns, rows: Dict[int, List[str]]) -> Dict[str, str]:
    """Connection by pair, smaller index first. The matrix is symmetric: either row tells it."""
    pairs: Dict[str, str] = {}
    for number, (low, low_place) in enumerate(columns):
        for high, high_place in columns[number + 1 :]:
            found = _cell(rows.get(low), high_place) or _cell(rows.get(high), low_place)
            if found and found != "X":
                pairs[f"{low}-{high}"] = found
    return pairs


def _affinity(label: str, header: Header, columns: Columns, rows: Dict[int, List[str]]) -> Dict[str, Optional[str]]:
    """One column after the matrix, by GPU index."""
    if label not in header.affinities:
        return {str(index): None for index, _ in columns}
    place = len(header.devices) + header.affinities.index(label)
    return {str(index): values.word(_cell(rows.get(index), place)) for index, _ in columns}


def _cell(row: Optional[List[str]], place: int) -> str:
    return row[place] if row is not None and place < len(row) else ""


def rank(connection: str) -> Optional[Tuple[int, int]]:
    """Smaller is closer; None for what is no connection."""
    nvlink = _NVLINK.fullmatch(connection)
    if nvlink:
        return 0, -int(nvlink.group(1))
    return (CLOSENESS[connection], 0) if connection in CLOSENESS else None


def _closest(pairs: Dict[str, str]) -> List[str]:
    ranks = {pair: rank(connection) for pair, connection in pairs.items()}
    best = min((found for found in ranks.values() if found is not None), default=None)
    return [pair for pair, found in ranks.items() if found is not None and found == best]
