"""More clients than a process may have open files: our own gateway refuses some, serves the others, and comes back."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway.clients import in_background, streams
from gateway.kinds import Gateway, Stub
from gateway.test_faults import chat as body
from gateway.test_faults import descriptors, in_flight, post, rest, status, wire
from harness import until

LIMIT = 100


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that may have LIMIT descriptors, with two engines that have room for all."""
    stub = Stub(2, 500)
    made = Gateway("modelyard", tmp_path, stub, timeout_s=20, idle_timeout_s=30)
    made.before = ["prlimit", f"--nofile={LIMIT}:{LIMIT}"]
    try:
        with made.running():
            yield made
    finally:
        stub.process.kill()
        stub.process.wait()


def cpu_s(gateway: Gateway) -> float:
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def said_of_descriptors(gateway: Gateway) -> list[str]:
    return [line for line in gateway.said().splitlines() if "descriptors" in line]


def recovered(gateway: Gateway) -> None:
    until(lambda: in_flight(gateway) == 0, 15, "nothing is in flight")
    until(lambda: descriptors(gateway) < LIMIT // 2, 15, "the descriptors are free again")
    assert {gateway.chat(max_tokens=2)[0] for _ in range(20)} == {200}
    assert gateway.process.poll() is None
    assert "Traceback" not in gateway.said() and "internal error" not in gateway.said()


def test_idle_connections_take_no_descriptor_that_requests_need(small: Gateway) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    held = [wire(small) for _ in range(300)]
    try:
        time.sleep(0.5)
        began, spent = time.monotonic(), cpu_s(small)
        # Who comes now is told, or closed without a word; nobody is left waiting.
        for _ in range(20):
            with contextlib.suppress(ConnectionError, TimeoutError), wire(small, post(body(max_tokens=1))) as one:
                one.settimeout(5)
                answer = rest(one)
                assert not answer or answer.startswith(b"HTTP/1.1 503 "), answer[:100]
                assert not answer or json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["reason"] == "out_of_resources"
        time.sleep(max(0.0, began + 3 - time.monotonic()))
        assert cpu_s(small) - spent < 1.5, "no busy loop"
        # Those that hold a connection are served all the same.
        served = 0
        for one in held[:20]:
            one.sendall(post(body(max_tokens=1)))
            one.settimeout(5)
            served += one.recv(100).startswith(b"HTTP/1.1 200 ")
        assert served == 20
        assert status(small)["gateway"]["totals"]["refused_connections"] > 200
        assert len(said_of_descriptors(small)) == 1, said_of_descriptors(small)
    finally:
        for one in held:
            one.close()
    recovered(small)
    until(lambda: len(said_of_descriptors(small)) == 2, 5, "it says that it takes connections again")


def test_streams_beyond_the_limit_are_refused_and_the_others_are_whole(small: Gateway) -> None:
    held: list = []
    thread = in_background(held, small, 20, max_tokens=100, x_ms=40)
    seen = streams(small.port, 120, max_tokens=3, x_ms=300)
    whole = [one for one in seen if one.whole(3)]
    refused = [one for one in seen if one.status == 503 or one.error]
    assert len(whole) + len(refused) == 120 and whole and refused
    thread.join()
    assert [one.whole(100) for one in held] == [True] * 20, "what runs is not touched"
    recovered(small)


def test_a_client_that_is_refused_reads_why(small: Gateway) -> None:
    held = [wire(small) for _ in range(LIMIT)]
    time.sleep(1.5)  # those that were turned away with an answer have gone, so there is room to tell the next one
    with wire(small) as one:
        time.sleep(0.2)
        with contextlib.suppress(ConnectionError):
            one.sendall(post(body(max_tokens=1)))
        head = rest(one).partition(b"\r\n\r\n")[0]
    for other in held:
        other.close()
    assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: " in head and b"\r\nX-Request-Id: " in head
    recovered(small)
