"""What the last minutes were like. Figures since the start say little about tonight when a gateway has run for weeks.

Copies of the backends' counters are kept for a while; the difference to the oldest of them is what has happened since. Pure: the
clock is handed in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Deque, Dict, Mapping, Optional, Sequence, Tuple, TypeVar

from modelyard_gateway.backends import Backend
from modelyard_gateway.histogram import Histogram

_Key = TypeVar("_Key")
#: Seconds. Long enough for a median of slow answers, short enough to mean "now".
WINDOW_S = 300.0
STEP_S = 15.0


@dataclass(frozen=True)
class Counters:
    """The counters of one backend at one moment, or what they grew by."""

    picked: int
    served: int
    errors: Mapping[str, int]
    statuses: Mapping[int, int]
    ttft: Histogram
    duration: Histogram


class Recent:
    """Copies of counters, one each STEP_S at most, for about WINDOW_S."""

    def __init__(self) -> None:
        self._copies: Deque[Tuple[float, Dict[Tuple[str, str], Counters]]] = deque()

    def note(self, now: float, backends: Sequence[Backend]) -> None:
        """Keep the counters as they are at `now` (seconds of any clock that never goes back)."""
        if self._copies and now - self._copies[-1][0] < STEP_S:
            return
        self._copies.append((now, {_key(backend): _copy(backend) for backend in backends}))
        while len(self._copies) > 1 and now - self._copies[1][0] >= WINDOW_S:
            self._copies.popleft()

    def length_s(self, now: float) -> float:
        """How long ago the time begins that `of` speaks of, in seconds."""
        return now - self._copies[0][0] if self._copies else 0.0

    def of(self, backend: Backend) -> Counters:
        """What has happened at this backend since then. All that it has ever counted when it was not there then."""
        new = _copy(backend)
        old = self._copies[0][1].get(_key(backend)) if self._copies else None
        if old is None or old.picked > new.picked:  # it was taken out and put in again: counted from 0
            return new
        return Counters(
            new.picked - old.picked,
            new.served - old.served,
            _grown(new.errors, old.errors),
            _grown(new.statuses, old.statuses),
            _later(new.ttft, old.ttft),
            _later(new.duration, old.duration),
        )


def _key(backend: Backend) -> Tuple[str, str]:
    return backend.name, backend.address


def _copy(backend: Backend) -> Counters:
    return Counters(
        backend.picked,
        backend.served,
        dict(backend.errors),
        dict(backend.statuses),
        _later(backend.ttft, None),
        _later(backend.duration, None),
    )


def _grown(new: Mapping[_Key, int], old: Mapping[_Key, int]) -> Dict[_Key, int]:
    return {key: number - old.get(key, 0) for key, number in new.items() if number != old.get(key, 0)}


def _later(new: Histogram, old: Optional[Histogram]) -> Histogram:
    """What came after `old`, as a histogram of its own; all of `new` when there is no old one."""
    later = Histogram(new.bounds)
    later.counts = [count - (old.counts[place] if old else 0) for place, count in enumerate(new.counts)]
    later.count = new.count - (old.count if old else 0)
    later.total = new.total - (old.total if old else 0.0)
    return later
