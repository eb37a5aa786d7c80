"""Stand-ins for vLLM's HTTP server: several engines with slots in one process, with faults on demand.

usage: stub.py BASE_PORT COUNT SLOTS     (engines on BASE_PORT.., the control port after them; prints one line when all listen)

Engine: GET /health, GET /v1/models, POST /v1/chat/completions (stream or not, stream_options.include_usage), any method /echo.
A reply to a chat is `max_tokens` tokens "t0 ", "t1 ", ... so that a client sees what is missing or out of order. More requests
than slots wait in order of arrival. Fields of the body beside vLLM's own:
  x_ms, x_first_ms      milliseconds between tokens, before the first one (default 0: as fast as it goes)
  x_text                the text of every token instead of "tN "
  x_status              answer with this status and an error body; x_message: its text; x_fields: further fields of a whole reply
  x_die_after N         reset the connection after N tokens; 0: before a byte of the reply
  x_close_early N       the same with a clean end of the connection
  x_hang N              say nothing more after N tokens, until the client goes; x_bad_chunk N: a damaged chunk after N tokens
  x_until_close         a whole reply without a length, ended by closing
  x_headers             true: a whole reply has the request as it came under `x_request`; a dict: further headers of the reply
Control port, and each engine as well (so that a gateway which lets these paths through is seen):
  /reset, /stats -> a list with one figure per engine of each: now, peak (requests whose head has come and whose reply has not
  ended), count, done, aborted (the connection ended before the reply), queued, connections, health_asked
  /control?port=P&health=200|503|hang&slots=N&mode=ok|fast500|fast503|frozen|refuse|kill      (without port: all)
  frozen: health 200, no tokens; refuse: stop listening, close idle connections; kill: as refuse, and reset the others
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque

from stub_chat import Chat
from stub_wire import Wire


class Engine:
    """One port: what it counts, how it behaves."""

    def __init__(self, port: int, slots: int, group: list[Engine]) -> None:
        self.group = group
        self.port, self.slots = port, slots
        self.health, self.mode = "200", "ok"
        self.waiting: deque[Chat] = deque()
        self.wires: set[Wire] = set()
        self.server: asyncio.AbstractServer | None = None
        self.now = self.busy = 0
        self.reset()

    def reset(self) -> None:
        self.peak, self.count, self.done, self.aborted, self.health_asked = self.now, 0, 0, 0, 0

    queued = property(lambda self: len(self.waiting))
    connections = property(lambda self: len(self.wires))

    async def listen(self) -> None:
        if self.server is None:
            loop = asyncio.get_running_loop()
            self.server = await loop.create_server(lambda: Wire(self, self.group), "127.0.0.1", self.port, backlog=2048)

    async def control(self, health: str = "", mode: str = "", slots: str = "") -> None:
        self.health, self.mode = health or self.health, mode or self.mode
        self.slots = int(slots or self.slots)
        if self.mode not in ("refuse", "kill"):
            await self.listen()
            return
        if self.server:
            self.server.close()
            self.server = None
        for wire in list(self.wires):
            if mode == "kill":
                wire.cut()
            elif wire.chat is None:
                wire.transport.close()

    def enter(self, chat: Chat) -> None:
        if self.busy < self.slots:
            self.busy += 1
            chat.has_slot = True
            chat.start()
        else:
            self.waiting.append(chat)

    def leave(self, chat: Chat) -> None:
        if not chat.has_slot:
            with contextlib.suppress(ValueError):
                self.waiting.remove(chat)
            return
        self.busy -= 1
        if self.waiting and self.busy < self.slots:
            self.enter(self.waiting.popleft())


async def main(base: int, count: int, slots: int) -> None:
    """Listen until the process is ended."""
    engines: list[Engine] = []
    engines.extend(Engine(base + index, slots, engines) for index in range(count))
    for engine in engines:
        await engine.listen()
    await asyncio.get_running_loop().create_server(lambda: Wire(None, engines), "127.0.0.1", base + count)
    print(f"engines on {base}-{base + count - 1}, control on {base + count}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*map(int, sys.argv[1:4])))
