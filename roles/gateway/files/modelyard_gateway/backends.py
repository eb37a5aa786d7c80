"""The backends: whose turn it is, who is out and why. Pure state; the clock is handed in and nothing is asked or sent here.

States of a backend:

    unknown     nobody has looked yet; gets requests only when no other can
    up          gets requests
    down        /health has failed several times in a row; one success makes it half_open
    ejected     out for a while after a refused connection or repeated server errors
    half_open   gets one request at a time, until one is answered (up) or fails (ejected again, for longer)
"""

from __future__ import annotations

import math
from typing import AbstractSet, Dict, List, Optional, Sequence

from modelyard_gateway.histogram import Histogram
from modelyard_gateway.settings import BackendSettings, Settings

UNKNOWN, UP, DOWN, EJECTED, HALF_OPEN = "unknown", "up", "down", "ejected", "half_open"
#: An ejection lasts twice as long each time that the request after it fails as well, up to this many times the first.
LONGEST = 6
#: Kinds of errors that a backend is blamed for when they come in a row. Others (client_gone) say nothing about it.
BLAMED = frozenset({"timeout", "broken", "truncated", "server_error"})
#: Statuses that say "this server does not do that" and nothing about its health.
NOT_BLAMED = frozenset({501, 505})


class Backend:
    """One engine. Times `since` and `last_token_at` are Unix time, all other moments are of the monotonic clock."""

    def __init__(self, given: BackendSettings, limit: int, now: float, unix: float) -> None:
        self.name, self.host, self.port = given.name, given.host, given.port
        self.limit = limit  # of requests at once; 0: none
        self.state, self.why, self.since = UNKNOWN, "not looked at yet", unix
        self.draining = given.drained
        self.hung = False
        self.gone = False  # no longer in the configuration; goes when its last request has ended
        self.in_flight = self.peak = self.picked = self.served = 0
        self.errors: Dict[str, int] = {}
        self.statuses: Dict[int, int] = {}
        self.ttft, self.duration = Histogram(), Histogram()
        self.last_token_at: Optional[float] = None
        self.failed_looks = 0  # of /health, in a row
        self.failed_requests = 0  # in a row
        self.ejections = 0  # in a row
        self.ejected_until = 0.0
        self.moved_at = now  # when it last gave a byte of any reply, or began to work
        self.heard_at = -math.inf  # when it last gave a byte of any reply

    @property
    def address(self) -> str:
        """`127.0.0.1:8002`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def full(self) -> bool:
        """Whether its limit of requests at once is reached."""
        if self.state == HALF_OPEN:
            return self.in_flight > 0
        return 0 < self.limit <= self.in_flight

    @property
    def able(self) -> bool:
        """Whether it may get requests at all, full or not."""
        return self.state in (UP, HALF_OPEN, UNKNOWN) and not self.draining


class Backends:
    """All backends, in the order of the configuration. `events` collects lines for people, until they are logged."""

    def __init__(self, settings: Settings, now: float, unix: float) -> None:
        self.settings = settings
        self.all: List[Backend] = []
        self.events: List[str] = []
        self._turn = 0
        self.update(settings, now, unix)

    def update(self, settings: Settings, now: float, unix: float) -> None:
        """Take over another configuration: new backends come in as unknown, missing ones drain and then go."""
        known = {(b.name, b.host, b.port): b for b in self.all if not b.gone}
        wanted: List[Backend] = []
        for given in settings.backends:
            backend = known.pop((given.name, given.host, given.port), None)
            if backend is None:
                backend = Backend(given, settings.per_backend_limit, now, unix)
                self.events.append(f"{backend.name}: new, at {backend.address}")
            backend.limit = settings.per_backend_limit
            wanted.append(backend)
        for backend in known.values():
            backend.gone = backend.draining = True
            self.events.append(f"{backend.name}: no longer wanted, {backend.in_flight} request(s) are worked off")
        self.settings = settings
        self.all = wanted + [b for b in self.all if b.gone and b.in_flight]

    def named(self, name: str) -> Optional[Backend]:
        """The backend of that name, or None."""
        return next((b for b in self.all if b.name == name and not b.gone), None)

    # Picking

    def pick(self, now: float, tried: AbstractSet[str] = frozenset(), beyond_limit: bool = False) -> Optional[Backend]:
        """The backend with the fewest requests, and count the request there. None when all are out, full, or in `tried`.

        One that hangs, or that nobody has looked at, is taken only when there is no other. Ties go round.
        """
        best: Optional[Backend] = None
        best_rank, place, count = (0, 0), 0, len(self.all)
        for step in range(count):
            backend = self.all[(self._turn + step) % count]
            if not backend.able or backend.name in tried or (backend.full and not beyond_limit):
                continue
            rank = (int(backend.hung or backend.state == UNKNOWN), backend.in_flight)
            if best is None or rank < best_rank:
                best, best_rank, place = backend, rank, (self._turn + step) % count
        if best is None:
            return None
        self._turn = (place + 1) % count
        best.picked += 1
        best.in_flight += 1
        best.peak = max(best.peak, best.in_flight)
        if best.in_flight == 1:
            best.moved_at = now
        return best

    def release(self, backend: Backend) -> None:
        """A request that was counted by `pick` has ended there, however it ended."""
        backend.in_flight -= 1
        if not backend.in_flight:
            backend.hung = False
            if backend.gone:
                self.all = [b for b in self.all if b is not backend]
                self.events.append(f"{backend.name}: gone")

    def other_than(self, tried: AbstractSet[str]) -> bool:
        """Whether `pick` would find one besides those tried."""
        return any(b.able and not b.full and b.name not in tried for b in self.all)

    def any_able(self) -> bool:
        """Whether at least one may get requests, full or not."""
        return any(b.able for b in self.all)

    def why_none(self) -> str:
        """Why no request can be taken, each backend with its reason."""
        return "; ".join(
            f"{b.name} is {'draining' if b.draining and b.state == UP else f'{b.state} ({b.why})'}" for b in self.all
        )

    # What requests tell

    def answered(self, backend: Backend, status: int, now: float, unix: float) -> None:
        """A whole answer has come. Server errors in a row eject; 4xx says nothing about the backend, in either direction."""
        backend.statuses[status] = backend.statuses.get(status, 0) + 1
        backend.served += 1
        if status >= 500 and status not in NOT_BLAMED:
            self.failed(backend, "server_error", f"answered {status}", now, unix)
        elif status < 400:
            backend.failed_requests = 0
            backend.ejections = 0
            if backend.state in (HALF_OPEN, UNKNOWN):
                self._become(backend, UP, "", unix)

    def failed(self, backend: Backend, kind: str, why: str, now: float, unix: float) -> None:
        """A request has failed there. `kind`: refused, timeout, broken, truncated, server_error, client_gone."""
        backend.errors[kind] = backend.errors.get(kind, 0) + 1
        if kind == "refused":
            self._eject(backend, why, now, unix)
        elif kind in BLAMED:
            backend.failed_requests += 1
            if backend.state == HALF_OPEN:
                self._eject(backend, why, now, unix)
            elif backend.failed_requests >= self.settings.eject.server_errors and self._not_the_last(backend):
                self._eject(backend, f"{backend.failed_requests} failures in a row, the last: {why}", now, unix)

    def moved(self, backend: Backend, now: float, unix: float) -> None:
        """A byte of a reply has come."""
        backend.moved_at = backend.heard_at = now
        backend.last_token_at = unix
        if backend.hung:
            backend.hung = False
            self.events.append(f"{backend.name}: replies again")

    def look_for_hung(self, now: float) -> None:
        """Mark those that work on requests and have given no byte of any reply for long, though /health is well."""
        limit = self.settings.hung_after_s
        for backend in self.all:
            silent = now - backend.moved_at
            if backend.in_flight and not backend.hung and backend.state == UP and limit and silent >= limit:
                backend.hung = True
                self.events.append(
                    f"{backend.name}: seems to hang: {backend.in_flight} request(s) running, no byte of a reply "
                    f"for {silent:.0f} s, /health is well. Nothing was ended; new requests go to others where there are some"
                )

    # What /health tells

    def looked(self, backend: Backend, problem: str, now: float, unix: float, silent_s: float = 0.0) -> None:
        """The result of one look at /health; `problem` is empty when it was well, `silent_s`: it gave no answer for so long.

        One that is too busy to answer, and gives tokens meanwhile, is well: taking it out would only burden the others.
        """
        if problem and silent_s and backend.in_flight and now - backend.heard_at < silent_s:
            return
        if problem:
            backend.failed_looks += 1
            if backend.state == DOWN:
                backend.why = problem
            elif backend.state == EJECTED and now >= backend.ejected_until:
                backend.ejected_until = now + self.settings.eject.for_s
            if backend.state != DOWN and backend.failed_looks >= self.settings.health.failures:
                self._become(backend, DOWN, problem, unix)
            return
        backend.failed_looks = 0
        if backend.state == UNKNOWN:
            self._become(backend, UP, "", unix)
        elif backend.state == DOWN or (backend.state == EJECTED and now >= backend.ejected_until):
            backend.failed_requests = 0
            self._become(backend, HALF_OPEN, "on trial: one request at a time until one is answered", unix)

    # What people order

    def drain(self, backend: Backend) -> None:
        """No new requests; those that run go on."""
        if not backend.draining:
            backend.draining = True
            self.events.append(f"{backend.name}: draining, {backend.in_flight} request(s) in flight")

    def undrain(self, backend: Backend) -> None:
        """Requests again."""
        if backend.draining and not backend.gone:
            backend.draining = False
            self.events.append(f"{backend.name}: takes requests again")

    def restore(self, drained: Sequence[str], known: Sequence[str]) -> None:
        """Take over the drains of an earlier run. `known`: the names that it knew; for others the configuration counts."""
        for backend in self.all:
            if backend.name in known:
                backend.draining = backend.name in drained

    def _not_the_last(self, backend: Backend) -> bool:
        # With the last one out every client would get our 503 instead of what the engine says. Refused connections and /health
        # still take it out.
        return any(b is not backend and b.able for b in self.all)

    def _eject(self, backend: Backend, why: str, now: float, unix: float) -> None:
        if backend.state == DOWN:
            backend.why = why
            return
        if backend.state == EJECTED:  # more of those that were on their way when it was ejected
            return
        backend.ejections += 1
        seconds = self.settings.eject.for_s * min(2 ** (backend.ejections - 1), LONGEST)
        backend.ejected_until = now + seconds
        self._become(backend, EJECTED, why, unix)

    def _become(self, backend: Backend, state: str, why: str, unix: float) -> None:
        self.events.append(f"{backend.name}: {state.replace('_', '-')}" + (f": {why}" if why else "") + f" (was {backend.state})")
        backend.state, backend.why, backend.since = state, why, unix
