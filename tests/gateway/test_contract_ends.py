"""The contract at the end of a gateway and at its limits: each test has a gateway of its own."""

from __future__ import annotations

import errno
import json
import signal
import socket
import threading
import time
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import control
from gateway.clients import in_background, streams
from gateway.conftest import lacks, with_kinds
from gateway.kinds import Gateway, request
from harness import until


@pytest.mark.parametrize("fresh", with_kinds({}), indirect=True)
def test_the_end_waits_for_requests(fresh: Gateway) -> None:
    seen: list[Any] = []
    thread = in_background(seen, fresh, 8, max_tokens=40, x_ms=40)
    fresh.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    with pytest.raises(OSError):
        fresh.chat(max_tokens=1)
    thread.join()
    assert all(one.whole(40) for one in seen)
    assert fresh.process.wait(10) == 0
    assert len([one for one in fresh.log() if one["path"] == "/v1/chat/completions"]) >= 8


@pytest.mark.parametrize("fresh", with_kinds({}), indirect=True)
def test_a_second_order_ends_it_at_once(fresh: Gateway) -> None:
    seen: list[Any] = []
    thread = in_background(seen, fresh, 2, max_tokens=400, x_ms=40)
    fresh.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    fresh.process.send_signal(signal.SIGTERM)
    assert fresh.process.wait(10) == 0
    thread.join()
    assert not any(one.done for one in seen)


@pytest.mark.parametrize("fresh", with_kinds({}), indirect=True)
def test_a_restart_does_not_forget_who_is_drained(fresh: Gateway) -> None:
    control.drain(fresh.folder, fresh.spec, "stub/1")
    fresh.process.send_signal(signal.SIGTERM)
    assert fresh.process.wait(10) == 0
    with fresh.started():
        assert fresh.used() == {"stub/0"}
        control.undrain(fresh.folder, fresh.spec, "stub/1")
        until(lambda: fresh.used() == {"stub/0", "stub/1"}, 10, "both are in use")


@pytest.mark.parametrize("fresh", with_kinds({}), indirect=True)
def test_nothing_listens_when_it_was_killed(fresh: Gateway) -> None:
    def refused() -> bool:
        with socket.socket() as wire:
            return wire.connect_ex(("127.0.0.1", fresh.port)) == errno.ECONNREFUSED

    assert not refused()
    fresh.process.kill()
    until(refused, 10, "the port is free")


LIMITED = {"per_backend_limit": 2, "queue_size": 8, "queue_timeout_s": 20}


@pytest.mark.parametrize("fresh", with_kinds(LIMITED), indirect=True)
def test_a_limit_for_each_engine_holds(fresh: Gateway) -> None:
    seen = streams(fresh.port, 10, max_tokens=10, x_ms=20)
    assert max(fresh.stub.stats["peak"]) <= 2
    fine = [one for one in seen if one.whole(10)]
    refused = [one for one in seen if one.status in (429, 502, 503)]
    assert len(fine) + len(refused) == 10
    assert (len(fine) == 10) != lacks(fresh, "queue")


@pytest.mark.parametrize("fresh", with_kinds({"per_backend_limit": 2}), indirect=True)
def test_without_a_queue_too_much_is_refused(fresh: Gateway) -> None:
    seen: list[Any] = []
    thread = in_background(seen, fresh, 4, max_tokens=40, x_ms=40)
    status, headers, _ = fresh.chat(max_tokens=1)
    assert status == (502 if lacks(fresh, "queue") else 429)
    assert "retry-after" in headers or lacks(fresh, "queue")
    thread.join()
    assert all(one.whole(40) for one in seen)
    assert max(fresh.stub.stats["peak"]) == 2


@pytest.mark.parametrize("fresh", with_kinds(LIMITED, without="nginx"), indirect=True)
def test_more_than_the_queue_holds_is_a_429(fresh: Gateway) -> None:
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(streams(fresh.port, 12, max_tokens=20, x_ms=40)))
    thread.start()
    until(lambda: sum(fresh.stub.stats["now"]) == 4, 10, "the engines are full")
    time.sleep(0.5)
    status, headers, body = fresh.chat(max_tokens=1)
    assert status == 429 and int(headers["retry-after"]) >= 1
    assert json.loads(body)["error"]["code"] == 429
    thread.join()
    assert all(one.whole(20) for one in seen)


@pytest.mark.parametrize("fresh", with_kinds({"v1_only": True}), indirect=True)
def test_where_the_engines_check_the_key_nothing_is_served_that_they_leave_open(fresh: Gateway) -> None:
    fresh.stub.tell("/reset")
    for path in (
        "/invocations",
        "//invocations",
        "/%69nvocations",
        "/v1",
        "/v1x/y",
        "/V1/models",
        "/metrics",
        "/echo",
        "/health/x",
    ):
        for method in ("GET", "POST"):
            status, headers, body = request(fresh.port, method, path, {"model": "stub"} if method == "POST" else None)
            assert status == 404 and headers["x-request-id"], path
            assert json.loads(body)["error"]["code"] == 404, path
    assert sum(fresh.stub.stats["count"]) == 0
    assert fresh.chat(max_tokens=1)[0] == 200
    assert [request(fresh.port, "GET", path)[0] for path in ("/v1/models", "/health")] == [200, 200]
