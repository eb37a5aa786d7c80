"""One round: a pattern from its first request to the idle engine, with all rules looked at after every step."""

from __future__ import annotations

import random
import traceback
from typing import Any, NamedTuple

from modelyard_lab import conservation
from modelyard_lab.engine import Engine
from modelyard_lab.pattern import Wish, longest

#: How long a step takes in the pattern's time, in ms: what a service of this kind shows.
STEP_MS = 20.0
#: Steps in which nothing was handed out although somebody waits, after which nothing ever will be.
STALLED = 200


class Failure(NamedTuple):
    """What went wrong. `kind` is the same for the same fault, whatever numbers stand in `words`."""

    kind: str
    words: str
    step: int
    trace: str


class Seen(NamedTuple):
    """A round. `counts`: steps, tokens, finished, cancelled, preemptions, and used, the most blocks in use."""

    failure: Failure | None
    counts: dict[str, int]


class Setting(NamedTuple):
    """How the engine of a round is made: so many blocks, batches made ahead or not, and by which chance."""

    blocks: int
    ahead: bool
    seed: int = 0


def played(config: Any, pattern: list[Wish], setting: Setting) -> Seen:
    """Play a pattern on an engine core of its own."""
    engine = Engine(config, longest(pattern), *setting)
    try:
        return _Round(engine, pattern, setting.seed).seen()
    finally:
        engine.close()


class _Round:
    def __init__(self, engine: Engine, pattern: list[Wish], seed: int) -> None:
        self.engine = engine
        self.coming = list(reversed([(f"r{place}", wish) for place, wish in enumerate(pattern)]))
        self.chance = random.Random(seed)
        self.at_work: dict[str, Wish] = {}
        self.given: dict[str, int] = {}
        self.counts = dict.fromkeys(("steps", "tokens", "finished", "cancelled", "preemptions", "used"), 0)

    def seen(self) -> Seen:
        try:
            failure = self._run()
        except Exception as exc:  # whatever the engine raises is what is looked for
            failure = Failure(_kind(exc), f"{type(exc).__name__}: {exc}", self.counts["steps"], traceback.format_exc())
        return Seen(failure, self.counts)

    def _run(self) -> Failure | None:
        still, clock = 0, 0.0
        while self.coming or not self.engine.idle:
            clock = self._hand_in(clock)
            given, preempted = self.engine.step()
            self.counts["steps"] += 1
            self.counts["preemptions"] += preempted
            self._count(given)
            wrong = conservation.broken(self.engine.scheduler)
            if wrong:
                return Failure(_shape(wrong), wrong, self.counts["steps"], "")
            still = 0 if given or self.engine.idle else still + 1
            if still > STALLED:
                words = f"no request got a token for {still} steps, {len(self.at_work)} wait"
                return Failure("no progress", words, self.counts["steps"], "")
            self._leave()
            clock += STEP_MS
        return self._at_the_end()

    def _hand_in(self, clock: float) -> float:
        """What has come by now; where the engine has nothing to do, time jumps to the next request."""
        if self.engine.idle and self.coming:
            clock = max(clock, self.coming[-1][1].at_ms)
        while self.coming and self.coming[-1][1].at_ms <= clock:
            name, wish = self.coming.pop()
            self.engine.ask(name, wish)
            self.at_work[name], self.given[name] = wish, 0
        return clock

    def _count(self, given: dict[str, int]) -> None:
        scheduler = self.engine.scheduler
        for name, tokens in given.items():
            self.counts["tokens"] += tokens
            self.given[name] = self.given.get(name, 0) + tokens
        gone = [name for name in self.at_work if name not in scheduler.requests]
        for name in gone:
            del self.at_work[name]
        self.counts["finished"] += len(gone)
        pool = scheduler.kv_cache_manager.block_pool
        self.counts["used"] = max(self.counts["used"], len(pool.blocks) - 1 - pool.get_num_free_blocks())

    def _leave(self) -> None:
        for name, wish in list(self.at_work.items()):
            if wish.cancel_after is not None and self.given[name] >= wish.cancel_after:
                self.engine.leave(name, within=self.chance.random() < 0.5)
                del self.at_work[name]
                self.counts["cancelled"] += 1

    def _at_the_end(self) -> Failure | None:
        scheduler = self.engine.scheduler
        pool = scheduler.kv_cache_manager.block_pool
        lost = len(pool.blocks) - 1 - pool.get_num_free_blocks()
        if lost:
            words = f"{lost} blocks are still in use after the last request"
        elif scheduler.requests:
            words = f"{len(scheduler.requests)} requests are still kept after the last answer"
        else:
            return None
        return Failure(_shape(words), words, self.counts["steps"], "")


def _kind(exc: Exception) -> str:
    """Kind of an exception and where it was raised."""
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{type(exc).__name__} in {frame.name} of {frame.filename.rpartition('/')[2]}"


def _shape(words: str) -> str:
    """Words without their numbers and names."""
    return " ".join("N" if any(c.isdigit() for c in word) else word for word in words.partition(", by ")[0].split())
