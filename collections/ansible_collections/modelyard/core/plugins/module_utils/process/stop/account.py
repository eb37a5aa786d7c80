"""What one stop is to end, and what it has seen and done so far."""

from __future__ import annotations

import time
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import identity
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import cards, look, settings

Say = Callable[[str], None]


class Account:
    """The account of one stop. `actions`: what was done, in words, with the seconds since the beginning."""

    def __init__(
        self,
        home: str,
        service: str,
        indexes: Optional[Collection[int]] = None,
        options: Optional[Mapping[str, Any]] = None,
        say: Optional[Say] = None,
    ) -> None:
        self.home = home
        self.service = service
        self.indexes = indexes
        self.began = time.monotonic()
        self.actions: List[Tuple[float, str]] = []
        self.tell = say or (lambda words: None)
        given = dict(options or {})
        self.runtimes_dir = str(given.get("runtimes_dir") or "")
        self.watch = look.Watch(home, service, indexes, self.runtimes_dir)
        self.settings = settings.read(home, service, self.watch.states.values(), given)
        self.place, self.unplaced = cards.usable_place(home, service, indexes)
        self.signalled: List[Dict[str, Any]] = []
        #: What was done beside signals, in words.
        self.did: List[str] = []
        self.denied: Dict[identity.Recorded, str] = {}
        self.problems: List[str] = []
        self.found: List[Dict[str, Any]] = []
        self.verdicts: List[Dict[str, Any]] = []
        self.others: List[Dict[str, Any]] = []
        #: Names of the segments of shared memory that were removed.
        self.removed: List[str] = []

    @property
    def seconds(self) -> float:
        """How long ago the stop began."""
        return time.monotonic() - self.began

    def say(self, words: str) -> None:
        """Keep what is done, and tell it at once."""
        self.actions.append((round(self.seconds, 1), words))
        self.tell(words)

    def serving(self) -> Dict[int, int]:
        """Ports of the instances whose API server lives, by index."""
        leaders = {(f.process.pid, f.process.start) for f in self.watch.living()}
        return {
            index: int(state["request"]["port"])
            for index, state in self.watch.states.items()
            if state and (state["leader"]["pid"], state["leader"]["start"]) in leaders
        }
