"""What is looked at after each step of an acceptance: new lines of the engine's and the kernel's log, and the cards' memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_log
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import between, memory
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_watch import NEVER, CardWatch
from ansible_collections.modelyard.core.plugins.module_utils.survey.kernel_watch import KernelWatch

LOG_BYTES = 4 * 2**20


def log_since(state: Dict[str, Any], offset: int) -> str:
    """What an engine has logged since."""
    try:
        with Path(state["log"]).open("rb") as stream:
            stream.seek(offset)
            return stream.read(LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


class Watch:
    """One instance, from the beginning of its ladder on."""

    def __init__(self, state: Dict[str, Any], index: int, pids: List[int], cards: CardWatch, kernel: KernelWatch) -> None:
        self.state, self.index, self.pids = state, index, pids
        self.cards, self.kernel = cards, kernel
        log = Path(state["log"])
        self.offset = log.stat().st_size if log.exists() else 0
        self.share = memory.budget_share([str(word) for word in state["request"]["launch"].get("argv") or ()])
        self.bus_ids = [str(device["bus_id"]) for device in cards.devices(index) if device.get("bus_id")]
        self.before = cards.look(index, pids)

    def look(self, since: float = NEVER) -> Dict[str, Any]:
        """What between.stop reads. Looks at the kernel's log and the cards are younger than `since` (time.monotonic)."""
        return {
            "fatal": engine_log.fatal_lines(log_since(self.state, self.offset)),
            "kernel": between.events_of(self.kernel.look(since), self.bus_ids, self.pids),
            "alive": layout.leader_alive(self.state),
            "log": self.state["log"],
            "cards_before": self.before["cards"],
            "cards": self.cards.look(self.index, self.pids, since)["cards"],
            "share": self.share,
        }
