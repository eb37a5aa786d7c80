"""What one service gets of the cards of its host, what it lacks, and the findings about that. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import closeness, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent_cards import ALL
from ansible_collections.modelyard.core.plugins.module_utils.plan.slots import Slot

NOT_KNOWN = "which cards there are is not known"


class Choice:
    """Cards of a service: `ranks` by instance, and why instances have none (`lacking`), in words."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        topology = wanted["topology"]
        self.wanted = wanted
        self.name = str(wanted["name"])
        self.replicas, self.tp = int(topology["replicas"]), int(topology["tensor_parallel_size"])
        self.least = int(topology["min_replicas"] or self.replicas)
        self.named = wanted["cards"] != ALL
        self.count: Optional[int] = wanted["card_count"]
        self.known = True  # which cards there are
        self.links = closeness.Map({}, [])
        self.places: List[Slot] = []  # that the inventory allows
        self.unseen: List[str] = []  # names that belong to no card
        self.pool: List[Slot] = []  # the places, without those that other services come first on
        self.targets: Dict[int, List[Slot]] = {}  # where each instance belongs while all cards are well
        self.given: Dict[int, List[Slot]] = {}
        self.ranks: Dict[int, List[List[int]]] = {}
        self.lacking: Dict[int, str] = {}
        self.blind: List[int] = []  # they run, and what became of their cards is not known

    @property
    def needed(self) -> int:
        """Cards of all instances together."""
        return self.replicas * self.tp

    @property
    def left_out(self) -> Dict[int, str]:
        """Instances that the plan goes on without, with the reason; empty where min_replicas does not allow it."""
        return dict(self.lacking) if self.least <= len(self.ranks) < self.replicas else {}

    @property
    def refused(self) -> List[int]:
        """Instances that lack cards and cannot be left out."""
        return sorted(self.lacking) if not self.left_out else []

    @property
    def used(self) -> List[int]:
        """Indexes of the cards that instances have."""
        return sorted({index for ranks in self.ranks.values() for rank in ranks for index in rank})

    @property
    def judged(self) -> List[int]:
        """Indexes of the cards that the checks look at: those in use, and those that a lacking instance would have."""
        blocked: List[Slot] = []
        for index in self.refused:
            blocked += self.targets.get(index) or self.places
        return sorted({*self.used, *(place.index for place in blocked if place.index is not None)})

    @property
    def asked(self) -> List[str]:
        """What the service asks for, as the checks want it: numbers, `all` where that is not fulfilled, names of no card."""
        if not self.named:
            return [*map(str, self.used), *(ALL if self.refused else ())]
        without = {place.id for index in self.left_out for place in self.targets.get(index, ()) if place.dead}
        places = [place for place in self.places if place.id not in without]
        return [str(place.number) if place.number is not None else place.id for place in places]

    def may_have(self, place: Slot) -> bool:
        """Can an instance of this service be started there?"""
        if not self.named:
            return not place.why
        # What is wrong with a card that was named is a finding of its own, which an admin can switch off.
        return place.index is not None and not (place.dead and self.least < self.replicas)

    def is_free(self, place: Slot, taken: Mapping[str, str]) -> bool:
        """Named cards may be shared with other services (a finding says so), but not between instances of one."""
        mine = any(place in places for places in self.given.values())
        return place in self.places and self.may_have(place) and not mine and (self.named or place.id not in taken)

    def give(self, index: int, places: Sequence[Slot], taken: Dict[str, str]) -> None:
        """Give these places to an instance."""
        self.given[index] = list(places)
        self.ranks[index] = [[int(place.index)] for place in places if place.index is not None]
        for place in places:
            taken.setdefault(place.id, f"{self.name}/{index}")

    def offer(self, index: int, places: Sequence[Slot], taken: Dict[str, str]) -> None:
        """Give the places to an instance that has none yet, if they are as many as it wants and each of them is free."""
        within = self.count is None or (len(self.ranks) + 1) * self.tp <= self.count
        wanted = within and index < self.replicas and index not in self.ranks and len(places) == self.tp
        if wanted and all(self.is_free(place, taken) for place in places):
            self.give(index, places, taken)

    def why(self, index: int, taken: Mapping[str, str]) -> str:
        """What is wrong with the places where an instance belongs; empty for nothing."""
        found = []
        for place in self.targets.get(index, ()):
            holder = taken.get(place.id, f"{self.name}/{index}")
            other = "" if self.named or holder == f"{self.name}/{index}" else f"{holder} has it"
            why = place.dead or ("" if self.named else place.taken) or other
            if why:
                found.append(f"{place.title}: {why}")
        return "; ".join(found)


def findings(choice: Choice, survey: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """Names that are no card, and instances without cards."""
    backend, host = tables.backend(choice.wanted["backend"]), survey["host"]["name"]
    cores, kind = bool(backend.get("cores_as_cards")), backend["card_kind"]
    if not cores and choice.wanted["backend"] not in survey["accelerators"]:
        return []  # PL-BACKEND says it
    if not choice.known:
        what = f"which cards {host} has is not known: {backend['tool']} does not tell"
        return [finding("PL-CARDS", f"{where}.cards", what, "see the finding about that tool")] if choice.lacking else []
    present = [card["index"] for card in survey["cards"].get(choice.wanted["backend"], []) if card["index"] is not None]
    twice = [place.title for number, place in enumerate(choice.places) if place in choice.places[:number]]
    if choice.unseen or twice:
        what = f"{kind} {', '.join(choice.unseen)} wanted; {host} has {listed(present)}"
        if twice:
            what = f"{', '.join(twice)} is named twice, by two of its names"
        return [finding("PL-CARDS", f"{where}.cards", what, "name cards that are there, or all")]
    if not choice.lacking:
        return []
    if choice.left_out:
        instances = f"instance {listed(sorted(choice.left_out))}"
        what = f"{len(choice.ranks)} of {choice.replicas} instances can have cards; left out: {instances} ({_reasons(choice)})"
        do = f"nothing, while {choice.least} (min_replicas) are enough; mend the card and deploy again for the rest"
        return [finding("PL-REPLICAS-FEWER", f"{where}.topology", what, do)]
    needs = f"{choice.replicas} x tensor_parallel_size {choice.tp} needs {choice.needed} {kind}(s)"
    if len(choice.pool) < choice.needed:
        what = f"{needs}, {len(choice.pool)} given ({listed([p.number for p in choice.pool if p.number is not None])})"
        do = f"lower tensor_parallel_size or replicas to fit {len(choice.pool)}, or give more under cards"
        return [finding("PL-CARDS", f"{where}.topology", what, do)]
    what = f"{needs}, and instance {listed(sorted(choice.lacking))} gets none: {_reasons(choice)}"
    do = f"free or mend these cards, name others with {where}.cards, or set {where}.topology.min_replicas to go on with fewer"
    return [finding("PL-CARDS", f"{where}.cards", what, do)]


def _reasons(choice: Choice) -> str:
    return "; ".join(dict.fromkeys(choice.lacking.values()))


def listed(numbers: Sequence[int]) -> str:
    """`0, 1, 2` or `none`."""
    return ", ".join(map(str, numbers)) if numbers else "none"


def notes(choice: Choice, backend: Mapping[str, Any]) -> List[str]:
    """What an admin should know about the choice: instances beside their place, links that are not known."""
    found = []
    for index, places in sorted(choice.given.items()):
        target = choice.targets.get(index, places)
        why = "; ".join(f"{place.title}: {place.why}" for place in target if place not in places and place.why)
        if why:
            found.append(f"instance {index} has {', '.join(place.title for place in places)}, because of {why}")
    if choice.tp > 1 and choice.given:
        words = list(dict.fromkeys(choice.links.words(places) for places in choice.given.values()))
        if "" in words:
            found.append("how these cards are linked is not known: they are taken by their numbers")
        else:
            found.append(f"the cards of an instance {', '.join(words)}")
    if backend.get("visibility_order") == "unknown" and choice.ranks:
        found.append(
            f"cards are chosen by the numbers of {backend['tool']}; whether {backend['visibility']} counts alike is not known: "
            f"look after the start whether {backend['tool']} shows each engine on its card"
        )
    return found
