"""What goes wrong in the world, against the real process of our own gateway."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from gateway.clients import streams
from gateway.kinds import Gateway, Stub, request
from harness import ROOT, until

LARGE = {"body_limit_mb": 64, "header_timeout_s": 1, "timeout_s": 3}


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    made = Stub(4, 2000)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture(scope="module")
def gateway(stub: Stub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway("modelyard", tmp_path_factory.mktemp("faults"), stub, **LARGE).running() as made:
        yield made


@pytest.fixture(autouse=True)
def calm(gateway: Gateway) -> Iterator[None]:
    """All engines are in use before each test; after it nothing runs and the gateway has nothing to complain of."""
    gateway.stub.set(mode="ok", health="200")
    until(lambda: gateway.used() == set(gateway.names), 15, "all engines are in use")
    gateway.stub.tell("/reset")
    yield
    until(lambda: in_flight(gateway) == 0, 15, "nothing is in flight")
    assert "internal error" not in gateway.said()


def status(gateway: Gateway) -> dict[str, Any]:
    return json.loads(request(gateway.port + 1, "GET", "/gateway/status")[2])


def in_flight(gateway: Gateway) -> int:
    return sum(one["in_flight"] for one in status(gateway)["backends"])


def descriptors(gateway: Gateway) -> int:
    return len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir()))


def wire(gateway: Gateway, data: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", gateway.port), timeout=20)
    made.sendall(data)
    return made


def rest(made: socket.socket) -> bytes:
    """All until the gateway closes; a reset ends it as well."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := made.recv(65536):
            found += data
    return found


def post(body: bytes, more: bytes = b"", path: bytes = b"/v1/chat/completions") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
    return head % (path, more, len(body)) + body


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "stub", **fields}).encode()


def one_reply(made: socket.socket) -> tuple[int, bytes]:
    """The next reply on a connection that stays open."""
    answer = http.client.HTTPResponse(made)
    answer.begin()
    return answer.status, answer.read()


def test_a_backend_killed_under_64_streams_takes_only_its_own(gateway: Gateway) -> None:
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(streams(gateway.port, 64, max_tokens=40, x_ms=30)))
    thread.start()
    until(lambda: sum(gateway.stub.stats["now"]) == 64, 10, "all run")
    gateway.stub.set(0, mode="kill")
    thread.join()
    lost = [one for one in seen if not one.whole(40)]
    assert {one.backend for one in lost} == {"stub/0"} and len(lost) == 16
    # An event when tokens had come already, else a whole 502.
    assert all(502 in (one.status, one.event.get("code")) and not one.done and not one.error for one in lost)


def test_a_thousand_streams_run_at_once(gateway: Gateway) -> None:
    seen = streams(gateway.port, 1000, max_tokens=6, x_first_ms=1500, x_ms=20)
    assert sum(one.whole(6) for one in seen) == 1000
    assert gateway.stub.stats["peak"] == [250] * 4


def test_a_slow_reader_slows_its_engine_and_is_cut_in_the_end(gateway: Gateway) -> None:
    before = memory(gateway)
    made = wire(gateway)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.sendall(post(chat(stream=True, max_tokens=200_000, x_text="x" * 1000)))
    assert made.recv(100)
    until(lambda: in_flight(gateway) == 1, 5, "it runs")
    until(lambda: in_flight(gateway) == 0, 15, "it is cut")
    assert memory(gateway) - before < 20, "the reply was not kept in memory"
    made.close()
    until(lambda: gateway.log()[-1]["error"] == "the client has read nothing for 3 s", 5, "the log says so")


def memory(gateway: Gateway) -> float:
    """MiB that the process has in memory."""
    return int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_a_head_that_comes_too_slowly_is_a_408(gateway: Gateway) -> None:
    made = wire(gateway, b"POST /v1/chat/completions HTTP/1.1\r\nHo")
    answer = rest(made)
    assert answer.startswith(b"HTTP/1.1 408 ") and b'"code": 408' in answer


def test_a_body_that_stops_coming_is_a_408_and_frees_the_engine(gateway: Gateway) -> None:
    made = wire(gateway, post(chat(max_tokens=1))[:-5])
    until(lambda: in_flight(gateway) == 1, 5, "counted before the body is there")
    answer = rest(made)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert in_flight(gateway) == 0


def test_a_body_that_comes_slowly_is_fine(gateway: Gateway) -> None:
    data = post(chat(max_tokens=3))
    made = wire(gateway)
    for begin in range(0, len(data), 20):
        made.sendall(data[begin : begin + 20])
        time.sleep(0.02)
    code, body = one_reply(made)
    assert code == 200 and json.loads(body)["choices"][0]["message"]["content"] == "t0 t1 t2 "


# The stand-in needs a while for so much JSON.
@pytest.mark.parametrize("own", [{"timeout_s": 60}], indirect=True)
def test_bodies_of_64_mib_in_parallel_pass_whole_in_little_memory(own: Gateway) -> None:
    before = memory(own)
    body = b'{"model": "stub", "max_tokens": 1, "x": "' + b"y" * (64 * 2**20 - 43) + b'"}'
    assert len(body) == 64 * 2**20
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(request(own.port, "POST", "/v1/chat/completions", body)[0]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 4
    assert memory(own) - before < 64


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_closes_its_side_is_gone(gateway: Gateway, streamed: bool) -> None:
    made = wire(gateway, post(chat(stream=streamed, max_tokens=100, x_ms=50)))
    until(lambda: in_flight(gateway) == 1, 5, "it runs")
    made.shutdown(socket.SHUT_WR)
    until(lambda: in_flight(gateway) == 0, 2, "its engine is free")
    until(lambda: sum(gateway.stub.stats["aborted"]) == 1, 2, "the engine knows")


def test_half_a_request_and_gone(gateway: Gateway) -> None:
    before = descriptors(gateway)
    for cut in range(1, len(post(chat())), 7):
        wire(gateway, post(chat())[:cut]).close()
    until(lambda: descriptors(gateway) <= before + 1, 5, "no descriptor is left")


FLOODS = {
    "many lines": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
    "one long line": (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", b"431"),
    "no end": (b"GET / HTTP/1.1\r\nA: " + b"b" * 300_000, b"431"),
    "long target": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
    "bad chunk": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    "chunk longer than said": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", b"400"),
    "chunk line without end": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 600_000, b"400"),
    "unknown coding": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"501"),
    "no host": (b"GET /v1/models HTTP/1.1\r\n\r\n", b"400"),
    "two hosts": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
    "whole url": (b"GET http://127.0.0.1:1/v1/models HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
    "space before colon": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", b"400"),
    "folded line": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", b"400"),
    "zero byte": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n", b"400"),
    "length and coding": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"400",
    ),
    "length with a sign": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nabcde", b"400"),
    "connect": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", b"501"),
    "trace": (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", b"405"),
    "upgrade": (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"501"),
    "http 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
}


@pytest.mark.parametrize("what", FLOODS)
def test_what_no_engine_gets_to_see(gateway: Gateway, what: str) -> None:
    data, wanted = FLOODS[what]
    made = wire(gateway)
    with contextlib.suppress(ConnectionError):
        made.sendall(data)
    head, _, body = rest(made).partition(b"\r\n\r\n")
    assert head.split()[1] == wanted, head
    assert b"\r\nX-Request-Id: " in head and b"\r\nX-Backend: " in head and b"\r\nConnection: close" in head
    assert json.loads(body)["error"]["code"] == int(wanted)
    assert sum(gateway.stub.stats["done"]) == 0


def test_requests_sent_ahead_are_answered_in_their_order(gateway: Gateway) -> None:
    made = wire(
        gateway,
        b"".join(post(chat(max_tokens=n, x_ms=10 * (5 - n))) for n in range(1, 5)) + b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    )
    texts = []
    file = made.makefile("rb")
    for _ in range(4):
        length = 0
        while (line := file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        texts.append(json.loads(file.read(length))["choices"][0]["message"]["content"])
    assert [len(text.split()) for text in texts] == [1, 2, 3, 4]
    assert file.readline().startswith(b"HTTP/1.1 200")


def test_http_10_gets_a_reply_without_chunks_and_a_close(gateway: Gateway) -> None:
    body = chat(stream=True, max_tokens=2)
    made = wire(gateway, b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    head, _, payload = rest(made).partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower() and b"Connection: close" in head
    assert payload.startswith(b"data: ") and payload.endswith(b"data: [DONE]\n\n")


def test_a_client_may_wait_for_the_gateways_word(gateway: Gateway) -> None:
    data = post(chat(max_tokens=1), b"Expect: 100-continue\r\n")
    head, body = data.split(b"\r\n\r\n")
    made = wire(gateway, head + b"\r\n\r\n")
    assert made.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    made.sendall(body)
    assert one_reply(made)[0] == 200
    made = wire(gateway, b"POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 999999999\r\n\r\n")
    assert one_reply(made)[0] == 413


def test_head_and_options_pass_and_the_connection_stays(gateway: Gateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    for method in ("HEAD", "OPTIONS", "GET", "HEAD"):
        connection.request(method, "/echo")
        answer = connection.getresponse()
        assert answer.status == 200 and (answer.read() == b"") == (method == "HEAD")
    connection.close()


@pytest.fixture
def own(request: pytest.FixtureRequest, tmp_path: Path, stub: Stub) -> Iterator[Gateway]:
    """A gateway of its own."""
    with Gateway("modelyard", tmp_path, stub, **{**LARGE, **getattr(request, "param", {})}).running() as made:
        yield made


def test_a_full_disk_of_the_log_stops_no_request(tmp_path: Path, stub: Stub) -> None:
    made = Gateway("modelyard", tmp_path, stub)
    (tmp_path / "logs/results.jsonl").symlink_to("/dev/full")
    with made.running():
        assert {made.chat(max_tokens=1)[0] for _ in range(50)} == {200}
        until(lambda: "result log:" in made.said(), 5, "it is said")
        log = status(made)["log"]
        assert "No space left" in log["problem"]
        (tmp_path / "logs/results.jsonl").unlink()
        until(lambda: made.chat(max_tokens=1)[0] == 200 and "is written again" in made.said(), 10, "it goes on")
        # The first line that goes in says so; the others follow a moment later.
        until(lambda: len(made.log()) >= 50, 5, "no line is lost")


def test_drains_outlive_a_restart(own: Gateway) -> None:
    assert request(own.port + 1, "POST", "/gateway/drain?backend=stub/1")[0] == 200
    own.process.send_signal(signal.SIGTERM)
    assert own.process.wait(10) == 0
    with own.running():
        assert own.used() == {"stub/0", "stub/2", "stub/3"}


def test_the_end_while_a_drain_waits_loses_nothing(own: Gateway) -> None:
    seen: list[Any] = []
    work = threading.Thread(target=lambda: seen.extend(streams(own.port, 8, max_tokens=40, x_ms=30)))
    work.start()
    until(lambda: sum(own.stub.stats["now"]) == 8, 5, "all run")
    drain = threading.Thread(target=lambda: request(own.port + 1, "POST", "/gateway/drain?backend=stub/0&wait_s=30"))
    drain.start()
    until(lambda: "stub/0: draining" in own.said(), 5, "it drains")
    own.process.send_signal(signal.SIGTERM)
    work.join()
    drain.join()
    assert all(one.whole(40) for one in seen)
    assert own.process.wait(10) == 0


def test_what_is_cut_at_the_end_is_told(own: Gateway) -> None:
    seen: list[Any] = []
    work = threading.Thread(target=lambda: seen.extend(streams(own.port, 4, max_tokens=400, x_ms=40)))
    work.start()
    until(lambda: sum(own.stub.stats["now"]) == 4, 5, "all run")
    for _ in range(2):
        own.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    work.join()
    assert own.process.wait(10) == 0
    assert all(one.event["reason"] == "stopping" and not one.done for one in seen)


def test_a_taken_port_is_one_line(gateway: Gateway) -> None:
    argv = [
        sys.executable,
        "-m",
        "modelyard_gateway",
        "--port",
        str(gateway.port),
        "--host",
        "127.0.0.1",
        "--backend",
        "http://127.0.0.1:1",
    ]
    path = {**os.environ, "PYTHONPATH": str(ROOT / "roles/gateway/files")}
    done = subprocess.run(argv, env=path, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr == f"modelyard_gateway: cannot listen on 127.0.0.1:{gateway.port}: the port is taken by another program\n"


def healthy(gateway: Gateway) -> bool:
    try:
        return request(gateway.port, "GET", "/health")[0] == 200
    except OSError:
        return False


def test_keys(tmp_path: Path, stub: Stub) -> None:
    (tmp_path / "keys").write_text(sha256(b"secret").hexdigest() + " lab\n")
    (tmp_path / "backend").write_text("inner\n")
    made = Gateway("modelyard", tmp_path, stub, keys_file=str(tmp_path / "keys"), backend_key_file=str(tmp_path / "backend"))
    made.serves = lambda: healthy(made)  # type: ignore[method-assign]
    with made.running():
        code, lines, body = made.chat(max_tokens=1)
        assert code == 401 and lines["www-authenticate"] == "Bearer" and json.loads(body)["error"]["reason"] == "invalid_api_key"
        code, _, body = made.chat({"Authorization": "Bearer secret"}, max_tokens=1, x_headers=True)
        assert code == 200 and b"Bearer inner" in body and b"secret" not in body
        until(lambda: [one["key"] for one in made.log()] == [None, "lab"], 5, "the log names the key")
        assert "secret" not in json.dumps(made.log()) and "inner" not in json.dumps(made.log())


def test_a_hung_engine_is_shown_and_nothing_is_ended(tmp_path: Path, stub: Stub) -> None:
    with Gateway("modelyard", tmp_path, stub, hung_after_s=0.5, timeout_s=60).running() as made:
        connection = wire(made, post(chat(stream=True, max_tokens=5, x_hang=2)))
        until(lambda: "seems to hang" in made.said(), 10, "it is said")
        assert [one["hung"] for one in status(made)["backends"]].count(True) == 1
        (hung,) = [one["name"] for one in status(made)["backends"] if one["hung"]]
        assert hung not in made.used() and in_flight(made) == 1
        connection.close()


def test_an_engine_that_is_too_busy_for_health_keeps_its_requests_and_gets_more(tmp_path: Path, stub: Stub) -> None:
    with Gateway("modelyard", tmp_path, stub).running() as made:
        until(lambda: made.used() == set(made.names), 10, "all are in")
        connections = [wire(made, post(chat(stream=True, max_tokens=200, x_ms=50))) for _ in range(4)]
        until(lambda: in_flight(made) == 4, 5, "each engine has a stream")
        stub.set(0, health="hang")
        stub.set(1, health="503")
        until(lambda: "stub/1: down" in made.said(), 10, "what says that it is not well goes out")
        time.sleep(3)  # more than the failures that take out an engine need
        assert "stub/0: down" not in made.said() and "stub/0" in made.used()
        for one in connections:
            one.close()
        until(lambda: "stub/0: down" in made.said(), 15, "without tokens it goes out as well")


def test_after_a_refusal_the_connection_stays(own: Gateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=10)
    for path, wanted in (
        ("/gateway/status", 404),
        ("/v1/chat/completions", 200),
        ("/health", 405),
        ("/v1/chat/completions", 200),
    ):
        connection.request("POST", path, chat(max_tokens=1))
        answer = connection.getresponse()
        assert answer.status == wanted, path
        answer.read()
        assert connection.sock is not None
    connection.close()
