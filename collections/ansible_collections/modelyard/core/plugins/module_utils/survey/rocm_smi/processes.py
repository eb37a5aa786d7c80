"""Who holds a card: the lists of processes that are not tables of devices, and how rows become processes."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import fields, screen, values

_PID = re.compile(r"\s*PID\s*:\s*([0-9]{1,9})(?![0-9])", re.IGNORECASE)
_USING = re.compile(r"\s*PID\s+([0-9]{1,9})\s+is\s+using\s+([0-9]{1,9})\s+[^:]*device[^:]*(?::(.*))?\Z", re.IGNORECASE)
_BARE_LIST = re.compile(r"\s*PIDs for KFD processes\s*:\s*\Z", re.IGNORECASE)
_INDEX_KEY = re.compile(r"(?:[dh]cu|gpu) index\Z")
_VRAM_KEY = re.compile(r"vram used ?\(([kmg]?i?b)\)\Z")
_DIGITS = re.compile(r"[0-9]+")


class Row(NamedTuple):
    """A process as one row or block names it. `devices`: None when it does not say which. `mib`: None when unknown."""

    pid: int
    name: Optional[str]
    devices: Optional[List[int]]
    mib: Optional[int]


def name(text: str) -> Optional[str]:
    """A process name as it was printed, cut or not; `N/A` (it needs privilege) and nothing are None."""
    stripped = text.strip()
    return None if stripped.upper() in ("", "N/A") else stripped


def indices(text: str) -> List[int]:
    """The indices in `['1'] ['2']`, `0 1` or the like, ascending, each once."""
    return sorted({int(digits) for digits in _DIGITS.findall(text) if len(digits) < 10})


def blocks(lines: Sequence[str]) -> List[Row]:
    """hy-smi's `--showpids`: one block a process, from its line `PID: n` to the next block or rule."""
    rows: List[Row] = []
    inside = False
    for line in lines:
        found = _PID.match(line)
        if found:
            rows.append(Row(int(found.group(1)), None, None, None))
            inside = True
        elif line.lstrip().startswith("=="):
            inside = False
        elif inside and ":" in line:
            rows[-1] = _with_field(rows[-1], *line.split(":", 1))
    return rows


def _with_field(row: Row, printed: str, value: str) -> Row:
    key = fields.key(printed)
    if _INDEX_KEY.match(key):
        # Nothing between the brackets is an answer (card unknown), another word is none.
        return row._replace(devices=None if value.strip(" \t[]'\"") and not indices(value) else indices(value))
    size = _VRAM_KEY.match(key)
    return row._replace(mib=values.mib(value, size.group(1))) if size else row


def using(lines: Sequence[str]) -> List[Row]:
    """rocm-smi's `--showpidgpus`: `PID n is using m DRM device(s):`, then their indices, one or several on a line."""
    rows: List[Row] = []
    missing = 0
    for line in lines:
        found = _USING.match(line)
        if found:
            missing = int(found.group(2))
            rows.append(Row(int(found.group(1)), None, None if missing else [], None))
        listed = (found.group(3) or "") if found else line
        if not listed.strip():
            continue
        if missing and all(part.isdigit() for part in listed.replace(",", " ").split()):
            here = indices(listed)
            missing = max(0, missing - len(here))
            if here:
                rows[-1] = rows[-1]._replace(devices=sorted({*(rows[-1].devices or []), *here}))
        else:
            missing = 0
    return rows


def bare(lines: Sequence[str]) -> List[Row]:
    """The lists of the first rocm-smi: nothing but process ids below `PIDs for KFD processes:`."""
    rows: List[Row] = []
    inside = False
    for line in lines:
        pids = [values.whole(part) for part in line.split()]
        if _BARE_LIST.match(line):
            inside = True
        elif inside and pids and None not in pids:
            rows += [Row(pid, None, None, None) for pid in pids if pid is not None]
        elif pids:
            inside = False
    return rows


def from_json(pid: str, text: str) -> Optional[Row]:
    """rocm-smi's JSON: `"PIDn": "name, gpu count, vram bytes, sdma, cu"`. The name may hold commas, the rest does not."""
    number = values.whole(pid)
    if number is None:
        return None
    parts = [part.strip() for part in text.rsplit(",", 4)]
    return Row(number, name(parts[0]), None, values.mib(parts[2], "b") if len(parts) > 2 else None)


def merge(rows: Sequence[Row]) -> List[Row]:
    """Rows of one list with the same process id are one process on all their cards, in order of first appearance.

    Its memory is known when every row names the same amount. If they differ, neither the sum nor one of them can be told.
    """
    merged: Dict[int, Row] = {}
    for row in rows:
        known = merged.get(row.pid)
        merged[row.pid] = row if known is None else _joined(known, row, known.mib if known.mib == row.mib else None)
    return [*merged.values()]


def complete(lists: Sequence[Sequence[Row]]) -> List[Dict[str, Any]]:
    """Several lists of the same output complete each other; the result is what the schema calls `processes`."""
    known: Dict[int, Row] = {}
    for row in (row for rows in lists for row in rows):
        before = known.get(row.pid)
        known[row.pid] = row if before is None else _joined(before, row, row.mib if before.mib is None else before.mib)
    return [
        {"pid": row.pid, "name": row.name, "device_indices": row.devices, "used_memory_mib": row.mib} for row in known.values()
    ]


def _joined(one: Row, other: Row, mib: Optional[int]) -> Row:
    devices = one.devices if other.devices is None else sorted({*(one.devices or []), *other.devices})
    return Row(one.pid, one.name or other.name, devices, mib)


def is_heading(line: str) -> bool:
    """Whether a line ends what stood before it: a rule with words, or amd-smi's title of its process table."""
    return screen.is_title(line) or line.strip().lower() == "process info:"
