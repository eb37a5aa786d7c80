"""How many clients may be connected at once. Each can have a connection to a backend as well, so that no request that was taken
in fails for want of a descriptor.
"""

from __future__ import annotations

import resource
from typing import Optional

#: Kept for everything else: listeners, logs, files that are read, looks at /health, the admin, clients that are turned away.
KEPT = 40
#: Clients that are turned away with an answer at the same time. More of them are closed without a word.
TOLD = 10
#: Below this share of the most it is said that connections are taken again.
CALM = 0.9


def allowed() -> Optional[int]:
    """Descriptors that this process may have; None where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class Descriptors:
    """Who is let in. `turned_away`: those that are being told just now; `refusing`: since the last calm somebody was."""

    def __init__(self, limit: Optional[int]) -> None:
        self._limit = limit
        self.most = None if limit is None else max(1, (limit - KEPT) // 2)
        self.turned_away = 0
        self.refusing = False

    def full(self, clients: int) -> bool:
        """Whether one of so many is too much; those that are turned away are among them."""
        return self.most is not None and clients - self.turned_away > self.most

    def news(self, clients: int) -> str:
        """What is to be said to people, once each time: that clients are refused, and that they are not any more."""
        calm = self.most is None or clients < self.most * CALM
        if self.refusing and calm:
            self.refusing = False
            return "connections are taken again: there are descriptors for them"
        return ""

    def first_refusal(self) -> str:
        """The same at a refusal."""
        if self.refusing:
            return ""
        self.refusing = True
        return (
            f"{self.most} clients are connected, and more are refused: the limit of {self._limit} descriptors (ulimit -Hn) has "
            "room for no more of them and their requests"
        )
