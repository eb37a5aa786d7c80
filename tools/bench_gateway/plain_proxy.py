"""The straightforward aiohttp proxy that our gateway is compared with: least connections, streamed both ways, nothing else.

usage: python -m bench_gateway.plain_proxy PORT BACKEND_PORT...
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade"}
BUSY = {int(port): 0 for port in sys.argv[2:]}
SESSION = web.AppKey("session", ClientSession)


async def relay(request: web.Request) -> web.StreamResponse:
    """One request to the backend with the fewest."""
    port = min(BUSY, key=BUSY.__getitem__)
    BUSY[port] += 1
    try:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        url = f"http://127.0.0.1:{port}{request.raw_path}"
        async with request.app[SESSION].request(request.method, url, data=await request.read(), headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
            if answer.content_length is not None:
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response
    finally:
        BUSY[port] -= 1


async def session(app: web.Application) -> AsyncIterator[None]:
    """The connections to the backends: as many as there are requests."""
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None), auto_decompress=False) as found:
        app[SESSION] = found
        yield


def main() -> None:
    """Serve until ended."""
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415

        uvloop.install()
    app = web.Application(client_max_size=80 * 2**20)
    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", relay)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None, backlog=1024)


if __name__ == "__main__":
    main()
