"""What tables of processes and cards in a text say together: who holds a card, and which memory has no owner."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.lines import Line

_ENGINE = r"(?:VLLM::\w+|ray::RayWorker\w*|EngineCor\w*|VllmWorker\w*|Worker_TP\w*)"
#: Rows in which a process holds a card: fuser, lsof, lists of the vendors' tools, ps with the parent gone.
_HOLDER = re.compile(
    rf"\b\d+\s+[F.][cefFrm.]{{3,5}}\s+{_ENGINE}"
    rf"|^{_ENGINE}\s+\d+\s+.*(?:/dev/(?:nvidia|kfd|dri|mkfd|hycu)|\bCHR\b)"
    rf"|\b\d+\s+{_ENGINE}\s+\d+\s+\d{{6,}}"
    rf"|\b\d+,\s*{_ENGINE}.{{0,20}},\s*\d+\s*(?:MiB|MB|GiB)?"
    rf"|\|.*\b\d+\s+(?:C|M\+C|C\+G)?\s+\S*{_ENGINE}\s.*\d+\s*Mi?B"
    rf"|\bpid[ =:]+\d+.{{0,40}}{_ENGINE}.{{0,40}}\d+\s*(?:MiB|MB|GiB|GB|bytes)",
    re.IGNORECASE,
)
_ORPHAN_ROW = re.compile(rf"^(?:\S+\s+)?\d+\s+1\s+[SR][sl<+N]*\s+.*{_ENGINE}", re.IGNORECASE)
_FRONT = re.compile(r"^(?:\S+\s+)?\d+\s+.*(?:vllm serve|api_server|VLLM::APIServer)|VLLM::APIServer", re.IGNORECASE)
#: A row of a card with memory in use. `|` begins it in all tools that draw tables.
_CARD = re.compile(r"^\|.*?(\d+)\s*(?:MiB|MB)?\s*/\s*(\d+)\s*(?:MiB|MB)", re.IGNORECASE)
_PROCESS = re.compile(
    r"^\|\s*\d+\s+.*\b\d{2,}\s+(?:C|G|C\+G|M\+C)\s+\S+.*\d+\s*Mi?B|^\|\s*\d+\s+\d{2,}\s+\S+\s+.*\d+(?:\.\d+)?\s*[MG]i?B",
    re.IGNORECASE,
)
_OWNERLESS = re.compile(r"\[Not Found\]|\(null\)", re.IGNORECASE)
_AMOUNT = re.compile(r"\b\d{3,}\s*(?:MiB|MB)|\b\d{9,}\b|\b\d+(?:\.\d+)?\s*Gi?B", re.IGNORECASE)
_NONE = re.compile(
    r"No running processes found|No (?:KFD|GPU) PIDs|No process(?:es)? (?:is |are )?(?:found|running)", re.IGNORECASE
)
#: A context of the driver or a display; less than this is nobody's engine.
_WORTH_MIB = 1024


class Tables:
    """Rows of tables, read one by one."""

    def __init__(self) -> None:
        self.holders: List[Line] = []
        self.front = False
        self.owner = False
        self.cards: List[Line] = []
        self.none: Optional[Line] = None
        self.ownerless: Optional[Line] = None

    def add(self, line: Line) -> None:
        """One more line; most are no rows."""
        low = line.text.lower()
        if "vllm" in low or "::" in low or "worker" in low or "enginecor" in low:
            self.front = self.front or bool(_FRONT.search(line.text))
            row = "defunct" not in low and not line.head and len(self.holders) < 6
            if row and (_HOLDER.search(line.text) or _ORPHAN_ROW.search(line.text)):
                self.holders.append(line)
        if "mib" in low or "mb" in low:
            card = _CARD.match(line.text)
            if card and int(card.group(1)) >= _WORTH_MIB and len(self.cards) < 16:
                self.cards.append(line)
            self.owner = self.owner or bool(_PROCESS.match(line.text) and not _OWNERLESS.search(line.text))
        if "(null)" in low or "[not found]" in low:
            self.ownerless = self.ownerless or (line if _AMOUNT.search(line.text) else None)
        elif "no " in low and _NONE.search(line.text):
            self.none = self.none or line

    def found(self) -> List[Tuple[str, List[Line]]]:
        """(cause, deciding lines) of all tables together."""
        answers: List[Tuple[str, List[Line]]] = []
        if self.holders and not self.front:
            answers.append(("orphan_engine_holds_gpu_memory", self.holders))
        if self.ownerless:
            answers.append(("vram_held_no_process", [self.ownerless]))
        elif self.cards and not self.owner and not self.holders:
            answers.append(("vram_held_no_process", [*self.cards[:4], *([self.none] if self.none else [])]))
        return answers


class Unit:
    """The block of `systemctl show`: a unit that is dead with status 0 and was not started again."""

    _WANTED = {"substate": "dead", "execmainstatus": "0", "nrestarts": "0"}

    def __init__(self) -> None:
        self._seen: dict[str, Line] = {}

    def add(self, line: Line) -> None:
        """One more line."""
        name, _, value = line.text.lower().partition("=")
        if self._WANTED.get(name.strip()) == value.strip():
            self._seen.setdefault(name.strip(), line)

    def found(self) -> List[Line]:
        """Its lines, when all are there."""
        return list(self._seen.values()) if len(self._seen) == len(self._WANTED) else []
