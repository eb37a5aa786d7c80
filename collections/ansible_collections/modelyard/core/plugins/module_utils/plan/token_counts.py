"""Counting prompts by their length, in bounded memory, in parts that are added up. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

#: Up to here lengths are kept exactly; longer ones are rounded up to a multiple of STEP, so that there are never many of them.
EXACT, STEP = 131_072, 64
#: Lines that are named: the longest, and of the damaged ones the first.
NAMED = 10
SHARES = (50, 95, 99)


class Counts:
    """How long prompts are, and prompts with the answers that were asked for.

    `reserve`: tokens of an answer where a line does not say it; the least that is kept for one read from a log. `limit`:
    max_model_len of today, None where it is not known.
    """

    def __init__(self, reserve: int, limit: Optional[int]) -> None:
        self.reserve, self.limit = reserve, limit
        self.prompts = self.stated = self.pictures = self.skipped = self.damaged = self.refused = self.short = self.lines = 0
        self.longest_prompt = self.longest_need = 0
        self.lengths: Dict[int, int] = {}
        self.needs: Dict[int, int] = {}
        self.longest: List[Tuple[int, int]] = []  # (need, line)
        self.reasons: Dict[str, int] = {}
        self.damaged_lines: List[Tuple[int, str]] = []

    def add(self, line: int, tokens: int, answer: Optional[int], pictures: int = 0) -> None:
        """Count a prompt of so many tokens; `answer`: tokens that were asked for."""
        need = tokens + (self.reserve if answer is None else answer)
        self.prompts += 1
        self.stated += answer is not None
        self.pictures += pictures > 0
        if self.limit is not None:
            self.refused += tokens >= self.limit
            self.short += tokens < self.limit < need
        self.longest_prompt, self.longest_need = max(self.longest_prompt, tokens), max(self.longest_need, need)
        for histogram, length in ((self.lengths, tokens), (self.needs, need)):
            place = rounded(length)
            histogram[place] = histogram.get(place, 0) + 1
        if len(self.longest) < NAMED or need > self.longest[-1][0]:
            self.longest = sorted([*self.longest, (need, line)], key=lambda one: (-one[0], one[1]))[:NAMED]

    def damage(self, line: int, reason: str) -> None:
        """Count a line that holds no prompt; `reason` may hold nothing of it."""
        self.damaged += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.damaged_lines = sorted([*self.damaged_lines, (line, reason)])[:NAMED]

    def data(self) -> Dict[str, Any]:
        """As plain data, for JSON."""
        return {**vars(self), "lengths": sorted(self.lengths.items()), "needs": sorted(self.needs.items())}

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add another part, as `data` gives it; the lines of the parts come in order."""
        for key in ("prompts", "stated", "pictures", "skipped", "damaged", "refused", "short", "lines"):
            setattr(self, key, getattr(self, key) + int(data[key]))
        for key in ("longest_prompt", "longest_need"):
            setattr(self, key, max(getattr(self, key), int(data[key])))
        for histogram, key in ((self.lengths, "lengths"), (self.needs, "needs")):
            for length, count in data[key]:
                histogram[int(length)] = histogram.get(int(length), 0) + int(count)
        longest = [*self.longest, *((int(need), int(line)) for need, line in data["longest"])]
        self.longest = sorted(longest, key=lambda one: (-one[0], one[1]))[:NAMED]
        for reason, count in data["reasons"].items():
            self.reasons[reason] = self.reasons.get(reason, 0) + int(count)
        self.damaged_lines = [*self.damaged_lines, *((int(line), str(why)) for line, why in data["damaged_lines"])][:NAMED]


def rounded(length: int) -> int:
    """The length under which it is kept; never less."""
    return length if length <= EXACT else -(-length // STEP) * STEP


def quantiles(histogram: Mapping[int, int], longest: int) -> Dict[str, int]:
    """{p50, p95, p99, max}: so many per cent are not longer (nearest rank)."""
    total, found, seen = sum(histogram.values()), {}, 0
    waiting = list(SHARES)
    for length in sorted(histogram):
        seen += histogram[length]
        while waiting and seen * 100 >= waiting[0] * total:
            found[f"p{waiting.pop(0)}"] = min(length, longest)
    return {**{f"p{share}": 0 for share in waiting}, **found, "max": longest}


def longer(histogram: Mapping[int, int], length: int) -> int:
    """How many are longer."""
    return sum(count for one, count in histogram.items() if one > length)
