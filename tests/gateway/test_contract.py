"""What a client may rely on, whichever kind of gateway answers. What a kind lacks stands in conftest.LACKS."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
import time
from typing import Any

import pytest
from gateway.clients import streams
from gateway.conftest import lacks
from gateway.kinds import Gateway, request
from harness import until

MB = 2**20


def raw(port: int, text: bytes, enough: bytes = b"\0") -> bytes:
    """Send these bytes, and read until the gateway closes, or `enough` has come."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as wire:
        wire.sendall(text)
        seen = b""
        with contextlib.suppress(OSError):
            while enough not in seen and (part := wire.recv(65536)):
                seen += part
        return seen


def is_error(status: int, headers: dict[str, str], body: bytes, wanted: set[int]) -> None:
    """The shape that clients of OpenAI's API can read, with an id."""
    assert status in wanted, body
    assert headers["content-type"].startswith("application/json")
    assert headers["x-request-id"]
    error = json.loads(body)["error"]
    assert error["message"] and error["type"] and error["code"] == status


def test_request_and_reply_pass_as_they_are(gateway: Gateway) -> None:
    secret = {"Authorization": "Bearer sk-1", "X-Own": "a b", "Connection": "x-hop", "X-Hop": "1"}
    status, headers, body = gateway.chat(headers=secret, max_tokens=3, x_headers=True, x_text='ü"\\')
    answer = json.loads(body)
    sent = {"model": "stub", "max_tokens": 3, "x_headers": True, "x_text": 'ü"\\'}
    head = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in answer["x_request"]["head"][1:]}
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == 'ü"\\' * 3
    assert answer["x_request"]["head"][0] == "POST /v1/chat/completions HTTP/1.1"
    assert answer["x_request"]["sha256"] == hashlib.sha256(json.dumps(sent).encode()).hexdigest()
    assert (head["authorization"], head["x-own"]) == ("Bearer sk-1", "a b")
    assert head["host"] == f"127.0.0.1:{gateway.port}"
    assert head["x-forwarded-for"] == "127.0.0.1"
    assert head["x-request-id"] == headers["x-request-id"]
    assert ("x-hop" in head) == lacks(gateway, "listed headers")
    assert headers["x-backend"] in gateway.names


def test_backend_is_the_one_that_answered(gateway: Gateway) -> None:
    for _ in range(4):
        before = gateway.stub.stats["count"]
        name = gateway.chat(max_tokens=1, x_headers={"X-Backend": "forged", "X-Request-Id": "forged"})[1]["x-backend"]
        after = gateway.stub.stats["count"]
        assert [name] == [gateway.names[i] for i in range(4) if after[i] != before[i]]


@pytest.mark.parametrize("given, kept", [("abc-123", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False)])
def test_request_id_is_kept_when_sane(gateway: Gateway, given: str, kept: bool) -> None:
    found = gateway.chat({"X-Request-Id": given}, max_tokens=1)[1]["x-request-id"]
    assert (found == given) == kept
    assert 1 <= len(found) <= 128 and found.isascii() and " " not in found


def test_errors_of_engines_pass_and_count_for_nothing(gateway: Gateway) -> None:
    for status in (400, 404, 422, 429):
        for _ in range(8):
            seen, headers, body = gateway.chat(x_status=status, x_message="too long")
            assert (seen, json.loads(body)["error"]["message"]) == (status, "too long")
            assert headers["x-backend"] in gateway.names
    assert gateway.used() == set(gateway.names)


def test_models_come_from_an_engine(gateway: Gateway) -> None:
    status, _, body = request(gateway.port, "GET", "/v1/models")
    assert status == 200
    assert json.loads(body)["data"][0]["id"] == "stub"


def test_the_admin_side_is_not_on_the_port_of_clients(gateway: Gateway) -> None:
    for path in ("/gateway/status", "/gateway/drain?backend=stub/0"):
        is_error(*request(gateway.port, "POST", path, b""), wanted={404})
    assert gateway.used() == set(gateway.names)


def test_bodies_up_to_the_limit_pass_whole(gateway: Gateway) -> None:
    body = b'{"model": "stub", "max_tokens": 1, "x_headers": true, "messages": "' + b"x" * (4 * MB - 1000) + b'"}'
    for headers in ({}, {"Transfer-Encoding": "chunked"}):
        data = iter([body[: 3 * MB], body[3 * MB :]]) if headers else body
        status, _, answer = request(gateway.port, "POST", "/v1/chat/completions", data, headers)
        assert status == 200
        assert json.loads(answer)["x_request"]["sha256"] == hashlib.sha256(body).hexdigest()


def test_larger_bodies_are_refused_before_they_come(gateway: Gateway) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (4 * MB + 1)
    answer = raw(gateway.port, head + b"{", enough=b"}}")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == 413
    assert sum(gateway.stub.stats["count"]) == 0


def test_chunked_bodies_are_counted(gateway: Gateway) -> None:
    pieces = iter([b" " * MB] * 6 + [b"{}"])
    try:
        status = request(gateway.port, "POST", "/v1/chat/completions", pieces, {"Transfer-Encoding": "chunked"})[0]
    except OSError:
        status = 413  # the client was still sending when it was refused
    assert (status == 413) != lacks(gateway, "chunked limit")


@pytest.mark.parametrize("text", [b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_request_is_refused(gateway: Gateway, text: bytes) -> None:
    answer = raw(gateway.port, text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    if lacks(gateway, "early errors"):
        assert body.startswith(b"<html>")
    else:
        assert json.loads(body)["error"]["code"] == 400
        assert b"x-request-id" in head.lower()


def test_two_lengths_never_reach_an_engine(gateway: Gateway) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    for trick in (b"Content-Length: 3\r\nContent-Length: 5\r\n", b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"):
        answer = raw(gateway.port, head + trick + b"\r\n0\r\n\r\nGET /echo HTTP/1.1\r\nHost: smuggled\r\n\r\n")
        assert b"smuggled" not in answer
    assert sum(gateway.stub.stats["count"]) <= 1


def test_requests_spread_evenly(gateway: Gateway) -> None:
    for _ in range(8):
        gateway.chat(max_tokens=1)
    assert gateway.stub.stats["count"] == [2, 2, 2, 2]


@pytest.mark.parametrize("clients, most", [(16, 4), (32, 8), (30, 8)])
def test_no_engine_gets_more_than_its_share(gateway: Gateway, clients: int, most: int) -> None:
    seen = streams(gateway.port, clients, max_tokens=10, x_ms=20)
    assert all(one.whole(10) for one in seen)
    assert max(gateway.stub.stats["peak"]) <= most


def test_the_short_ones_do_not_wait_for_the_long(gateway: Gateway) -> None:
    holding = threading.Thread(target=streams, args=(gateway.port, 3), kwargs={"max_tokens": 30, "x_ms": 30})
    holding.start()
    until(lambda: sum(gateway.stub.stats["now"]) == 3, 10, "three engines are busy")
    free = gateway.stub.stats["now"].index(0)
    assert gateway.used(4) == {gateway.names[free]}
    holding.join()


def test_an_engine_is_counted_before_the_body_has_come(gateway: Gateway) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc"
    wires = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(4)]
    try:
        for wire in wires:
            wire.sendall(head)
        until(lambda: gateway.stub.stats["now"] == [1, 1, 1, 1], 10, "four slow senders are at four engines")
    finally:
        for wire in wires:
            wire.close()
    until(lambda: gateway.stub.stats["now"] == [0, 0, 0, 0], 10, "their engines are free again")


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_goes_frees_its_engine(gateway: Gateway, streamed: bool) -> None:
    body = json.dumps({"model": "stub", "max_tokens": 400, "x_ms": 50, "stream": streamed}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", gateway.port)) as wire:
        wire.sendall(head + body)
        until(lambda: sum(gateway.stub.stats["now"]) == 1, 10, "an engine is busy")
        if streamed:
            assert wire.recv(100)
    until(lambda: sum(gateway.stub.stats["aborted"]) == 1, 10, "the engine has been told")


def test_tokens_come_one_by_one_and_at_once(gateway: Gateway) -> None:
    wanted = {"max_tokens": 25, "x_ms": 40}
    direct, through = streams(gateway.stub.base, 1, **wanted)[0], streams(gateway.port, 1, **wanted)[0]
    assert direct.whole(25) and through.whole(25)
    # Clumps would make fewer, a gateway that cuts events apart more.
    assert 0.85 * direct.arrivals <= through.arrivals <= 1.15 * direct.arrivals + 1


def test_the_first_token_does_not_wait_for_the_second(gateway: Gateway) -> None:
    body = b'{"model": "stub", "max_tokens": 2, "x_hang": 1, "stream": true}'
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=2) as wire:
        wire.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        seen = b""
        while b"t0 " not in seen:
            seen += wire.recv(65536)


def test_a_silent_engine_is_a_504(gateway: Gateway) -> None:
    began = time.monotonic()
    is_error(*gateway.chat(x_hang=0), wanted={504})
    assert time.monotonic() - began >= gateway.spec["timeout_s"] * 0.9


@pytest.mark.parametrize("fault", ["x_die_after", "x_close_early", "x_hang", "x_bad_chunk"])
def test_a_reply_that_breaks_off_never_looks_whole(gateway: Gateway, fault: str) -> None:
    fields: dict[str, Any] = {"max_tokens": 9, "x_ms": 20, fault: 4}
    seen = streams(gateway.port, 1, **fields)[0]
    assert seen.status == 200 and not seen.done
    assert "t0 t1 t2 " in seen.text
    if lacks(gateway, "error event"):
        assert seen.error and not seen.event
    else:
        assert seen.event["message"] and not seen.error


@pytest.mark.parametrize("fault", ["x_die_after", "x_close_early"])
def test_a_reply_that_never_begins_is_a_502(gateway: Gateway, fault: str) -> None:
    is_error(*gateway.chat(max_tokens=9, **{fault: 0}), wanted={502})
    assert sum(gateway.stub.stats["count"]) == 1  # it may have been worked on: not sent again
