"""The cards as a vendor's tool sees them at this moment: index, memory, processes, load, and what cannot be read."""

from __future__ import annotations

import os
import time

from simulators import holders
from simulators.state import read_json, write_json

UNSEEN = "Unknown Error"
RESET = "GPU requires reset"
GONE = "GPU is lost"


class Card:
    """One card. Memory in MiB; `index` is the tool's number, `number` the place in the machine."""

    def __init__(self, sim, number):
        self.number = number
        self.index = number
        self.data = {**sim.machine["card"], **sim.machine["cards"][number]}
        self.faults = sim.card_faults(number)
        self.processes = []  # [pid, name, MiB] in order of pid
        self.used = self.data["idle_mib"]
        state = sim.state["cards"][number] if number < len(sim.state["cards"]) else {}
        self.persistence = state.get("persistence", sim.machine.get("persistence", False))
        self.util = state.get("util", 0)

    def __getitem__(self, key):
        return self.data[key]

    @property
    def files(self):
        """Paths of its own device files, relative to the root; the last one is what work is done through."""
        if "minor" in self.data:
            return [f"dev/nvidia{self['minor']}"]
        return [f"dev/dri/card{self['drm']}", f"dev/dri/renderD{self['render']}"]

    @property
    def lost(self):
        """How the loss of this card shows, or None."""
        return self.faults.get("lost") or self.faults.get("gone_from_bus")

    @property
    def free(self) -> int:
        """MiB that are neither used nor reserved."""
        return self["total_mib"] - self.data.get("reserved_mib", 0) - self.used

    @property
    def percent(self) -> int:
        """Used memory of all memory, rounded."""
        return round(100 * self.used / self["total_mib"])

    @property
    def temperature(self) -> int:
        """Degrees that go with the load."""
        return 35 + self.number % 4 + int(self.util) // 3

    @property
    def power(self) -> float:
        """Watts that go with the load."""
        idle = {"nvidia": 13, "hygon": 106, "amd": 136}["nvidia" if "minor" in self.data else self.data.get("kind", "hygon")]
        return idle + self.number + (self["power_limit"] - idle - 10) * int(self.util) / 100

    def broken(self, field):
        """What stands in place of a field (name, fan, temp, perf, power, util, ecc, memory) that cannot be read, or None."""
        if self.lost == "fields":
            return GONE
        if "needs_reset" in self.faults and field in ("fan", "temp", "perf", "power", "util"):
            return RESET
        kind = self.faults.get("field_error")
        if kind and (field == "fan" or (kind != "sensor" and field != "memory")):
            return UNSEEN
        if field == "util" and "util_na" in self.faults:
            return "N/A"
        return None


def look(sim):
    """The cards that the tool counts, in its order, with their holders. Among them are lost ones."""
    found = [Card(sim, number) for number in range(len(sim.machine["cards"]))]
    held = holders.find({card.number: str(sim.root / card.files[-1]) for card in found})
    for card in found:
        if sim.vendor == "amd":
            card.data["kind"] = "amd"
        _use_memory(sim, card, held[card.number])
    _late(sim, found)
    for card in found:
        card.used = min(card.used, card["total_mib"] - card.data.get("reserved_mib", 0))
    counted = [card for card in found if "absent" not in card.faults and _may_be_opened(sim, card)]
    for index, card in enumerate(counted):
        card.index = index
    return counted


def _may_be_opened(sim, card) -> bool:
    # NVIDIA's library leaves out what this user may not open. The others read sysfs.
    path = sim.root / card.files[-1]
    return sim.vendor != "nvidia" or not path.exists() or os.access(path, os.R_OK | os.W_OK)


def memory_of(sim, pid, number) -> int:
    """MiB that a holder uses on a card: from the table of the state, else the machine's usual figure."""
    said = sim.state["memory"].get(str(pid))
    if isinstance(said, dict):
        said = said.get(str(number))
    return sim.machine["card"]["process_mib"] if said is None else said


def _use_memory(sim, card, pids) -> None:
    rows = {pid: [pid, None, memory_of(sim, pid, card.number)] for pid in pids}
    for entry in sim.state["processes"]:
        if entry["card"] == card.number:
            rows[entry["pid"]] = [entry["pid"], entry["name"], entry["mib"]]
    for pid, name, mib in sorted(rows.values()):
        if mib > 0:
            card.processes.append([pid, holders.name(pid) if name is None else name, mib])
            card.used += mib
    card.used += card.faults.get("memory_stays", 0)


def _late(sim, found) -> None:
    """Memory of holders that are gone counts on for a while, from the first look that misses them."""
    if not any("late_release" in card.faults for card in found):
        return
    path = sim.folder / "seen.json"
    seen = read_json(path, {})
    now = time.monotonic()
    for card in found:
        known = seen.setdefault(str(card.number), {})
        present = {f"{pid}:{holders.start(pid)}": mib for pid, _, mib in card.processes}
        for key, (mib, gone_at) in list(known.items()):
            if key in present:
                continue
            known[key] = [mib, now if gone_at is None else gone_at]
            if now - known[key][1] >= float(card.faults.get("late_release", 0)):
                del known[key]
            else:
                card.used += mib
        known.update({key: [mib, None] for key, mib in present.items()})
    try:
        write_json(path, seen)
    except OSError:
        return  # this user may not write there: the memory is free at once
