"""Which cards lie close to each other: for an instance that is split over several. Pure functions."""

from __future__ import annotations

import itertools
import math
from typing import Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.slots import Slot
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import topo

#: Above this, sets of cards are grown from each card instead of being compared all: 16 cards have 12,870 sets of 8.
SETS_LIMIT = 5000
#: Further than every link that is known.
UNKNOWN = (9, 0)
SAME_NODE, OTHER_NODE = (4, 1), (5, 1)

Distance = Tuple[int, int]


class Map:
    """Distances between the cards of one backend, from what the vendor's tool says of links, else from NUMA nodes."""

    def __init__(self, links: Mapping[str, str], slots: Sequence[Slot]) -> None:
        self.links = links
        self.place = {slot.id: number for number, slot in enumerate(slots)}
        self.known: Dict[Tuple[int, int], Distance] = {}

    def distance(self, one: Slot, other: Slot) -> Distance:
        """Smaller is closer: links as `nvidia-smi topo -m` ranks them, then the NUMA node."""
        low, high = sorted((self.place[one.id], self.place[other.id]))
        if (low, high) not in self.known:
            self.known[low, high] = self._distance(one, other)
        return self.known[low, high]

    def _distance(self, one: Slot, other: Slot) -> Distance:
        if one.index is not None and other.index is not None:
            linked = topo.rank(self.links.get("{}-{}".format(*sorted((one.index, other.index))), ""))
            if linked:
                return linked
        nodes = (one.card.get("numa_node"), other.card.get("numa_node"))
        if None in nodes:
            return UNKNOWN
        return SAME_NODE if nodes[0] == nodes[1] else OTHER_NODE

    def score(self, some: Sequence[Slot]) -> Tuple[List[Distance], List[int]]:
        """For comparing sets of one size: the worst pair counts first, then the next; the order of the cards decides a tie."""
        pairs = (self.distance(one, other) for one, other in itertools.combinations(some, 2))
        return sorted(pairs, reverse=True), [self.place[slot.id] for slot in some]

    def best(self, free: Sequence[Slot], size: int) -> List[Slot]:
        """The closest `size` cards of those that are free, in order; empty where there are not enough."""
        if len(free) < size:
            return []
        if size == 1:
            return [free[0]]
        if math.comb(len(free), size) <= SETS_LIMIT:
            sets = [list(some) for some in itertools.combinations(free, size)]
        else:
            sets = [self._grown(first, free, size) for first in free]
        return min(sets, key=self.score)

    def _grown(self, first: Slot, free: Sequence[Slot], size: int) -> List[Slot]:
        chosen = [first]
        while len(chosen) < size:
            rest = [slot for slot in free if slot not in chosen]
            chosen.append(min(rest, key=lambda slot: self.score([*chosen, slot])))
        return sorted(chosen, key=lambda slot: self.place[slot.id])

    def groups(self, slots: Sequence[Slot], size: int) -> List[List[Slot]]:
        """All slots in sets of `size`, the closest set first; what is left over is in none."""
        rest, found = list(slots), []
        while len(rest) >= size:
            found.append(self.best(rest, size))
            rest = [slot for slot in rest if slot not in found[-1]]
        return found

    def words(self, some: Sequence[Slot]) -> str:
        """How cards are linked, for people: `are linked by PIX`, `lie on one NUMA node`; empty where it is not known."""
        pairs = list(itertools.combinations(some, 2))
        names = [self.links.get("{}-{}".format(*sorted((int(a.index or 0), int(b.index or 0)))), "") for a, b in pairs]
        if pairs and all(topo.rank(name) for name in names):
            return f"are linked by {' and '.join(dict.fromkeys(names))}"
        nodes = {slot.card.get("numa_node") for slot in some}
        if None in nodes:
            return ""
        return "lie on one NUMA node" if len(nodes) == 1 else "lie on several NUMA nodes"
