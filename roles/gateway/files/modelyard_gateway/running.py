"""How a gateway begins and ends: its listeners, the drain at the end, and one gateway that follows another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Optional

from modelyard_gateway import entry
from modelyard_gateway.answers import Refused
from modelyard_gateway.client_side import Client
from modelyard_gateway.result_log import ResultLog
from modelyard_gateway.settings import SettingsError

if TYPE_CHECKING:
    from modelyard_gateway.gateway import Gateway

MIB = 1024 * 1024
#: So long after the last new connection one on which nothing is asked stays open: its request may be on its way. Seconds.
LEAVE_S = 1.0
#: Between two attempts on the admin port, which the gateway before this one has until it retires. Seconds.
ADMIN_RETRY_S = 0.1


class Running:
    """The listeners of one gateway, and its end."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._server: Optional[asyncio.AbstractServer] = None
        self._inherited: Optional[socket.socket] = None
        self._admin: Any = None
        self._stopped = False  # by order; a retired one ends by itself
        self._cut = asyncio.Event()
        self._leave_at = 0.0

    async def start(self) -> None:
        """Listen. OSError or SettingsError with a message for people when that is not possible."""
        gateway, settings = self._gateway, self._gateway.settings
        self._inherited = entry.inherited(settings.port)
        if settings.log.path:
            gateway.log = ResultLog(settings.log.path, int(settings.log.limit_mb * MIB), settings.log.keep)
        if settings.admin.port:
            await self._open_admin()
        where: Any = {"host": settings.host, "port": settings.port}
        if self._inherited is not None:
            where = {"sock": self._inherited}
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Client(gateway), backlog=entry.BACKLOG, **where)
        except OSError as error:
            why = "the port is taken by another program" if entry.taken(error) else error.strerror or str(error)
            raise OSError(error.errno, f"cannot listen on {settings.host}:{settings.port}: {why}") from error
        names = ", ".join(backend.name for backend in gateway.backends.all)
        gateway.say(f"listening on {settings.host}:{settings.port} for {names}")

    async def _open_admin(self) -> None:
        from modelyard_gateway import admin, token_file  # noqa: PLC0415 (aiohttp takes a while to load and is not needed without it)

        async def again() -> None:
            while not self._gateway.stopping:
                await asyncio.sleep(ADMIN_RETRY_S)
                try:
                    self._admin = await admin.start(self._gateway)
                    return
                except OSError as error:
                    if not entry.taken(error):
                        raise

        try:
            self._admin = await admin.start(self._gateway)
        except token_file.TokenProblem as error:
            raise SettingsError([f"admin.token_file: {error}"]) from error
        except OSError as error:
            if self._inherited is None or not entry.taken(error):
                raise
            self._gateway.spawn(again())

    def say_taking(self) -> None:
        """Tell the keeper, where there is one."""
        if self._inherited is not None:
            entry.say_taking()

    def stop(self) -> None:
        """Take nothing new and let what runs end; called once more: end at once."""
        if self._stopped:
            self._cut.set()
            return
        self._stopped = True
        entry.shut(self._inherited)
        self._take_nothing_new("stopping")

    def retire(self) -> None:
        """The same because another gateway takes the connections now. A stop that comes after it cuts nothing."""
        if self._admin is not None:
            self._gateway.spawn(self._close_admin())
        self._take_nothing_new("another gateway follows")
        self._inherited = None  # not ours to shut any more

    def _take_nothing_new(self, why: str) -> None:
        gateway = self._gateway
        if gateway.stopping:
            return
        gateway.stopping = True
        gateway.say(f"{why}: {len(gateway.exchanges)} request(s) are worked off, for up to {gateway.settings.drain_s:g} s")
        if self._server is not None:
            self._server.close()
        self._leave_at = gateway.now() + LEAVE_S

    def leaves(self, now: float) -> bool:
        """Are connections on which nothing is asked closed now?"""
        return self._gateway.stopping and now >= self._leave_at

    async def ended(self) -> None:
        """Wait until all that ran when it was to end has ended, cut the rest, and tidy up."""
        gateway = self._gateway
        end = gateway.now() + gateway.settings.drain_s
        while self._waits() and gateway.now() < end and not self._cut.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._cut.wait(), 0.05)
        if gateway.exchanges:
            gateway.say(f"{len(gateway.exchanges)} request(s) are cut")
        for exchange in list(gateway.exchanges):
            exchange.refuse(Refused(503, "stopping", "The gateway was ended before this request was", close=True))
        await asyncio.sleep(0)  # what was written last goes out with the next turn of the loop
        for client in list(gateway.clients):
            client.close()
        end = gateway.now() + 1.0
        while gateway.clients and gateway.now() < end:
            await asyncio.sleep(0.02)
        gateway.end_tasks()
        gateway.pool.close()
        await self._close_admin()
        entry.forget_taking()
        if gateway.log is not None and not await asyncio.get_running_loop().run_in_executor(None, gateway.log.close, 5.0):
            gateway.say(f"result log: not all lines could be written: {gateway.log.state()['problem']}")
        gateway.say("stopped")

    def _waits(self) -> bool:
        clients = self._gateway.clients
        if not self.leaves(self._gateway.now()):
            return bool(clients)
        return bool(self._gateway.exchanges) or any(client.asks for client in clients)

    async def _close_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.cleanup()
