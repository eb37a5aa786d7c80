"""Looking at engines, cards and the load generator while a level runs, as seldom as will do: looking costs them processor."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge.load import server
from ansible_collections.modelyard.core.plugins.module_utils.load.look import Running
from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import cards, engine_metrics

Sample = Dict[str, Any]
#: Seconds between two looks at the queues, and at the cards; a slow tool is asked less often still. The first looks come sooner,
#: because a level can be short.
QUEUE_S, CARDS_S, TOOL_SHARE = 1.0, 2.0, 10.0
FIRST_S = (0.25, 0.25, 0.5)
#: An engine that does not answer so soon is asked again at the next look.
ASK_S = 0.5


class Sampler:
    """Collects the samples of one level (judge/load/server.py says what is in them)."""

    def __init__(self, request: Mapping[str, Any], running: Sequence[Running]) -> None:
        self.names, self.how, self.running = request["metrics"], request["cards"], running
        self.samples: List[Sample] = []
        self.card_samples: List[Sample] = []
        self.client: Optional[int] = None
        self._client_before: Optional[float] = None
        self._cores: Dict[int, float] = {}
        self._next = self._next_cards = self._cores_at = self._before_at = 0.0

    def look(self, now: float, client: Optional[int]) -> None:
        """Look, if it is time. `client`: pid of the generator."""
        if now >= self._next:
            self.samples.append(self._queues(now, client))
            made = len(self.samples) - 1
            self._next = now + (FIRST_S[made] if made < len(FIRST_S) else QUEUE_S)
        if now >= self._next_cards:
            began = time.monotonic()
            found = self._of_tool() if self.how["entry"] else self._of_cores(now)
            if found:
                running = server.queue(self.samples[-1], "running")
                self.card_samples.append({"at": now, "loaded": running is None or running > 0, "cards": found})
            self._next_cards = now + max(CARDS_S, TOOL_SHARE * (time.monotonic() - began))

    def last(self, now: float) -> None:
        """A look at the queues at the end of the level: counters are read once more."""
        self.samples.append(self._queues(now, None))

    def _queues(self, now: float, client: Optional[int]) -> Sample:
        told = {str(one.index): engine_metrics.ask(one.address, self.names, ASK_S) for one in self.running}
        used = proc.cpu_s(client) if client is not None else None
        cpu = None
        if used is not None and self._client_before is not None and now > self._before_at:
            cpu = (used - self._client_before) / (now - self._before_at)
        self._client_before, self._before_at = used, now
        return {"at": now, "instances": told, "client_cpu": cpu}

    def _of_tool(self) -> List[Dict[str, Any]]:
        """The service's cards as the vendor's tool shows them."""
        mine = [device for one in self.running for device in one.devices]
        found = []
        for card in cards.usage(self.how["entry"], self.how["sysroot"]):
            if any(_same(card, device) for device in mine):
                found.append(
                    {
                        "index": card["index"],
                        "utilization": card["utilization_pct"],
                        "memory_used_mib": card["memory_used_mib"],
                    }
                )
        return found

    def _of_cores(self, now: float) -> List[Dict[str, Any]]:
        """On the backend cpu: how much of its cores an instance used since the last look, and its main memory."""
        table = proc.processes()
        found = []
        for one in self.running:
            mine = [p.pid for p in table.values() if p.sid == one.keeper and p.pid != one.keeper]
            used = sum(proc.cpu_s(pid) or 0.0 for pid in mine)
            cores = sorted({core for rank in one.cards for core in rank})
            before = self._cores.get(one.index)
            if before is not None and cores and now > self._cores_at:
                share = min(100.0, max(0.0, 100 * (used - before) / (now - self._cores_at) / len(cores)))
                memory = sum(proc.resident_mib(pid) for pid in mine)
                found += [{"index": core, "utilization": share, "memory_used_mib": memory} for core in cores]
            self._cores[one.index] = used
        self._cores_at = now
        return found


def _same(card: Mapping[str, Any], device: Mapping[str, Any]) -> bool:
    """Is it the card that was planned with? Its address or id decides; a number alone only where neither is known."""
    for key in ("bus_id", "uuid"):
        if card.get(key) and device.get(key):
            return bool(card[key] == device[key])
    return card.get("index") == device.get("index")
