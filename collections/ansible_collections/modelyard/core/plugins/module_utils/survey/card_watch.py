"""The memory of a service's cards, looked at again and again during an acceptance. One look serves all instances. Reads only."""

from __future__ import annotations

import threading
import time
from typing import Any, Collection, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import cards

#: The tools wake the cards up, and some crash when two ask at the same time.
FRESH_S = 2.0
ON_CORES = "a CPU engine keeps its cache in main memory, which the plan has compared with what is free"
NEVER = float("-inf")
Record = Dict[str, Any]


class CardWatch:
    """The cards of one service."""

    def __init__(self, home: str, service: str) -> None:
        self.home, self.service = home, service
        self.where, self.problem = cards.usable_place(home, service)
        self._lock = threading.Lock()
        self._began = self._at = NEVER
        self._seen: Tuple[List[Record], Record] = ([], {})

    def devices(self, index: int) -> Sequence[Record]:
        """The cards of one instance."""
        return cards.usable_place(self.home, self.service, [index])[0].devices

    def look(self, index: int, pids: Collection[int], since: float = NEVER) -> Dict[str, Any]:
        """{why, cards}: rows as judge/ladder/memory.py reads them; `why` says why there are none. `pids`: of the instance.

        A look that is younger than FRESH_S, and was begun after `since` (time.monotonic), serves once more.
        """
        devices = self.devices(index)
        if not self.where.watched or not devices:
            return {"why": self.problem or ON_CORES, "cards": []}
        with self._lock:
            now = time.monotonic()
            if now - self._at > FRESH_S or self._began < since:
                self._seen = cards.look(self.where, float(self.where.entry["tool_limit_s"]))
                self._began, self._at = now, time.monotonic()
            found, accelerator = self._seen
        living = proc.processes()
        return {"why": "", "cards": [self._row(device, found, accelerator, pids, living) for device in devices]}

    def _row(
        self, device: Record, found: Sequence[Record], accelerator: Record, pids: Collection[int], living: Mapping[int, Any]
    ) -> Record:
        card = cards.of_device(device, found)
        row: Record = {"card": f"card {device.get('index')}", "index": device.get("index"), "health": "unknown", "unknown": ""}
        row.update(used_mib=None, total_mib=None, own_mib=None)
        if card is None or card["memory_used_mib"] is None or card["memory_total_mib"] is None:
            row["health"] = card["health"] if card else "unknown"
            return {**row, "unknown": accelerator["tool"]["said"] or "the tool says nothing about its memory"}
        others = [p for p in card["processes"] if p["pid"] in living and p["pid"] not in pids]
        used = card["memory_used_mib"]
        row.update(health=card["health"], used_mib=used, total_mib=card["memory_total_mib"])
        row["own_mib"] = max(0, used - cards.idle_mib(device, self.where)[0] - sum(p["memory_mib"] or 0 for p in others))
        untold = [str(p["pid"]) for p in others if p["memory_mib"] is None]
        if untold:
            row["unknown"] = f"how much of it pid {', '.join(untold)} uses is not known"
        return row
