"""Noticing during a level that an engine, or everything, stands still. Looks at nothing by itself."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

#: Counters of which one grows while an engine works.
MOVING = ("generation_tokens", "prompt_tokens", "finished")


class Standstill:
    """`limit_s`: how long nothing may move; longer than any request may take."""

    def __init__(self, service: str, limit_s: float, now: float) -> None:
        self.service, self.limit_s = service, limit_s
        self.began = self.moved_at = now
        self.of_instance: Dict[str, float] = {}
        self.last: Dict[str, Mapping[str, float]] = {}
        self.done: Tuple[int, int] = (0, 0)
        self.seen = 0.0

    def look(self, now: float, sample: Mapping[str, Any], done: Tuple[int, int]) -> str:
        """What stands still, in words; empty while all is well. `sample`: as in server.py; `done`: requests that are over."""
        if done != self.done:
            self.moved_at, self.done = now, done
        if sample["at"] != self.seen:
            self.seen = sample["at"]
            for index, figures in sample["instances"].items():
                self._instance(now, str(index), figures)
        for index, at in self.of_instance.items():
            if now - at > self.limit_s:
                return f"{self.service}/{index} has made no token and ended no request for {now - at:.0f} s: it hangs"
        if now - self.moved_at > self.limit_s:
            return f"nothing moved for {now - self.moved_at:.0f} s: no request reaches the engines, or none is answered"
        return ""

    def _instance(self, now: float, index: str, figures: Any) -> None:
        """An engine that is idle, or that never told anything, does not stand still."""
        before = self.last.get(index)
        if figures:
            self.last[index] = figures
            moved = before is None or any(figures.get(key) != before.get(key) for key in MOVING)
            if moved and before is not None:
                self.moved_at = now
            if moved or not (figures.get("running") or figures.get("waiting")):
                self.of_instance[index] = now
