"""What the gateway does by the clock: asks /health, ends what takes too long, notices changed files."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Callable, Dict

from modelyard_gateway import events, health
from modelyard_gateway.backends import Backend

if TYPE_CHECKING:
    from modelyard_gateway.gateway import Gateway

#: Between two looks at what takes too long. Seconds; short waits in the settings are as exact as this.
SWEEP_S = 0.1
#: Looks between two at files.
FILES_EVERY = 10


class Upkeep:
    """The loops of one gateway. A mistake in one step is logged and ends no loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lookers: Dict[Backend, asyncio.Task[None]] = {}
        self._log_problem = ""

    def start(self) -> None:
        """Begin."""
        self.look_at_all()
        self._gateway.spawn(self._sweep())

    def look_at_all(self) -> None:
        """Ask /health of those that nobody asks yet."""
        for backend in self._gateway.backends.all:
            if backend not in self._lookers:
                self._lookers[backend] = self._gateway.spawn(self._look(backend))

    async def _look(self, backend: Backend) -> None:
        gateway = self._gateway
        while backend in gateway.backends.all:
            wanted = gateway.settings.health
            try:
                seen = await health.look(gateway.pool, backend, wanted.timeout_s)
            except Exception as error:
                events.mistake(error)
                seen = health.Look(f"/health could not be asked: {error}")
            gateway.looked(backend, seen)
            await asyncio.sleep(health.pause_s(backend, wanted.interval_s, gateway.now()))
        del self._lookers[backend]

    async def _sweep(self) -> None:
        gateway, turn = self._gateway, 0
        while True:
            await asyncio.sleep(SWEEP_S)
            turn += 1
            now = gateway.now()
            for client in list(gateway.clients):
                self._careful(client.check_time, now)
            gateway.backends.look_for_hung(now)
            gateway.pool.close_idle(gateway.settings.backend_idle_s)
            self._careful(gateway.changed)
            news = gateway.descriptors.news(len(gateway.clients))
            if news:
                gateway.say(news)
            if turn % FILES_EVERY == 0:
                gateway.set_clock(time.time())
                self._careful(self._look_at_files)

    @staticmethod
    def _careful(step: Callable[..., None], *given: float) -> None:
        try:
            step(*given)
        except Exception as error:
            events.mistake(error)

    def _look_at_files(self) -> None:
        gateway = self._gateway
        if gateway.keys is not None:
            before = gateway.keys.problem
            if gateway.keys.refresh():
                gateway.say("keys read again")
            elif gateway.keys.problem and gateway.keys.problem != before:
                gateway.say(f"keys: {gateway.keys.problem}")
        if gateway.log is not None:
            problem = gateway.log.state()["problem"]
            if problem != self._log_problem:
                self._log_problem = problem
                gateway.say(f"result log: {problem or 'is written again'}")
