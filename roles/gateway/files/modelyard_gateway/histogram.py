"""A histogram with fixed bounds, as Prometheus has it: cheap to observe, and good enough for a median."""

from __future__ import annotations

from bisect import bisect_left
from typing import List, Optional, Sequence

#: Seconds. From a tiny model that answers at once to a long answer that takes minutes.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Histogram:
    """Counts of values up to each bound. `counts` has one more place, for what is above the last bound."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"bounds must rise, got {list(bounds)}")
        self.bounds = tuple(bounds)
        self.counts: List[int] = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, value: float) -> None:
        """Add one value, in the unit of the bounds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        self.count += 1

    def quantile(self, q: float) -> Optional[float]:
        """Below which value the share `q` (0 to 1) lies, read off a straight line inside its bucket. None without values.

        What lies above the last bound is given as the last bound: it is at least that.
        """
        if not self.count:
            return None
        wanted = q * self.count
        seen, low = 0, 0.0
        for bound, count in zip(self.bounds, self.counts):
            if count and seen + count >= wanted:
                return low + (bound - low) * (wanted - seen) / count
            seen += count
            low = bound
        return self.bounds[-1]
