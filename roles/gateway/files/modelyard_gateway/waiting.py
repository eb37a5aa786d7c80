"""Requests that wait for a backend: a bounded queue that is fair between clients. Pure; the clock is not needed here."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Deque, Dict, Generic, List, Optional, TypeVar

T = TypeVar("T")


class Waiting(Generic[T]):
    """First come, first served for one client, and the clients by turns: who sends a thousand at once delays only himself."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lines: OrderedDict[str, Deque[T]] = OrderedDict()
        self._who: Dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._who)

    def put(self, item: T, who: str) -> bool:
        """Let it wait in the line of that client. False when the queue is full."""
        if len(self) >= self.size:
            return False
        self._lines.setdefault(who, deque()).append(item)
        self._who[id(item)] = who
        return True

    def take(self) -> Optional[T]:
        """The next one, or None."""
        if not self._lines:
            return None
        who, line = self._lines.popitem(last=False)
        item = line.popleft()
        if line:
            self._lines[who] = line  # at the end: the others first
        del self._who[id(item)]
        return item

    def remove(self, item: T) -> None:
        """It waits no longer. Nothing happens when it does not wait."""
        who = self._who.pop(id(item), None)
        if who is not None:
            line = self._lines[who]
            line.remove(item)
            if not line:
                del self._lines[who]

    def all(self) -> List[T]:
        """Those that wait, in no certain order."""
        return [item for line in self._lines.values() for item in line]
