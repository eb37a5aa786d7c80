"""The gateway as a whole: wires its parts, keeps the time, and begins and ends everything."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Coroutine, Dict, Optional, Set

from modelyard_gateway import events
from modelyard_gateway.backends import Backend, Backends
from modelyard_gateway.client_side import Client
from modelyard_gateway.descriptors import Descriptors, allowed
from modelyard_gateway.drains import Drains
from modelyard_gateway.exchange import Exchange
from modelyard_gateway.health import Look
from modelyard_gateway.keys import Keys
from modelyard_gateway.result_log import ResultLog
from modelyard_gateway.running import Running
from modelyard_gateway.server_side import Pool
from modelyard_gateway.settings import Settings, SettingsError
from modelyard_gateway.upkeep import Upkeep
from modelyard_gateway.waiting import Waiting
from modelyard_gateway.way import Way

MIB = 1024 * 1024


def read_key(path: str) -> bytes:
    """The key for the backends, from a file that holds nothing else. SettingsError when there is none."""
    if not path:
        return b""
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingsError([f"backend_key_file: {path}: cannot be read: {error.strerror}"]) from error
    if not key or any(byte <= 32 or byte >= 127 for byte in key):
        raise SettingsError([f"backend_key_file: {path}: wanted one key of visible ASCII characters"])
    return key


class Gateway:
    """One gateway in the running event loop. `totals` counts by kind since the start; `started_at` is Unix time."""

    def __init__(self, settings: Settings) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self.started_at = time.time()
        self.set_clock(self.started_at)
        self.stopping = False
        self.totals: Dict[str, int] = {}
        self.clients: Set[Client] = set()
        self.descriptors = Descriptors(allowed())
        self.exchanges: Set[Exchange] = set()
        self.queue: Waiting[Way] = Waiting(settings.queue_size)
        self.pool = Pool(settings.backend_idle_s)
        self.backends = Backends(settings, self.now(), self.started_at)
        self.log: Optional[ResultLog] = None
        self._drains = Drains(settings.state_file)
        self._tasks: Set[asyncio.Task[None]] = set()
        self.running = Running(self)
        self._upkeep = Upkeep(self)
        self._take(settings, read_key(settings.backend_key_file), Keys(settings.keys_file) if settings.keys_file else None)
        self._drains.restore(self.backends, self.say)

    @property
    def waiting(self) -> int:
        """Requests that wait for a backend."""
        return len(self.queue)

    @property
    def in_flight(self) -> int:
        """Requests that are with a backend."""
        return sum(backend.in_flight for backend in self.backends.all)

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        return len(self.clients)

    # For the parts

    def unix(self, now: float) -> float:
        """Unix time of a moment of `now()`."""
        return now + self._offset

    def set_clock(self, unix: float) -> None:
        """It is that Unix time now."""
        self._offset = unix - self.now()

    def say(self, text: str) -> None:
        """One line about an event, for people."""
        events.say(text)

    def count(self, kind: str) -> None:
        """One more of that kind."""
        self.totals[kind] = self.totals.get(kind, 0) + 1

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it beside the rest. A mistake in it is logged."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def answered(self, backend: Backend, status: int) -> None:
        """A backend has answered."""
        now = self.now()
        self.backends.answered(backend, status, now, self.unix(now))
        self._news()

    def failed(self, backend: Backend, kind: str, why: str) -> None:
        """A backend has failed a request."""
        now = self.now()
        self.backends.failed(backend, kind, why, now, self.unix(now))
        self._news()

    def release(self, backend: Backend) -> None:
        """A request has ended at a backend; the next one that waits takes its place."""
        self.backends.release(backend)
        self.changed()

    def looked(self, backend: Backend, seen: Look) -> None:
        """Somebody has looked at /health of a backend."""
        now = self.now()
        self.backends.looked(backend, seen.problem, now, self.unix(now), seen.silent_s)
        self.changed()

    def changed(self) -> None:
        """Something about the backends may have changed: those that wait may go on, and what has happened is logged."""
        self._serve_waiting()
        self._news()

    # For the admin

    async def drain(self, name: str, wait_s: float) -> int:
        """Give a backend no new requests; wait until none runs there, at most so long. Returns how many still run."""
        backend = self._named(name)
        self.backends.drain(backend)
        self._drains.save(self.backends, self.say)
        self._news()
        end = self.now() + wait_s
        while backend.in_flight and backend.draining and self.now() < end:
            await asyncio.sleep(min(0.05, max(0.0, end - self.now())))
        return backend.in_flight

    def undrain(self, name: str) -> None:
        """Give a backend requests again."""
        self.backends.undrain(self._named(name))
        self._drains.save(self.backends, self.say)
        self.changed()

    # Beginning and end

    async def start(self) -> None:
        """Listen. OSError or SettingsError with a message for people when that is not possible."""
        await self.running.start()
        self._upkeep.start()

    def reload(self, settings: Settings) -> None:
        """Take over another configuration. SettingsError or KeysError leaves everything as it is."""
        fixed = [
            name
            for name in ("host", "port", "admin", "log", "state_file")
            if getattr(settings, name) != getattr(self.settings, name)
        ]
        key, keys = read_key(settings.backend_key_file), Keys(settings.keys_file) if settings.keys_file else None
        self.backends.update(settings, self.now(), time.time())
        self.queue.size, self.pool.idle_s = settings.queue_size, settings.backend_idle_s
        self._take(settings, key, keys)
        self._upkeep.look_at_all()
        self.changed()
        self.say("configuration read again" + (f"; only a restart changes {', '.join(fixed)}" if fixed else ""))

    def end_tasks(self) -> None:
        """End what is done beside the requests."""
        for task in list(self._tasks):
            task.cancel()

    # Inside

    def _take(self, settings: Settings, key: bytes, keys: Optional[Keys]) -> None:
        self.settings, self.backend_key, self.keys = settings, key, keys
        self.body_limit = int(settings.body_limit_mb * MIB)

    def _named(self, name: str) -> Backend:
        backend = self.backends.named(name)
        if backend is None:
            raise KeyError(name)
        return backend

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            events.mistake(task.exception())

    def _news(self) -> None:
        lines, self.backends.events = self.backends.events, []
        for line in lines:
            self.say(line)

    def _serve_waiting(self) -> None:
        while self.queue:
            backend = self.backends.pick(self.now())
            if backend is None:
                return
            exchange = self.queue.take()
            assert exchange is not None
            exchange.turn(backend)
