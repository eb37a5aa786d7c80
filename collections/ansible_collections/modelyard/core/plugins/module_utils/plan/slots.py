"""The places for cards on a host: cards that are there, cards that do not answer, and cards that are gone. Pure functions.

A card that is lost keeps its place, as far as the last deploy has written it down (baseline.py). So the other instances of a
service stay where they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import baseline, intent_cards
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import cards as card_checks
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import users

GONE = "it is not there any more"


@dataclass(frozen=True)
class Slot:
    """One place. `number`: as people call it, from now or from the last deploy. `index`: number that an engine can be given.

    `dead`: why no engine can work on it. `taken`: which stranger uses it. Both are empty for a card that is free.
    """

    id: str
    number: Optional[int]
    index: Optional[int]
    bus_id: str
    dead: str
    taken: str
    card: Mapping[str, Any]

    @property
    def title(self) -> str:
        """`card 3 (0000:1a:00.0)`."""
        name = "the card" if self.number is None else f"card {self.number}"
        return f"{name} ({self.bus_id})" if self.bus_id else name

    @property
    def why(self) -> str:
        """Why it is not given to anybody by choice; empty when it can be."""
        return self.dead or self.taken


def of(backend: str, survey: Mapping[str, Any], running: Sequence[Mapping[str, Any]]) -> List[Slot]:
    """All places of a backend, by number. `running`: services of the plan with the cards that they run on (users.taken_by)."""
    entries = baseline.known(survey)
    here = [card for found in survey["cards"].values() for card in found if card.get("uuid") or card.get("bus_id")]
    names = {name for card in here for name in (card["uuid"], card["bus_id"]) if name}
    gone = [
        (key, entry)
        for key, entry in entries.items()
        if entry["backend"] in ("", backend) and entry["index"] is not None and key not in names and entry["bus_id"] not in names
    ]
    found = [_slot(card, backend, entries, survey, running) for card in survey["cards"].get(backend, [])]
    found += [Slot(key, entry["index"], None, entry["bus_id"], GONE, "", {}) for key, entry in gone]
    return _ordered(found, entries)


def _slot(
    card: Mapping[str, Any],
    backend: str,
    entries: Mapping[str, Mapping[str, Any]],
    survey: Mapping[str, Any],
    running: Sequence[Mapping[str, Any]],
) -> Slot:
    names = {name for name in (card["uuid"], card["bus_id"]) if name}
    before = next((e["index"] for key, e in entries.items() if key in names or e["bus_id"] in names), None)
    index = card["index"]
    dead = card_checks.unusable(card)
    return Slot(
        id=baseline.key(card) or f"#{index}",
        number=before if index is None else index,
        index=index,
        bus_id=card["bus_id"],
        dead=dead,
        taken="" if dead else users.taken_by(card, backend, survey, running),
        card=card,
    )


def _ordered(found: Sequence[Slot], entries: Mapping[str, Mapping[str, Any]]) -> List[Slot]:
    """By the number at the last deploy, else by that of now; a card without a number comes where its PCI address puts it."""

    def rank(slot: Slot) -> Optional[int]:
        before = entries.get(slot.id, {}).get("index")
        return slot.number if before is None else int(before)

    ordered = sorted((s for s in found if rank(s) is not None), key=lambda s: (rank(s), s.bus_id, s.id))
    for slot in sorted((s for s in found if rank(s) is None), key=lambda s: (s.bus_id, s.id)):
        after = [place for place, other in enumerate(ordered) if slot.bus_id and other.bus_id > slot.bus_id]
        ordered.insert(after[0] if after else len(ordered), slot)
    return ordered


def find(name: str, slots: Sequence[Slot]) -> Optional[Slot]:
    """The place that a name of the inventory means: an index, a uuid or unique id, a PCI address."""
    if re.fullmatch(r"[0-9]{1,4}", name):
        exact = [slot for slot in slots if slot.index == int(name)]
        return next(iter([*exact, *(slot for slot in slots if slot.index is None and slot.number == int(name))]), None)
    address = intent_cards.address(name)
    if address:
        return next((slot for slot in slots if slot.bus_id == address), None)
    return next((slot for slot in slots if slot.id.lower() == name.lower()), None)


def answering(cards: Sequence[Mapping[str, Any]]) -> List[Slot]:
    """The cards with a number, as places of which no more is known."""
    return [
        Slot(baseline.key(card) or f"#{card['index']}", card["index"], card["index"], card["bus_id"], "", "", card)
        for card in cards
        if card["index"] is not None
    ]


def ran_on(instance: Mapping[str, Any], variable: str, slots: Sequence[Slot]) -> List[Slot]:
    """The places that an instance was started on, in the order of its ranks; empty where they are not known."""
    noted = [str(device.get("uuid") or device.get("bus_id") or "") for device in instance.get("devices") or ()]
    words = noted or str(instance["launch"]["environment"].get(variable, "")).split(",")
    found = [find(word.strip(), slots) for word in words if word.strip()]
    return [slot for slot in found if slot] if all(found) else []


def devices(ranks: Sequence[Sequence[int]], cards: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """What names the cards of an instance for good, in the order of its ranks."""
    seen = {card["index"]: card for card in cards}
    return [
        {
            "index": index,
            "uuid": str(seen[index]["uuid"]),
            "bus_id": str(seen[index]["bus_id"]),
            "device_files": [str(file["path"]) for file in seen[index]["device_files"]],
        }
        for rank in ranks
        for index in rank
        if index in seen
    ]
