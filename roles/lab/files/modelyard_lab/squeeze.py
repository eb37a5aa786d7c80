"""Rounds with fewer and fewer blocks, until the scheduler has to take blocks away from those who have some, and below."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from modelyard_lab.pattern import Wish, longest, plain, varied
from modelyard_lab.reduce import smallest
from modelyard_lab.round import Failure, Seen, Setting, played

#: Parts of the blocks that the pattern uses when there are enough. The first is a round without want.
LEVELS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
#: What the reduction may take of the time that is left.
REDUCTION = 0.5
#: What the hunt for a few requests may take of that, and how many they are at first.
HUNT, FEW = 0.6, 5


def least_blocks(tokens: int, size: int) -> int:
    """What one request of so many tokens takes, and the block that stands for nothing."""
    return math.ceil(tokens / size) + 1


class Limits(NamedTuple):
    """How much is done: rounds of the pattern, each a little different from the others, and seconds for all of it.

    `tokens`: no request may have more.
    """

    rounds: int
    seconds: float
    tokens: int


def searched(config: Any, pattern: list[Wish], modes: list[bool], limits: Limits, tell: Callable[[str], None]) -> dict[str, Any]:
    """Play round after round until one fails or the limits are reached; the result as plain data.

    `modes`: with batches made ahead, without, or both in turn. `tell` hears how far it is.
    """
    began, size = time.monotonic(), config.cache_config.block_size
    least = least_blocks(longest(pattern), size)
    enough = least + config.scheduler_config.max_num_seqs * math.ceil(longest(pattern) / size)
    setting = Setting(enough, modes[0])
    seen = played(config, pattern, setting)
    used = seen.counts["used"]
    settings = [(blocks, ahead) for blocks in _levels(used, least) for ahead in modes]
    rows: dict[tuple[int, bool], dict[str, int]] = {}
    done, asked = 0, pattern
    while seen.failure is None and done < limits.rounds and time.monotonic() - began < limits.seconds:
        setting = Setting(*settings[done % len(settings)], done // len(settings))
        asked = varied(pattern, setting.seed, limits.tokens)
        setting = setting._replace(blocks=max(setting.blocks, least_blocks(longest(asked), size)))
        seen = played(config, asked, setting)
        done += 1
        _add(rows.setdefault((setting.blocks, setting.ahead), {"rounds": 0}), seen)
        if done % len(settings) == 0:
            tell(f"{done} rounds, {_sum(rows, 'steps')} steps, {_sum(rows, 'preemptions')} preemptions")
    result = {
        "rounds": done,
        "seconds": round(time.monotonic() - began, 1),
        "blocks": {"size": size, "used": used, "least": least},
        "levels": [{"blocks": blocks, "ahead": ahead, **rows[blocks, ahead]} for blocks, ahead in sorted(rows, reverse=True)],
        "preemptions": _sum(rows, "preemptions"),
        "failure": None,
    }
    if seen.failure:
        left = max(20.0, (limits.seconds - (time.monotonic() - began)) * REDUCTION)
        result["failure"] = _reduced(config, asked, setting, seen.failure, left, tell)
    return result


def again(config: Any, pattern: list[Wish], setting: Setting) -> dict[str, Any]:
    """Play one kept case; the result as plain data."""
    seen = played(config, pattern, setting)
    told = seen.failure and {**seen.failure._asdict(), **setting._asdict(), "requests": plain(pattern)}
    row: dict[str, int] = {"rounds": 0}
    _add(row, seen)
    levels = [{"blocks": setting.blocks, "ahead": setting.ahead, **row}]
    return {"rounds": 1, "levels": levels, "preemptions": row["preemptions"], "failure": told}


def _levels(used: int, least: int) -> list[int]:
    """Numbers of blocks, each once, the most first; one more than used counts the block that stands for nothing."""
    return list(dict.fromkeys(max(least, round(used * part) + 1) for part in LEVELS))


def _add(row: dict[str, int], seen: Seen) -> None:
    row["rounds"] += 1
    for name, count in seen.counts.items():
        row[name] = max(row.get(name, 0), count) if name == "used" else row.get(name, 0) + count


def _sum(rows: dict[tuple[int, bool], dict[str, int]], name: str) -> int:
    return sum(row[name] for row in rows.values())


def _reduced(
    config: Any, pattern: list[Wish], setting: Setting, failure: Failure, seconds: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    """The failure with the smallest pattern that was found for it."""
    tell(f"failed with {setting.blocks} blocks in step {failure.step}: {failure.words}; looking for a smaller pattern")
    search = _Search(config, setting, failure, time.monotonic() + seconds)
    small = smallest(_part(pattern, search), search.shows)
    return {
        **search.failure._asdict(),
        **search.setting._asdict(),
        "requests": plain(small),
        "of_requests": len(pattern),
        "tried": search.tried,
        "smallest": time.monotonic() <= search.until,
    }


def _part(pattern: list[Wish], search: _Search) -> list[Wish]:
    """A few requests of the pattern that fail already, where chance finds some: faster than taking away one after the other."""
    chance, until = random.Random(0), time.monotonic() + (search.until - time.monotonic()) * HUNT
    size = FEW
    while size < len(pattern) / 2 and time.monotonic() < until:
        some = sorted(chance.sample(range(len(pattern)), size))
        part = [replace(pattern[place], at_ms=pattern[place].at_ms - pattern[some[0]].at_ms) for place in some]
        if search.shows(part):
            return part
        # Larger with time: a fault may want many.
        size = FEW + int(search.tried / 60)
    return pattern


class _Search:
    """Does a smaller pattern fail in the same way? Fewer requests want fewer blocks for that, so these are tried as well."""

    def __init__(self, config: Any, setting: Setting, failure: Failure, until: float) -> None:
        self.config, self.setting, self.failure, self.until, self.tried = config, setting, failure, until, 0

    def shows(self, other: list[Wish]) -> bool:
        """What showed it is remembered. After the last moment nothing does."""
        for setting in self._settings(other):
            if time.monotonic() > self.until:
                return False
            self.tried += 1
            found = played(self.config, other, setting).failure
            if found and found.kind == self.failure.kind:
                self.setting, self.failure = setting, found
                return True
        return False

    def _settings(self, other: list[Wish]) -> list[Setting]:
        blocks, least = self.setting.blocks, least_blocks(longest(other), self.config.cache_config.block_size)
        fewer = [least + round((blocks - least) * part) for part in (1.0, 0.85, 0.7, 0.5, 0.25, 0.0)]
        return [self.setting._replace(blocks=number) for number in dict.fromkeys(fewer) if least <= number <= blocks]
