"""Damaged requests and damaged replies, made from a seed: the gateway neither falls over nor keeps anything of them."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway.kinds import Gateway, request
from gateway.test_faults import chat, descriptors, in_flight, post, rest, wire
from harness import free_port, until

#: More rounds and other seeds: MODELYARD_FUZZ="5000 17" in the environment.
ROUNDS, SEED = map(int, os.environ.get("MODELYARD_FUZZ", "240 5").split())
REQUESTS = [
    post(chat(max_tokens=2)),
    post(chat(max_tokens=2, stream=True)),
    post(chat(), b"Expect: 100-continue\r\nConnection: close, x-a\r\nX-A: b\r\n"),
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
]
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REPLIES = [
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    CHUNKED + b'f\r\ndata: {"a": 1}\n\r\n2\r\n\n\n\r\n0\r\n\r\n',
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nrubbish",
]
PIECES = [
    b"\r\n",
    b"\n",
    b"\0",
    b" ",
    b":",
    b"chunked",
    b"-1",
    b"99999999999999999999",
    b"\xff\xfe",
    b"Content-Length: 7\r\n",
    b"0\r\n\r\n",
]


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The data with up to four changes of one kind or another."""
    changed = bytearray(data)
    for _ in range(chance.randrange(5)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            changed[at:at] = chance.choice(PIECES)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 20)]
        elif kind == 2:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        else:
            changed[at:at] = changed[max(0, at - 30) : at]
    return bytes(changed)


class Liar:
    """A server that answers /health well and everything else with what `reply` gives. Then it hangs up, or not."""

    def __init__(self, reply: Callable[[], tuple[bytes, bool]]) -> None:
        self._reply = reply
        self.port = free_port(1)
        self._server = socket.create_server(("127.0.0.1", self.port), backlog=200)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._server.accept()[0],), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError), one:
            one.settimeout(5)
            while data := one.recv(65536):
                if data.startswith(b"GET /health"):
                    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    continue
                answer, stays = self._reply()
                cut = len(answer) // 2
                one.sendall(answer[:cut])
                time.sleep(0.001)
                one.sendall(answer[cut:])
                if not stays:
                    return

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def lies(tmp_path: Path) -> Iterator[tuple[Gateway, Liar]]:
    """A gateway before such a server, with `liar.chance` to damage what it says."""
    chance = random.Random(SEED)
    liar = Liar(lambda: (damaged(chance, chance.choice(REPLIES)), chance.random() < 0.5))

    class Stub:
        count, base = 1, liar.port

    stub: Any = Stub()
    quick = {"timeout_s": 0.3, "header_timeout_s": 0.3, "eject": {"server_errors": 1000, "for_s": 0.1}}
    made = Gateway("modelyard", tmp_path, stub, **quick)
    made.serves = lambda: well(made)  # type: ignore[method-assign]
    with made.running():
        yield made, liar
    liar.close()


def well(gateway: Gateway) -> bool:
    with contextlib.suppress(OSError):
        return request(gateway.port, "GET", "/health")[0] == 200
    return False


def at_once(work: Callable[[random.Random], None], rounds: int) -> None:
    """The work so many times, eight at a time, each with chances of its own."""
    wrong: list[BaseException] = []

    def some(seed: int) -> None:
        chance = random.Random(SEED * 1000 + seed)
        try:
            for _ in range(rounds // 8):
                work(chance)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=some, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def nothing_is_left(gateway: Gateway, before: int) -> None:
    until(lambda: in_flight(gateway) == 0, 15, "nothing is in flight")
    until(lambda: descriptors(gateway) <= before + 2, 15, f"no descriptor is left: {before} before")
    assert well(gateway)
    assert "internal error" not in gateway.said() and "Traceback" not in gateway.said()


def test_damaged_requests_and_replies(lies: tuple[Gateway, Liar]) -> None:
    gateway, _ = lies
    before = descriptors(gateway)

    def one(chance: random.Random) -> None:
        made = wire(gateway)
        with contextlib.suppress(ConnectionError), made:
            data = damaged(chance, chance.choice(REQUESTS)) + (
                damaged(chance, chance.choice(REQUESTS)) if chance.random() < 0.3 else b""
            )
            cut = chance.randrange(len(data) + 1)
            made.sendall(data[:cut])
            made.sendall(data[cut:])
            if chance.random() < 0.3:
                return  # gone without a word
            made.shutdown(socket.SHUT_WR) if chance.random() < 0.3 else made.settimeout(3)
            with contextlib.suppress(TimeoutError):
                answer = rest(made)
                assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:200]

    at_once(one, ROUNDS)
    nothing_is_left(gateway, before)


def test_good_requests_before_damaged_replies_are_always_answered(lies: tuple[Gateway, Liar]) -> None:
    """A client that asks well gets a whole reply or sees that it is none; it never waits for ever."""
    gateway, _ = lies
    before = descriptors(gateway)

    def one(chance: random.Random) -> None:
        with wire(gateway, post(chat(), b"Connection: close\r\n")) as made:
            made.settimeout(10)
            answer = rest(made)
            assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:200]

    at_once(one, ROUNDS)
    nothing_is_left(gateway, before)
