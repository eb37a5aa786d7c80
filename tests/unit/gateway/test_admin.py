"""The admin listener, asked over a real connection: routes, drains, and who is let in."""

import asyncio
import base64
import json
import socket
import threading
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
from modelyard_gateway import admin, status_command
from modelyard_gateway.token_file import TokenProblem, read_token
from unit.gateway.seen_gateway import SeenGateway

TOKEN = "correct-horse-battery"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@contextmanager
def served(gateway):
    """Serve the admin application on a free port, in a thread with a loop of its own. Gives the port."""
    loop = asyncio.new_event_loop()

    runner = loop.run_until_complete(admin.listen(admin.application(gateway), "127.0.0.1", 0, 0.1))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield runner.addresses[0][1]
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def ask(port, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def gateway():
    return SeenGateway(3).all_up()


@pytest.fixture
def port(gateway):
    with served(gateway) as port:
        yield port


@pytest.fixture
def unused_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def test_status_is_json_for_programs_and_a_page_for_browsers(port):
    code, headers, text = ask(port, "/gateway/status", Accept="*/*")
    assert (code, headers["Content-Type"], headers["Cache-Control"]) == (200, "application/json; charset=utf-8", "no-store")
    state = json.loads(text)
    assert [backend["name"] for backend in state["backends"]] == ["qwen/0", "qwen/1", "qwen/2"]
    assert state["gateway"]["open_files"] > 2
    assert state["gateway"]["memory_bytes"] > 2**20
    code, headers, text = ask(port, "/gateway/status", Accept=BROWSER)
    assert (code, headers.get_content_type()) == (200, "text/html")
    assert "All 3 backends take requests" in text
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("", False),
        ("application/json, text/html;q=0.5", False),
        ("text/html;q=0.1", True),
        ("text/html;q=x", False),
        (BROWSER, True),
    ],
)
def test_what_accept_prefers(accept, html):
    assert admin.prefers_html(accept) is html


def test_the_root_leads_to_the_status(port):
    code, headers, _text = ask(port, "/")
    assert (code, headers["Location"]) == (302, "gateway/status")


def test_metrics(port):
    code, headers, text = ask(port, "/gateway/metrics")
    assert (code, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'modelyard_gateway_backend_up{backend="qwen/2"} 1\n' in text
    assert "modelyard_gateway_process_open_fds" in text


def test_drain_and_undrain(port, gateway):
    gateway.begin(1, 2)
    code, _headers, text = ask(port, "/gateway/drain?backend=qwen%2F1", "POST")
    assert (code, json.loads(text)) == (200, {"backend": "qwen/1", "draining": True, "in_flight": 2})
    code, _headers, text = ask(port, "/gateway/drain?backend=qwen/1&wait_s=0.5", "POST")
    assert (code, json.loads(text)["in_flight"]) == (202, 2)
    code, _headers, text = ask(port, "/gateway/drain?backend=qwen/0&wait_s=3600", "POST")
    assert (code, json.loads(text)["in_flight"]) == (200, 0)
    assert gateway.waited == [0.0, 0.5, 3600.0]
    code, _headers, text = ask(port, "/gateway/undrain?backend=qwen/1", "POST")
    assert (code, json.loads(text)) == (200, {"backend": "qwen/1", "draining": False, "in_flight": 2})
    assert [backend.draining for backend in gateway.backends.all] == [True, False, False]


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("/gateway/drain?backend=qwen/9", 404, "there is no backend qwen/9; there are qwen/0, qwen/1, qwen/2"),
        ("/gateway/drain", 400, "say which backend, once: POST /gateway/drain?backend=...&wait_s=..."),
        ("/gateway/drain?backend=qwen/0&backend=qwen/1", 400, "say which backend, once"),
        ("/gateway/drain?backend=qwen/0&wait=5", 400, "there is no parameter wait:"),
        ("/gateway/undrain?backend=qwen/0&wait_s=5", 400, "there is no parameter wait_s:"),
        ("/gateway/drain?backend=qwen/0&wait_s=-1", 400, "wait_s must be a number of seconds from 0 to 3600"),
        ("/gateway/drain?backend=qwen/0&wait_s=nan", 400, "wait_s must be"),
        ("/gateway/drain?backend=qwen/0&wait_s=soon", 400, "wait_s must be"),
    ],
)
def test_a_wrong_order_does_nothing_and_says_what_is_wrong(port, gateway, path, code, said):
    got, _headers, text = ask(port, path, "POST")
    assert got == code
    assert said in json.loads(text)["error"]
    assert not any(backend.draining for backend in gateway.backends.all)


def test_reading_changes_nothing(port, gateway):
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        code, headers, _text = ask(port, "/gateway/drain?backend=qwen/0", method)
        assert (code, headers["Allow"]) == (405, "POST")
    assert not gateway.backends.all[0].draining


def test_a_button_of_the_page_leads_back_to_it(port, gateway):
    code, headers, _text = ask(
        port,
        "/gateway/drain?backend=qwen/0",
        "POST",
        Accept=BROWSER,
        Sec_Fetch_Site="same-origin",
        Origin=f"http://127.0.0.1:{port}",
    )
    assert (code, headers["Location"]) == (303, "status")
    assert gateway.backends.all[0].draining


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_another_web_site_can_change_nothing_and_read_nothing(port, gateway, headers):
    code, _headers, text = ask(port, "/gateway/drain?backend=qwen/0", "POST", **headers)
    assert (code, "another web site" in text) == (403, True)
    assert not gateway.backends.all[0].draining
    _code, headers, _text = ask(port, "/gateway/status", **headers)
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8001", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_name_of_others_that_points_here_is_refused(port, host):
    code, _headers, text = ask(port, "/gateway/status", Host=host)
    assert (code, "not called" in text) == (403, True)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:9", "[::1]:9", "127.0.0.5"])
def test_names_of_loopback_are_fine(port, host):
    assert ask(port, "/gateway/status", Host=host)[0] == 200


def test_with_a_token_only_who_has_it_is_let_in(token_file):
    gateway = SeenGateway(1, admin={"host": "0.0.0.0", "port": 8001, "token_file": str(token_file)}).all_up()
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    with served(gateway) as port:
        for good in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
            assert ask(port, "/gateway/status", Authorization=good, Host="gateway.lan:8001")[0] == 200
        wrong = base64.b64encode(b"anybody:wrong").decode()
        for bad in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Basic {wrong}", "Basic ////", f"Digest {TOKEN}"):
            code, headers, text = ask(port, "/gateway/drain?backend=qwen/0", "POST", Authorization=bad)
            assert code == 401
            assert [value.split()[0] for value in headers.get_all("WWW-Authenticate")] == ["Basic", "Bearer"]
            assert TOKEN not in text
        assert not gateway.backends.all[0].draining
        assert ask(port, "/gateway/metrics")[0] == 401
        assert ask(port, "/elsewhere")[0] == 401
        # Also a browser that is logged in does not change anything for another site.
        assert (
            ask(port, "/gateway/drain?backend=qwen/0", "POST", Authorization=f"Basic {basic}", Origin="http://evil.example")[0]
            == 403
        )
        # A new token counts at once, and one that others can read lets nobody in.
        token_file.write_text("another-word-altogether")
        assert ask(port, "/gateway/status", Authorization=f"Bearer {TOKEN}")[0] == 401
        assert ask(port, "/gateway/status", Authorization="Bearer another-word-altogether")[0] == 200
        token_file.chmod(0o644)
        code, _headers, text = ask(port, "/gateway/status", Authorization="Bearer another-word-altogether")
        assert (code, "chmod 600" in text) == (503, True)


def test_on_loopback_everybody_may_look_and_only_who_has_the_token_may_change_something(token_file):
    gateway = SeenGateway(1, admin={"host": "127.0.0.1", "port": 8001, "token_file": str(token_file)}).all_up()
    with served(gateway) as port:
        assert [ask(port, path)[0] for path in ("/gateway/status", "/gateway/metrics")] == [200, 200]
        assert ask(port, "/gateway/status", Host="rebound.example")[0] == 403
        assert ask(port, "/gateway/drain?backend=qwen/0", "POST")[0] == 401
        assert not gateway.backends.all[0].draining
        assert ask(port, "/gateway/drain?backend=qwen/0", "POST", Authorization=f"Bearer {TOKEN}")[0] == 200
        assert gateway.backends.all[0].draining


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("short", 0o600, "16 or more"),
        ("two words of a token", 0o600, "one word"),
        ("ü" * 20, 0o600, "ASCII"),
        (TOKEN, 0o640, "mode 0640"),
    ],
)
def test_a_token_file_that_is_no_good_is_said(tmp_path, text, mode, said):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(TokenProblem, match=said):
        read_token(str(path))


def test_start_listens_where_the_settings_say_and_refuses_without_a_token(unused_port, tmp_path):
    async def begin(**more):
        gateway = SeenGateway(1, admin={"port": unused_port, **more}).all_up()
        runner = await admin.start(gateway)
        try:
            with pytest.raises(OSError, match="in use"):
                await admin.start(gateway)
            return runner.addresses
        finally:
            await runner.cleanup()

    assert asyncio.run(begin()) == [("127.0.0.1", unused_port)]
    with pytest.raises(TokenProblem, match="cannot be read"):
        asyncio.run(begin(host="0.0.0.0", token_file=str(tmp_path / "absent")))


def test_the_command_asks_the_listener_and_no_proxy(port, gateway, unused_port, monkeypatch, capsys):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert status_command.main(["--admin", f"http://127.0.0.1:{port}/"]) == 0
    assert "All 3 backends take requests" in capsys.readouterr().out
    gateway.backends.drain(gateway.backends.all[0])
    assert status_command.main(["--admin", f"http://127.0.0.1:{port}"]) == 0
    gateway.backends.failed(gateway.backends.all[1], "refused", "connection refused", gateway.now, gateway.unix)
    assert status_command.main(["--admin", f"http://127.0.0.1:{port}"]) == 1
    assert "qwen/1 is out for " in capsys.readouterr().out


def test_the_command_says_why_it_learned_nothing(token_file, unused_port, capsys):
    gateway = SeenGateway(1, admin={"host": "0.0.0.0", "port": 8001, "token_file": str(token_file)}).all_up()
    with served(gateway) as port:
        assert status_command.main(["--admin", f"http://127.0.0.1:{port}", "--token-file", str(token_file)]) == 0
        assert status_command.main(["--admin", f"http://127.0.0.1:{port}"]) == 2
        assert "401: send the admin token" in capsys.readouterr().err
        assert status_command.main(["--admin", f"http://127.0.0.1:{port}/elsewhere", "--token-file", str(token_file)]) == 2
        assert "404: what answers there is no gateway" in capsys.readouterr().err
    assert status_command.main(["--admin", f"http://127.0.0.1:{unused_port}"]) == 2
    assert "no answer: " in capsys.readouterr().err
    for wrong in ("127.0.0.1:8001", "file:///etc/passwd"):
        assert status_command.main(["--admin", wrong]) == 2
        assert "wanted a URL" in capsys.readouterr().err
