"""Against a real server on this machine."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import http as client


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/json":
            self.send(200, b'{"a": [1, 2]}')
        elif self.path == "/text":
            self.send(200, "grüße".encode())
        elif self.path == "/unwell":
            self.send(503, b"not ready")
        elif self.path == "/away":
            self.send(302, b"", Location="/json")
        elif self.path == "/large":
            self.send(200, b"x" * (5 * 2**20))
        elif self.path == "/slow":
            self.server.leave.wait(5)
        elif self.path == "/dripping":
            self.send_response(200)
            self.send_header("Content-Length", "20")
            self.end_headers()
            for _ in range(20):
                time.sleep(0.1)
                self.wfile.write(b"x")
        elif self.path == "/hangup":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        elif self.path == "/nonsense":
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send(200, json.dumps({"headers": dict(self.headers), "body": json.loads(body)}).encode())

    def send(self, status, content, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.leave = threading.Event()
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server.server_address
    server.leave.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/json", 200, {"a": [1, 2]}),
        ("/text", 200, "grüße"),
        ("/unwell", 503, "not ready"),
        ("/away", 302, ""),  # a redirect is an answer and not followed
    ],
)
def test_an_answer_comes_back_as_data(address, path, status, body):
    answer = client.request(address, "GET", path)
    assert (answer["status"], answer["body"], answer["error"]) == (status, body, "")
    assert 0 <= answer["seconds"] < 5


def test_body_and_key_are_sent_as_the_engine_wants_them(address):
    body = client.request(address, "POST", "/v1/chat/completions", {"max_tokens": 1}, key="sk-secret")["body"]
    assert body["body"] == {"max_tokens": 1}
    assert body["headers"]["Authorization"] == "Bearer sk-secret"
    assert body["headers"]["Content-Type"] == "application/json"


def test_without_a_key_no_authorization_is_sent(address):
    assert "Authorization" not in client.request(address, "POST", "/", {})["body"]["headers"]


def test_no_proxy_of_the_environment_is_asked(address, monkeypatch, free_port):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port}")
    assert client.request(address, "GET", "/json")["status"] == 200


def test_a_closed_port_is_refused(free_port):
    answer = client.request(("127.0.0.1", free_port), "GET", "/health")
    assert (answer["status"], answer["error"]) == (0, "refused")
    assert client.status(("127.0.0.1", free_port), "/health") == 0


def test_silence_is_a_timeout(address):
    answer = client.request(address, "GET", "/slow", timeout_s=0.2)
    assert (answer["status"], answer["error"]) == (0, "timeout")
    assert 0.2 <= answer["seconds"] < 2


def test_an_answer_that_drips_is_a_timeout_as_well(address):
    answer = client.request(address, "GET", "/dripping", timeout_s=0.4)
    assert (answer["status"], answer["error"]) == (0, "timeout")
    assert answer["seconds"] < 1.5


@pytest.mark.parametrize("path", ["/hangup", "/nonsense"])
def test_an_answer_that_is_none_has_its_reason(address, path):
    answer = client.request(address, "GET", path)
    assert answer["error"] or isinstance(answer["body"], str)
    assert answer["body"] != {"a": [1, 2]}


def test_a_large_answer_is_cut(address):
    assert len(client.request(address, "GET", "/large")["body"]) == 4 * 2**20


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-€"], ids=["two lines", "beyond latin-1"])
def test_a_key_that_is_no_header_value_is_an_error_that_does_not_show_it(address, key):
    answer = client.request(address, "GET", "/json", key=key)
    assert answer["status"] == 0
    assert answer["error"]
    assert "sk-" not in answer["error"]


@pytest.mark.parametrize(
    ("listens_on", "asked_at"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("10.0.0.5", "10.0.0.5"),
    ],
)
def test_a_server_is_asked_where_it_answers_on_its_own_machine(listens_on, asked_at):
    assert client.reachable(listens_on) == asked_at
