"""The contract while something changes: engines that fail and come back, drain, reload; and the log of it all."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import control
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from gateway.clients import in_background, load
from gateway.conftest import lacks
from gateway.kinds import Gateway, request
from harness import until

OTHERS = {"stub/0", "stub/1", "stub/3"}


def test_an_engine_whose_health_fails_gets_nothing(gateway: Gateway) -> None:
    gateway.stub.set(2, health="503")
    if lacks(gateway, "active health"):
        time.sleep(2)
        assert gateway.used() == set(gateway.names)
        return
    until(lambda: gateway.used() == OTHERS, 10, "the sick engine is out")
    gateway.stub.set(2, health="200")
    until(lambda: gateway.used() == set(gateway.names), 10, "it is in again")


def test_an_engine_that_does_not_listen_costs_no_request(gateway: Gateway) -> None:
    gateway.stub.set(2, mode="refuse")
    answers = [gateway.chat(max_tokens=1) for _ in range(24)]
    assert [status for status, _, _ in answers] == [200] * 24
    assert {headers["x-backend"] for _, headers, _ in answers} == OTHERS
    gateway.stub.set(2, mode="ok")
    until(lambda: gateway.used() == set(gateway.names), 15, "it is in again")


def test_an_engine_that_fails_fast_does_not_draw_requests(gateway: Gateway) -> None:
    gateway.stub.set(2, mode="fast500", health="503")
    statuses = [gateway.chat(max_tokens=1)[0] for _ in range(40)]
    failed = statuses.count(500)
    if lacks(gateway, "5xx"):
        assert failed == 10  # every fourth, as for an engine that is well
    else:
        assert 1 <= failed <= gateway.spec["eject"]["server_errors"]
        assert statuses[-20:] == [200] * 20


def test_a_refusal_goes_to_another_engine(gateway: Gateway) -> None:
    gateway.stub.set(2, mode="fast503")
    statuses = [gateway.chat(max_tokens=1)[0] for _ in range(8)]
    if lacks(gateway, "refusal elsewhere"):
        assert set(statuses) == {200, 503}
    else:
        assert statuses == [200] * 8


def test_a_killed_engine_costs_its_own_streams_and_no_other(gateway: Gateway) -> None:
    seen: list[Any] = []
    thread = in_background(seen, gateway, 32, max_tokens=30, x_ms=50)
    # The stand-ins have four slots each: half of the streams wait in front of an engine, and have got no byte.
    gateway.stub.set(2, mode="kill")
    thread.join()
    assert gateway.stub.stats["aborted"][2] == 8
    lost = [one for one in seen if not one.whole(30)]
    assert len(lost) <= 8
    assert {one.backend for one in lost} <= {"stub/2"}
    assert all(one.status in (200, 502) for one in lost)
    assert not any(one.done for one in lost)
    assert gateway.used(12) == OTHERS


def test_without_any_engine_every_answer_says_so(gateway: Gateway) -> None:
    gateway.stub.set(mode="kill")
    for _ in range(4):
        status, headers, body = gateway.chat(max_tokens=1)
        assert status in (502, 503)
        assert headers["x-request-id"]
        assert json.loads(body)["error"]["code"] == status
    status = request(gateway.port, "GET", "/v1/models")[0]
    assert status in (502, 503)


def test_drain_takes_out_one_engine_and_loses_nothing(gateway: Gateway) -> None:
    index, name = 1, "stub/1"
    with load(gateway.port, 12, max_tokens=20, x_ms=20) as seen:
        until(lambda: gateway.stub.stats["now"][index], 10, "the engine is busy")
        assert control.in_flight(gateway.folder, gateway.spec, name) > 0
        said = control.drain(gateway.folder, gateway.spec, name, wait_s=20)
        assert said == {"draining": True, "in_flight": 0}
        assert gateway.stub.stats["now"][index] == 0
        taken = gateway.stub.stats["count"][index]
        gateway.stub.set(index, mode="kill")
        until(lambda: sum(gateway.stub.stats["done"]) > 60, 20, "the others work on")
        assert gateway.stub.stats["count"][index] == taken
        gateway.stub.set(index, mode="ok")
        until(lambda: request(gateway.stub.base + index, "GET", "/health")[0] == 200, 5, "it is back")
        shown = {one["name"]: one["draining"] for one in control.status(gateway.folder, gateway.spec)["backends"]}
        assert shown == {one: one == name for one in gateway.names}
        assert control.undrain(gateway.folder, gateway.spec, name)["draining"] is False
        until(lambda: gateway.stub.stats["count"][index] > taken, 15, "it gets requests again")
    assert len(seen) > 60
    assert [one for one in seen if not one.whole(20)] == []


def test_a_drain_that_is_not_over_says_how_many_are_left(gateway: Gateway) -> None:
    seen: list[Any] = []
    thread = in_background(seen, gateway, 8, max_tokens=100, x_ms=40)
    try:
        assert control.drain(gateway.folder, gateway.spec, "stub/3", wait_s=0.3) == {"draining": True, "in_flight": 2}
        # Whoever has been in flight since before a reload counts as well.
        control.reload(gateway.folder, gateway.spec)
        assert control.in_flight(gateway.folder, gateway.spec, "stub/3") == 2
        assert gateway.used() == {"stub/0", "stub/1", "stub/2"}
    finally:
        control.undrain(gateway.folder, gateway.spec, "stub/3")
        thread.join()
    assert all(one.whole(100) for one in seen)


def test_unknown_engines_are_named(gateway: Gateway) -> None:
    with pytest.raises(GatewayError, match=r"stub/9.*stub/0"):
        control.drain(gateway.folder, gateway.spec, "stub/9")


def test_a_reload_takes_over_and_loses_nothing(gateway: Gateway) -> None:
    everybody = gateway.spec["backends"]
    with load(gateway.port, 12, max_tokens=20, x_ms=20) as seen:
        try:
            gateway.spec["backends"] = everybody[:3]
            gateway.render()
            control.reload(gateway.folder, gateway.spec)
            until(lambda: gateway.stub.stats["now"][3] == 0, 15, "the one that was taken out has nothing left")
            assert gateway.stub.stats["now"][3] == 0 and "stub/3" not in gateway.used()
        finally:
            gateway.spec["backends"] = everybody
            gateway.render()
            control.reload(gateway.folder, gateway.spec)
        until(lambda: gateway.stub.stats["now"][3] > 0, 15, "it is in again")
    assert [one for one in seen if not one.whole(20)] == []


def test_a_damaged_configuration_changes_nothing(gateway: Gateway) -> None:
    path = gateway.folder / control.CONFIG[gateway.kind]
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(str(gateway.port), "port"), encoding="utf-8")
    try:
        assert "port" in control.check_config(gateway.folder, gateway.spec)
        with pytest.raises(GatewayError, match="not taken over"):
            control.reload(gateway.folder, gateway.spec)
        assert gateway.used() == set(gateway.names)
    finally:
        path.write_text(whole, encoding="utf-8")


def test_every_request_is_a_line(gateway: Gateway) -> None:
    def line(name: str) -> dict[str, Any]:
        until(lambda: any(one.get("id") == name for one in gateway.log()), 10, f"{name} is in the log")
        return next(one for one in gateway.log() if one.get("id") == name)

    first = gateway.chat({"X-Request-Id": "line-1"}, max_tokens=5, x_ms=20, x_first_ms=100)
    one = line("line-1")
    assert one["backend"] == first[1]["x-backend"]
    assert (one["status"], one["path"], one["client"], one["tries"]) == (200, "/v1/chat/completions", "127.0.0.1", 1)
    assert 0.19 <= one["duration_s"] < 5 and 0.1 <= one["ttft_s"] <= one["duration_s"] + 0.01 and one["queue_s"] < 1
    assert one["bytes_in"] > 50 and one["bytes_out"] > 200
    assert not one["truncated"] and one["client_gone"] is False
    assert abs(time.time() - time.mktime(time.strptime(one["time"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone) < 30

    gateway.chat({"X-Request-Id": 'line-2 "\\'[:6] + '"\\'}, x_status=400)
    assert line('line-2"\\')["status"] == 400

    gateway.chat({"X-Request-Id": "line-3"}, max_tokens=9, x_die_after=0)
    assert line("line-3")["status"] == 502

    # Whether the client sees it as an error is the matter of another test.
    with contextlib.suppress(http.client.IncompleteRead):
        gateway.chat({"X-Request-Id": "line-4"}, max_tokens=9, x_ms=20, x_die_after=4, stream=True)
    broken = line("line-4")
    if lacks(gateway, "truncated"):
        assert broken["truncated"] is None
    else:
        assert broken["truncated"] is True and broken["error"]
    assert broken["client_gone"] is False

    with socket.create_connection(("127.0.0.1", gateway.port)) as wire:
        body = b'{"model": "stub", "max_tokens": 100, "x_ms": 40, "stream": true}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Request-Id: line-5\r\nContent-Length: %d\r\n\r\n" % len(body)
        wire.sendall(head + body)
        assert wire.recv(100)
    assert line("line-5")["client_gone"] is True
