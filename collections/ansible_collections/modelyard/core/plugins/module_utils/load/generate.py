"""The project's own load generator: one level, in this process. Standard library; asyncio over raw sockets (wire.py).

It tells how many processor seconds it used itself (the caller measures): one process is the limit of it, and a level at which it
had no processor left says more about it than about the engine.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.load import wire

Address = Tuple[str, int]
#: Requests of a rate that may be open at once: more than any server serves, and fewer than the files a process may open.
OPEN_MOST = 900
#: After a failure a client waits, so that a dead server is not stormed.
BACK_OFF_S = 0.1
#: Of arbitrary, short and frequent words; a prompt is a random row of them, so that no prefix cache knows it.
TEXT = (
    "and the of to in is that it was for on are as with his they at be this from have or by one had not but what all were when "
    "we there can an your which their said if do will each about how up out them then she many some so these would other into "
    "has more her two like him see time could no make than first been its who now people my made over did down only way find use"
)
WORDS = TEXT.split()


class Level:
    """One level of a run, and what became of its requests.

    `wanted`: {kind, value, requests, seconds}; `shape`: as in plan/load_test.py; `words`: words of a prompt of the wanted length.
    """

    def __init__(
        self,
        wanted: Mapping[str, Any],
        shape: Mapping[str, Any],
        model: str,
        addresses: Sequence[Address],
        key: str,
        words: int,
        request_limit_s: float,
        tell: Callable[[int, int], None] = lambda _done, _failed: None,
    ) -> None:
        self.wanted, self.shape, self.model, self.key, self.words = wanted, shape, model, key, words
        self.addresses = list(addresses)
        self.request_limit_s = request_limit_s
        self.tell = tell
        self.replies: List[wire.Reply] = []
        self.failed = self.issued = 0
        self.open = dict.fromkeys(self.addresses, 0)
        self.idle: Dict[Address, List[wire.Wire]] = {address: [] for address in self.addresses}
        self.chance = random.Random(f"{shape['seed']} {wanted['kind']} {wanted['value']}")
        self.stopped = False
        self.began = self.ended = 0.0

    async def run(self) -> None:
        """To the end of the level."""
        loop = asyncio.get_running_loop()
        self.began = wire.clock()
        self.until = loop.time() + self.wanted["seconds"] if self.wanted["seconds"] else float("inf")
        try:
            if self.wanted["kind"] == "rate":
                await self._arrivals(self.wanted["value"])
            else:
                await asyncio.gather(*(self._client(number) for number in range(int(self.wanted["value"]))))
        finally:
            self.ended = max((reply.ended for reply in self.replies), default=wire.clock())
            for wires in self.idle.values():
                for one in wires:
                    one.close()

    def _more(self) -> bool:
        """May another request begin? It is counted then."""
        over = self.wanted["requests"] and self.issued >= self.wanted["requests"]
        if self.stopped or over or asyncio.get_running_loop().time() >= self.until:
            return False
        self.issued += 1
        return True

    async def _client(self, number: int) -> None:
        """One client; a user comes at any time within the longest pause, and pauses after each answer."""
        chance = random.Random(f"{self.shape['seed']} client {number}")
        pause = self.shape["pause_s"] if self.wanted["kind"] == "users" else []
        if pause:
            await asyncio.sleep(chance.uniform(0, pause[1]))
        while self._more():
            good = await self._one(self.issued)
            if pause:
                await asyncio.sleep(chance.uniform(*pause))
            elif not good:
                await asyncio.sleep(BACK_OFF_S)

    async def _arrivals(self, rate: float) -> None:
        """So many a second at random moments (a Poisson process), whether the earlier ones were answered or not."""
        loop = asyncio.get_running_loop()
        due, tasks = loop.time(), []
        while self._more():
            if sum(self.open.values()) >= OPEN_MOST:
                self._keep(_unsent(f"not sent: {OPEN_MOST} requests were open"))
            else:
                tasks.append(asyncio.ensure_future(self._one(self.issued)))
            due += self.chance.expovariate(rate)
            await asyncio.sleep(max(0.0, due - loop.time()))
        await asyncio.gather(*tasks)

    async def _one(self, number: int) -> bool:
        """One request, at the server with the fewest of ours."""
        address = min(self.addresses, key=lambda one: self.open[one])
        self.open[address] += 1
        try:
            reply = await self._asked(address, number)
        finally:
            self.open[address] -= 1
        self._keep(reply)
        return not reply.error

    async def _asked(self, address: Address, number: int) -> wire.Reply:
        raw = wire.request(address, body(self.model, self.shape, self.words, f"{self.wanted['value']} {number}"), self.key)
        spare = self.idle[address]
        began = wire.clock()
        while spare and not spare[-1].usable:
            spare.pop()
        try:
            used = spare.pop() if spare else await wire.connect(address)
        except ConnectionRefusedError:
            return _unsent("connection refused")
        except asyncio.TimeoutError:
            return _unsent("no connection")
        except OSError as exc:
            return _unsent(exc.strerror or type(exc).__name__)
        reply = await used.ask(raw, self.request_limit_s)
        reply.began = began  # the time to connect is part of what a user waits for
        if used.usable:
            spare.append(used)
        else:
            used.close()
        return reply

    def _keep(self, reply: wire.Reply) -> None:
        if not reply.error and not reply.marks:
            reply.error = "an answer without text"
        self.failed += bool(reply.error)
        self.replies.append(reply)
        self.tell(len(self.replies), self.failed)

    def result(self) -> Dict[str, Any]:
        """What judge/load/figures.py makes figures of: {seconds, unfinished, replies}."""
        return {
            "seconds": max(0.0, self.ended - self.began),
            "unfinished": self.issued - len(self.replies),
            "replies": [_told(reply) for reply in self.replies],
        }


def _unsent(why: str) -> wire.Reply:
    reply = wire.Reply()
    reply.ended, reply.error = wire.clock(), why
    return reply


def _told(reply: wire.Reply) -> Dict[str, Any]:
    """One reply as data: times in milliseconds since it was sent."""
    since = [round((mark - reply.began) * 1000, 3) for mark in reply.marks]
    return {
        "error": reply.error,
        "said": reply.said if reply.error else "",
        "backend": reply.backend,
        "ttft_ms": since[0] if since else None,
        "itl_ms": [round(after - before, 3) for before, after in zip(since, since[1:])],
        "e2e_ms": round((reply.ended - reply.began) * 1000, 3),
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens or len(since),
    }


def prompt(words: int, seed: str) -> str:
    """So many random words; the same for the same seed."""
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(words))


def body(model: str, shape: Mapping[str, Any], words: int, name: str) -> Dict[str, Any]:
    """The chat request of a shape; `name` tells it from the others of the run."""
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": prompt(words, f"{shape['seed']} {name}")}],
        "max_tokens": shape["output_tokens"],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {**asked, "ignore_eos": True} if shape["ignore_eos"] else asked
