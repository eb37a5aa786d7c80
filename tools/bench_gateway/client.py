"""The load generator: one load, described as JSON on the command line; its figures as JSON on stdout.

usage: python -m bench_gateway.client '{"load": "streams", "port": 8000, ...}'      (loads: the functions named in LOADS)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import sys
from collections.abc import Iterator
from typing import Any

from bench_gateway.wire import Reply, Wire, clock, connect, request

HOST = "127.0.0.1"
#: A token that comes this much later than its stream's steadiest token is late, in seconds.
LATE_S = 0.010
#: How often the stub is asked what a sick backend still gets, in seconds.
LOOK_S = 0.02


def quantile(values: list[float], share: float) -> float:
    """The nearest-rank quantile of sorted values; nan of none."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


def chat(tokens: int, gap_ms: float = 0, stream: bool = False, kib: int = 0) -> bytes:
    """The body of a chat that the stub answers with `tokens` tokens, `gap_ms` apart."""
    body: dict[str, Any] = {"model": "stub", "messages": [{"role": "user", "content": "x" * (1024 * kib) or "hello"}]}
    body.update(max_tokens=tokens, user="bench", x_ms=gap_ms, stream=stream)
    if stream:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()


async def streams(load: dict[str, Any]) -> dict[str, Any]:
    """`count` streams, each over a connection of its own, that begin within `spread_s`; `tokens` tokens, `gap_ms` apart."""
    count, gap_s = load["count"], load["gap_ms"] / 1000
    ask = request(load["port"], chat(load["tokens"], load["gap_ms"], True), load["headers"])
    loop, replies = asyncio.get_running_loop(), []

    async def one(delay: float) -> None:
        await asyncio.sleep(delay)
        done: asyncio.Future[Reply] = loop.create_future()
        began = clock()
        wire = await connect(HOST, load["port"], lambda _, reply: done.set_result(reply))
        wire.ask(ask)
        reply = await done
        reply.began = began  # with the time to connect: that is what a user waits for
        wire.transport.close()
        replies.append(reply)

    began = clock()
    await asyncio.gather(*(one(number * load["spread_s"] / count) for number in range(count)), return_exceptions=True)
    # One event for the role, the tokens, one for the end, one for usage, [DONE]. The first and the second are sent together.
    whole = [reply for reply in replies if reply.good and sum(events for _, events in reply.marks) == load["tokens"] + 4]
    firsts = sorted(reply.marks[0][0] - reply.began - gap_s for reply in whole)
    gaps, late = [], 0
    for reply in whole:
        times = list(token_times(reply.marks, load["tokens"]))
        gaps += [after - before for before, after in zip(times, times[1:], strict=False)]
        steady = min(at - number * gap_s for number, at in enumerate(times))
        late += sum(at - number * gap_s - steady > LATE_S for number, at in enumerate(times))
    gaps.sort()
    return {
        "ttft_p50_ms": quantile(firsts, 0.5) * 1000,
        "ttft_p99_ms": quantile(firsts, 0.99) * 1000,
        "gap_p1_ms": quantile(gaps, 0.01) * 1000,
        "gap_p50_ms": quantile(gaps, 0.5) * 1000,
        "gap_p99_ms": quantile(gaps, 0.99) * 1000,
        "late_percent": 100 * late / max(1, len(whole) * load["tokens"]),
        "failed": count - len(whole),
        "done": count,
        "wall_s": clock() - began,
    }


def token_times(marks: list[tuple[float, int]], tokens: int) -> Iterator[float]:
    """When each token came: the first read has the event with the role besides, the end comes after the last one."""
    left = tokens
    for at, events in [(marks[0][0], marks[0][1] - 1), *marks[1:]]:
        for _ in range(min(events, left)):
            yield at
        left -= min(events, left)


class Loop:
    """Clients that each send the next request when the last one was answered, until `seconds` or `total` is reached."""

    def __init__(self, load: dict[str, Any]) -> None:
        self.load = load
        chosen = random.Random(5)
        bodies = [chat(chosen.randint(*load["tokens"]), load["gap_ms"], kib=load.get("kib", 0)) for _ in range(97)]
        self.asks = [request(load["port"], body, load["headers"]) for body in bodies]
        self.replies: list[Reply] = []
        self.sent = self.refused = 0
        self.until = clock() + load.get("seconds", 600)
        self.total = load.get("total", 10**9)
        self.tasks: set[asyncio.Task[None]] = set()
        self.idle = asyncio.Event()
        self.clients = load["clients"]

    async def run(self) -> float:
        """Run to the end; seconds that it took."""
        began = clock()
        for _ in range(self.clients):
            self.again()
        await self.idle.wait()
        return clock() - began

    def next(self, wire: Wire) -> None:
        """The next request of a client, over this connection when it is still open."""
        if clock() >= self.until or self.sent >= self.total:
            wire.transport.close()
            self.leave()
        elif wire.open:
            self.sent += 1
            wire.ask(self.asks[self.sent % len(self.asks)])
        else:
            wire.transport.close()
            self.again()

    def leave(self) -> None:
        """A client has nothing more to do."""
        self.clients -= 1
        if not self.clients:
            self.idle.set()

    def again(self) -> None:
        """Go on with a new connection."""
        task = asyncio.ensure_future(self.reconnect())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def reconnect(self) -> None:
        """Connect; a proxy that does not let us in is tried again, and counted."""
        while True:
            try:
                self.next(await connect(HOST, self.load["port"], self.ended))
                return
            except (OSError, asyncio.TimeoutError):
                self.refused += 1
                if clock() >= self.until:
                    self.leave()
                    return
                await asyncio.sleep(0.05)

    def ended(self, wire: Wire, reply: Reply) -> None:
        """Keep what is needed, and go on."""
        reply.marks, reply.tail = [], b""
        self.replies.append(reply)
        self.next(wire)

    def figures(self, wall: float) -> dict[str, Any]:
        """Rate and times of all requests."""
        good = sorted(reply.ended - reply.began for reply in self.replies if reply.good)
        return {
            "rate": len(good) / wall,
            "p50_ms": quantile(good, 0.5) * 1000,
            "p99_ms": quantile(good, 0.99) * 1000,
            "failed": len(self.replies) - len(good) + self.refused,
            "done": len(self.replies),
            "wall_s": wall,
        }


async def closed(load: dict[str, Any]) -> dict[str, Any]:
    """`clients` at once, each with one request after the other; `total` requests or `seconds`."""
    loop = Loop(load)
    return loop.figures(await loop.run())


async def sick(load: dict[str, Any]) -> dict[str, Any]:
    """As `closed`, and after `after_s` the stub is told to make a backend fail (`order`); when do clients notice it last?

    Requests that were already on their way to the backend then cannot be saved and are not counted.
    """
    loop = Loop(load)
    running = asyncio.ensure_future(loop.run())
    await asyncio.sleep(load["after_s"])
    count = (await control(load["control"], load["order"]))["count"][load["backend"]]
    struck = last = clock()
    while not running.done():
        await asyncio.sleep(LOOK_S)
        now = (await control(load["control"], "/stats"))["count"][load["backend"]]
        if now != count:
            count, last = now, clock()
    failed = [reply.ended - struck for reply in loop.replies if not reply.good and reply.began > struck]
    hit = sum(not reply.good and reply.began <= struck <= reply.ended for reply in loop.replies)
    seen = {"last_request_s": last - struck, "last_failure_s": max(failed, default=0.0), "failed_after": len(failed), "cut": hit}
    return {**loop.figures(await running), **seen}


async def control(port: int, target: str) -> dict[str, Any]:
    """Ask the stub's control port."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


LOADS = {"streams": streams, "closed": closed, "sick": sick}


def main() -> None:
    """Run the load of the command line."""
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415

        uvloop.install()
    load = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(LOADS[load["load"]](load))))


if __name__ == "__main__":
    main()
