"""Looks at /health of every backend, each at its own pace and on a connection of its own."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Optional

from modelyard_gateway.backends import EJECTED, Backend
from modelyard_gateway.headers import ReplyHead
from modelyard_gateway.server_side import ConnectError, Connection, Pool


class Look(NamedTuple):
    """What one look has shown. `problem`: empty when all is well; `silent_s`: there was no answer for so long, else 0."""

    problem: str
    silent_s: float = 0.0


class _Answer:
    """The reply to one look, of which only the status matters."""

    def __init__(self) -> None:
        self.problem: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_head(self, head: ReplyHead) -> None:
        self._set("" if head.status == 200 else f"/health answered {head.status}")

    def on_data(self, payload: bytes, ended: bool) -> None:
        pass

    def on_broken(self, why: str) -> None:
        self._set(f"/health: {why}")

    def on_flow(self, slow: bool) -> None:
        pass

    def _set(self, problem: str) -> None:
        if not self.problem.done():
            self.problem.set_result(problem)


async def look(pool: Pool, backend: Backend, timeout_s: float) -> Look:
    """What is wrong with the backend's /health. Takes `timeout_s` at most."""
    connection: Optional[Connection] = None

    async def ask() -> str:
        nonlocal connection
        connection = await pool.connect(backend, timeout_s)
        answer = _Answer()
        connection.begin(answer, head_only=False)
        connection.transport.write(f"GET /health HTTP/1.1\r\nHost: {backend.address}\r\nConnection: close\r\n\r\n".encode())
        return await answer.problem

    try:
        return Look(await asyncio.wait_for(ask(), timeout_s))
    except ConnectError as error:
        return Look(error.why, timeout_s if error.kind == "timeout" else 0.0)
    except (asyncio.TimeoutError, TimeoutError):
        return Look(f"/health gave no answer within {timeout_s:g} s", timeout_s)
    finally:
        if connection is not None:
            connection.end(reusable=False)


def pause_s(backend: Backend, interval_s: float, now: float) -> float:
    """How long until the next look. An ejected one is looked at as soon as its time is over."""
    if backend.state == EJECTED:
        return min(interval_s, max(0.05, backend.ejected_until - now))
    return interval_s
