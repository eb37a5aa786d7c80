"""Memory of a service's cards, asked of the vendor's tool under its limit, beside what they hold when nobody uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import cards

#: Less is noise; see plan/baseline.py.
TOLERANCE_MIB = 128


class Memory(NamedTuple):
    """MiB of one card; None for what the tool does not tell. `foreign_mib`: of it, what living processes of others hold."""

    used_mib: Optional[int]
    total_mib: Optional[int]
    foreign_mib: int
    idle_mib: int

    @property
    def is_back(self) -> Optional[bool]:
        """Is nothing in use but what idle cards and others hold? None when it is not known."""
        if self.used_mib is None:
            return None
        return self.used_mib - self.foreign_mib <= self.idle_mib + TOLERANCE_MIB


def watched(info: Mapping[str, Any]) -> bool:
    """Does the service run on cards that have memory of their own?"""
    return "vendor" in (info.get("backends", {}).get(info.get("backend", "")) or {})


def look(info: Mapping[str, Any], home: str) -> Dict[str, Memory]:
    """Memory of every card of the service's backend, by number as text, by uuid and by address; empty without cards."""
    if not watched(info):
        return {}
    backend = info["backend"]
    entry = info["backends"][backend]
    entry = {**entry, "tool_places": [*(info.get("tool_path") or []), *entry["tool_places"]]}
    found, _, _ = cards.look({backend: entry}, str(info.get("sysroot") or "/"), lambda paths: {})
    written = layout.read_json(Path(home) / "cards.json") or {}
    memory: Dict[str, Memory] = {}
    for card in found.get(backend, []):
        noted = written.get(str(card["uuid"] or card["bus_id"]))
        idle = noted.get("memory_mib") if isinstance(noted, dict) else None
        foreign = sum(p["memory_mib"] or 0 for p in card["processes"] if proc.read(p["pid"]) is not None)
        one = Memory(
            card["memory_used_mib"], card["memory_total_mib"], foreign, idle if isinstance(idle, int) else int(entry["idle_mib"])
        )
        for key in (card["uuid"], card["bus_id"], None if card["index"] is None else str(card["index"])):
            if key:
                memory[str(key)] = one
    return memory


def of_device(device: Mapping[str, Any], memory: Mapping[str, Memory]) -> Optional[Memory]:
    """The memory of a device of an instance, by the surest of its names."""
    for key in ("uuid", "bus_id", "index"):
        value = device.get(key)
        if value not in (None, "") and str(value) in memory:
            return memory[str(value)]
    return None


def missing(devices: List[Mapping[str, Any]], memory: Mapping[str, Memory]) -> List[str]:
    """In words, the devices whose memory is not back, or not known."""
    found = []
    for device in devices:
        seen = of_device(device, memory)
        name = f"card {device.get('index')}"
        if seen is None or seen.is_back is None:
            found.append(f"what {name} holds is not known: the vendor's tool does not tell")
        elif not seen.is_back:
            found.append(f"{name} holds {seen.used_mib} MiB, idle is {seen.idle_mib} MiB ({seen.foreign_mib} MiB are others')")
    return found
