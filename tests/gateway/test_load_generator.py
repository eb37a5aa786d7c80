"""Our load generator against engines that work, refuse, hang, break off and die, and through our gateway."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge.load import figures
from ansible_collections.modelyard.core.plugins.module_utils.load import generate, generators, wire
from gateway.kinds import Gateway, Stub
from harness import until
from hypothesis import given
from hypothesis import strategies as st

SHAPE: dict[str, Any] = {"seed": 1, "output_tokens": 10, "input_tokens": 20, "ignore_eos": True, "pause_s": [0.05, 0.1]}
SLOTS, ENGINES = 4, 2


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    made = Stub(ENGINES, SLOTS)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture(autouse=True)
def idle(stub: Stub) -> Iterator[None]:
    stub.set(mode="ok", health="200")
    yield
    stub.set(mode="ok", health="200")
    until(lambda: not any(stub.stats["now"]), 15, "all engines are idle")
    stub.tell("/reset")


def level(ports: list[int], kind: str, value: float, requests: int = 0, seconds: float = 0.0, **how: Any) -> generate.Level:
    wanted = {"kind": kind, "value": value, "requests": requests, "seconds": seconds}
    addresses = [("127.0.0.1", port) for port in ports]
    return generate.Level(wanted, {**SHAPE, **how}, "stub", addresses, "sk-x", 20, how.get("limit_s", 5.0))


def loaded(made: generate.Level) -> dict[str, Any]:
    asyncio.run(asyncio.wait_for(made.run(), 60))
    return figures.of_replies(made.wanted, made.result())


@pytest.fixture
def more(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fields that every request carries beside its own: how the stub is to behave."""
    fields: dict[str, Any] = {}
    usual = generate.body
    monkeypatch.setattr(generate, "body", lambda *words: {**usual(*words), **fields})
    return fields


def test_clients_ask_one_after_the_other_and_fill_the_slots(stub: Stub, more: dict[str, Any]) -> None:
    more["x_ms"] = 10
    found = loaded(level([stub.base, stub.base + 1], "concurrency", 8, 80))
    assert (found["requests"], found["completed"], found["errors"]) == (80, 80, {})
    assert stub.stats["peak"] == [SLOTS, SLOTS]
    assert max(stub.stats["connections"]) <= SLOTS + 1
    assert found["output_tokens_per_s"] == pytest.approx(10 * found["requests_per_s"], rel=0.01)
    # Ten tokens 10 ms apart, and never more requests than slots.
    assert 90 <= found["e2e_ms"]["p50"] < 300
    assert 5 < found["itl_ms"]["p50"] < 40
    assert found["ttft_ms"]["p50"] < found["e2e_ms"]["p50"] / 2


def test_a_rate_is_kept_whether_requests_are_answered_or_not(stub: Stub, more: dict[str, Any]) -> None:
    more["x_ms"] = 30
    began = time.monotonic()
    found = loaded(level([stub.base], "rate", 40, 60))
    assert found["completed"] == 60
    assert 0.6 < time.monotonic() - began < 8
    assert stub.stats["peak"][0] > SLOTS  # they do not wait for each other


def test_users_pause(stub: Stub) -> None:
    found = loaded(level([stub.base], "users", 5, seconds=2.0))
    # A pause of 75 ms on average and an answer of next to nothing: some 25 requests each.
    assert 40 < found["completed"] < 200
    assert found["failed"] == 0


def test_through_the_gateway_it_is_told_which_instance_answered(stub: Stub, tmp_path: Path, more: dict[str, Any]) -> None:
    more["x_ms"] = 5
    with Gateway("modelyard", tmp_path / "g", stub).running() as made:
        found = loaded(level([made.port], "concurrency", 8, 80))
    assert (found["completed"], found["errors"]) == (80, {})
    assert set(found["by_backend"]) == {"0", "1"}
    assert min(found["by_backend"].values()) >= 25


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"x_status": 503}, "HTTP 503"),
        ({"x_close_early": 3}, "cut off"),
        ({"x_die_after": 3}, "cut off"),
        ({"x_bad_chunk": 3}, "a reply that is no HTTP"),
        ({"x_hang": 3}, "not ended within 0.5 s"),
        ({"stream": False}, "a stream without an end"),
    ],
)
def test_what_is_no_whole_answer_is_named(stub: Stub, more: dict[str, Any], fields: dict[str, Any], error: str) -> None:
    more.update(fields)
    found = loaded(level([stub.base], "concurrency", 2, 6, limit_s=0.5))
    assert (found["completed"], found["failed"]) == (0, 6)
    assert set(found["errors"]) == {error}
    if fields.get("x_status"):
        assert "stub says 503" in found["error_example"]


def test_a_dead_server_is_not_stormed(stub: Stub) -> None:
    stub.set(0, mode="refuse")
    began = time.monotonic()
    found = loaded(level([stub.base], "concurrency", 2, 10))
    assert found["errors"] == {"connection refused": 10}
    assert time.monotonic() - began > 4 * generate.BACK_OFF_S


def test_one_that_dies_in_the_middle_costs_its_own_requests_only(stub: Stub, more: dict[str, Any], tmp_path: Path) -> None:
    more["x_ms"] = 10
    own = generators.Own(tmp_path, level([stub.base, stub.base + 1], "concurrency", 8, seconds=3.0))
    until(lambda: own.done()[0] > 8, 20, "some are answered")
    stub.set(1, mode="kill")
    until(own.ended, 20, "it has ended")
    found = own.result()
    assert found["completed"] > 20
    assert 1 <= found["errors"].get("cut off", 0) <= SLOTS
    assert set(found["errors"]) <= {"cut off", "connection refused"}
    assert not list(tmp_path.iterdir())


def test_one_that_is_stopped_writes_down_what_it_has_and_is_gone(stub: Stub, more: dict[str, Any], tmp_path: Path) -> None:
    more["x_ms"] = 10
    own = generators.Own(tmp_path, level([stub.base], "concurrency", 4, 100000))
    until(lambda: own.done()[0] > 8, 20, "some are answered")
    own.stop()
    assert own.code == 0
    with pytest.raises(ProcessLookupError):
        os.kill(own.pid, 0)
    found = own.result()
    assert found["completed"] > 8
    assert found["errors"] == {"not ended when the level was ended": 4}


def test_one_that_is_killed_leaves_no_result_and_says_so(stub: Stub, more: dict[str, Any], tmp_path: Path) -> None:
    more["x_ms"] = 10
    own = generators.Own(tmp_path, level([stub.base], "concurrency", 4, 100000))
    until(lambda: own.done()[0] > 0, 20, "one is answered")
    os.kill(own.pid, 9)
    until(own.ended, 10, "it has ended")
    assert own.result() == {}
    assert own.said() == "the load generator ended with signal 9 (is the disk full?)"


def test_a_key_that_no_header_can_carry_is_not_in_the_message() -> None:
    with pytest.raises(ValueError, match="no HTTP header can carry") as caught:
        wire.request(("127.0.0.1", 1), {}, "sk-\nsecret")
    assert "secret" not in str(caught.value)


# -- the reader of replies, byte by byte ----------------------------------------------------------------------------------


def chunked(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=20))
def test_a_body_comes_whole_however_it_is_cut(parts: list[bytes], cuts: list[int]) -> None:
    data, body, found = chunked(parts), wire.Body({b"transfer-encoding": b"chunked"}), b""
    for size in [*cuts, len(data)]:
        piece, data = data[:size], data[size:]
        found += body.feed(piece)
    assert found == b"".join(parts)
    assert body.over
    assert body.data == b""


@given(st.binary(max_size=200), st.integers(1, 50))
def test_no_bytes_make_the_reader_fail(data: bytes, size: int) -> None:
    async def fed() -> wire.Reply:
        one = wire.Wire()
        one.connection_made(Nothing())
        asked = asyncio.ensure_future(one.ask(b"", 5))
        await asyncio.sleep(0)
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" if size % 2 else b""
        for at in range(0, len(head + data), size):
            one.data_received((head + data)[at : at + size])
        one.connection_lost(None)
        return await asked

    reply = asyncio.run(fed())
    assert reply.error or reply.status == 200


class Nothing:
    """A transport that goes nowhere."""

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass
