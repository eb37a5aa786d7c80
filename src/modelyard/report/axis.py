"""Axes of plots: scales, ticks at round numbers, and labels that do not lie upon each other. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence

#: What is smaller is drawn as nothing.
TINY = 1e-9


@dataclass(frozen=True)
class Scale:
    """From values (`low` to `high`) to places on the page (`start` to `end`). `log`: only for values above 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; values outside lie on the border."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def ticks(high: float, most: int = 5) -> list[float]:
    """Round numbers from 0 up to the first one that is not below `high`, at most `most` steps apart: 0, 50, 100."""
    if not high > TINY:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(high / most))
    step = next(size * one for one in (1, 2, 5, 10, 20) if high <= size * one * most * (1 + 1e-9))
    return [step * place for place in range(math.ceil(high / step - 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers for a logarithmic axis: 1, 2, 5, 10 ..., the outer ones not inside of low and high."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found: list[float] = []
    for heads in ((1, 2, 5), (1, 3), (1,)):
        every = [head * 10.0**power for power in range(first - 1, last + 1) for head in heads]
        below = [one for one in every if one <= low * (1 + 1e-9)]
        above = [one for one in every if one >= high * (1 - 1e-9)]
        found = [one for one in every if below[-1] <= one <= above[0]]
        if len(found) <= most + 1:
            return found
    return found[:: math.ceil(len(found) / most)] + ([found[-1]] if (len(found) - 1) % math.ceil(len(found) / most) else [])


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels as little as needed, so that they are `gap` apart and between `low` and `high`, in the same order."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [0.0] * len(places)
    floor = low
    for index in order:
        moved[index] = floor = max(places[index], floor)
        floor += gap
    ceiling = high
    for index in reversed(order):
        moved[index] = ceiling = min(moved[index], ceiling)
        ceiling -= gap
    return moved


def apart(places: Sequence[float], gap: float) -> list[int]:
    """Which labels can be shown in a row: the last one, the first one, and of the rest those that have room."""
    kept: list[int] = []
    order = sorted(range(len(places)), key=lambda index: places[index])
    for index in [order[-1], *order[:-1]] if order else []:
        if all(abs(places[index] - places[other]) >= gap for other in kept):
            kept.append(index)
    return sorted(kept)
