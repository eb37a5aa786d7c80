"""Clients of a gateway: many streams at once, and what each of them saw."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from gateway.kinds import Gateway
from harness import until


@dataclass
class Stream:
    """What came of one stream."""

    status: int = 0
    backend: str = ""
    arrivals: int = 0  # pieces that came apart from each other
    text: str = ""
    done: bool = False
    error: str = ""  # how the connection failed
    event: dict[str, Any] = field(default_factory=dict)  # an error that was told within the stream

    def whole(self, tokens: int) -> bool:
        """Every token in order, and the end?"""
        return self.done and not self.error and self.text == "".join(f"t{index} " for index in range(tokens))


async def stream(session: aiohttp.ClientSession, port: int, **fields: Any) -> Stream:
    """One streamed chat to its end, whatever that is."""
    seen, raw = Stream(), b""
    body = {"model": "stub", "stream": True, **fields}
    try:
        async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as answer:
            seen.status, seen.backend = answer.status, answer.headers.get("X-Backend", "")
            async for piece in answer.content.iter_any():
                seen.arrivals += 1
                raw += piece
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as exc:
        seen.error = repr(exc)
    for line in raw.decode().split("\n"):
        if line == "data: [DONE]":
            seen.done = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            seen.event = event.get("error") or seen.event
            seen.text += "".join(choice["delta"].get("content", "") for choice in event.get("choices", []))
    return seen


def streams(port: int, count: int, **fields: Any) -> list[Stream]:
    """So many at the same time, each on its own connection."""

    async def all_of_them() -> list[Stream]:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session:
            return await asyncio.gather(*(stream(session, port, **fields) for _ in range(count)))

    return asyncio.run(all_of_them())


@contextlib.contextmanager
def load(port: int, clients: int, **fields: Any) -> Iterator[list[Stream]]:
    """Clients that ask again and again for the length of the block; the list has what all of them saw when it has ended."""
    seen: list[Stream] = []
    stop = threading.Event()

    async def one(session: aiohttp.ClientSession) -> None:
        while not stop.is_set():
            seen.append(await stream(session, port, **fields))

    async def all_of_them() -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session:
            await asyncio.gather(*(one(session) for _ in range(clients)))

    thread = threading.Thread(target=asyncio.run, args=(all_of_them(),))
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def in_background(seen: list[Any], gateway: Gateway, count: int, **fields: Any) -> threading.Thread:
    """Streams that go on while the test does something."""
    thread = threading.Thread(target=lambda: seen.extend(streams(gateway.port, count, **fields)))
    thread.start()
    until(lambda: sum(gateway.stub.stats["now"]) == count, 10, "all streams are at engines")
    return thread
