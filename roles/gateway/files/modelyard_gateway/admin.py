"""The admin listener: the status for people and programs, figures for Prometheus, drain and undrain.

    GET  /gateway/status                           JSON, or a page where a browser asks
    GET  /gateway/metrics                          Prometheus text
    POST /gateway/drain?backend=NAME[&wait_s=N]    no new requests there; waits up to N seconds until it is free (202: still busy)
    POST /gateway/undrain?backend=NAME             requests again

Errors are JSON: {"error": "what and what to do"}. Who is let in: admin_access.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import os
import resource
import time
from pathlib import Path
from typing import Any, AsyncIterator, Dict, Optional, Protocol, Tuple

from aiohttp import web

from modelyard_gateway import metrics, page, status
from modelyard_gateway.admin_access import guard, refusal
from modelyard_gateway.backends import Backend
from modelyard_gateway.recent import STEP_S, Recent
from modelyard_gateway.token_file import read_token

WAIT_MAX_S = 3600.0
#: Seconds. At its end the gateway waits this long for admin requests, for example for somebody who waits for a drain.
SHUTDOWN_S = 1.0


class Gateway(status.GatewayView, Protocol):
    """What the admin listener sees of the gateway, and what it can order."""

    async def drain(self, name: str, wait_s: float) -> int:
        """Give that backend no new requests. Returns how many run there, 0 or after `wait_s` seconds at the latest."""

    def undrain(self, name: str) -> None:
        """Give that backend requests again."""


async def start(gateway: Gateway) -> web.AppRunner:
    """Listen as the settings say. End it with `await runner.cleanup()`.

    Raises OSError when the port is taken, TokenProblem when the token file cannot be used.
    """
    wanted = gateway.settings.admin
    if wanted.token_file:
        read_token(wanted.token_file)
    return await listen(application(gateway), wanted.host, wanted.port, SHUTDOWN_S)


async def listen(app: web.Application, host: str, port: int, shutdown_s: float) -> web.AppRunner:
    """Serve it there. `shutdown_s`: how long its end waits for requests. OSError when the port is taken."""
    # Until aiohttp 3.8 it is the listener that waits at its end, since 3.9 the runner.
    of_runner = "shutdown_timeout" in inspect.signature(web.BaseRunner.__init__).parameters
    wait: Dict[str, Any] = {"shutdown_timeout": shutdown_s}
    runner = web.AppRunner(app, access_log=None, **(wait if of_runner else {}))
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, **({} if of_runner else wait)).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


def application(gateway: Gateway) -> web.Application:
    """Make the routes; all state is the gateway's, beside the figures of the last minutes."""
    wanted = gateway.settings.admin
    app = web.Application(middlewares=[guard(wanted.host, wanted.token_file)])
    admin = _Admin(gateway)
    app.router.add_get("/", admin.root)
    app.router.add_get("/gateway/status", admin.status)
    app.router.add_get("/gateway/metrics", admin.metrics)
    app.router.add_post("/gateway/drain", admin.drain)
    app.router.add_post("/gateway/undrain", admin.undrain)
    app.cleanup_ctx.append(admin.watch)
    return app


def prefers_html(accept: str) -> bool:
    """Say whether `Accept` wants a page rather than JSON. Whoever takes anything gets JSON."""
    weights = {"text/html": 0.0, "application/json": 0.0}
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
        if kind in weights:
            with contextlib.suppress(ValueError):
                weights[kind] = float(weight)
    return weights["text/html"] > weights["application/json"]


def process_figures() -> status.ProcessFigures:
    """Ask the kernel about this process."""
    memory = files = None
    with contextlib.suppress(OSError, ValueError):
        memory = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a path object for each of thousands would hold up the streams
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return status.ProcessFigures(
        os.getpid(), time.process_time(), memory, files, None if limit == resource.RLIM_INFINITY else limit
    )


class _Admin:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._recent = Recent()

    async def watch(self, _app: web.Application) -> AsyncIterator[None]:
        """Keep the counters of the last minutes for as long as the listener is there."""

        async def note() -> None:
            while True:
                self._recent.note(time.monotonic(), self._gateway.backends.all)
                await asyncio.sleep(STEP_S)

        task = asyncio.ensure_future(note())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def root(self, _request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "gateway/status"})

    async def status(self, request: web.Request) -> web.Response:
        state = status.report(self._gateway, self._recent, process_figures(), time.monotonic(), time.time())
        headers = {"Cache-Control": "no-store", "Vary": "Accept"}
        if prefers_html(request.headers.get("Accept", "")):
            return web.Response(text=page.render(state), content_type="text/html", headers={**headers, **page.HEADERS})
        return web.json_response(state, headers=headers)

    async def metrics(self, _request: web.Request) -> web.Response:
        written = metrics.text(self._gateway, process_figures())
        return web.Response(body=written.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def drain(self, request: web.Request) -> web.Response:
        backend, problem = self._named(request, "backend", "wait_s")
        if backend is None:
            return problem
        try:
            wait_s = float(request.query.get("wait_s", "0"))
        except ValueError:
            wait_s = math.nan
        if not 0 <= wait_s <= WAIT_MAX_S:
            return refusal(400, f"wait_s must be a number of seconds from 0 to {WAIT_MAX_S:.0f}")
        in_flight = await self._gateway.drain(backend.name, wait_s)
        return _done(request, backend.name, True, in_flight, 202 if in_flight and "wait_s" in request.query else 200)

    async def undrain(self, request: web.Request) -> web.Response:
        backend, problem = self._named(request, "backend")
        if backend is None:
            return problem
        self._gateway.undrain(backend.name)
        return _done(request, backend.name, False, backend.in_flight, 200)

    def _named(self, request: web.Request, *known: str) -> Tuple[Optional[Backend], web.Response]:
        # A misspelt wait_s must not look like a drain that was waited for.
        unknown = sorted(set(request.query) - set(known))
        names = request.query.getall("backend", [])
        if unknown or len(names) != 1:
            wrong = f"there is no parameter {', '.join(unknown)}" if unknown else "say which backend, once"
            return None, refusal(400, f"{wrong}: POST {request.path}?{'&'.join(f'{name}=...' for name in known)}")
        backend = self._gateway.backends.named(names[0])
        there = ", ".join(each.name for each in self._gateway.backends.all)
        return backend, refusal(404, f"there is no backend {names[0]}; there are {there}")


def _done(request: web.Request, backend: str, draining: bool, in_flight: int, code: int) -> web.Response:
    if prefers_html(request.headers.get("Accept", "")):  # a button of the page
        return web.Response(status=303, headers={"Location": "status"})
    return web.json_response({"backend": backend, "draining": draining, "in_flight": in_flight}, status=code)
