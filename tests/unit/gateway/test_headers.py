"""Heads of requests and replies on their way through the gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelyard_gateway import headers
from modelyard_gateway.answers import Refused

HOST = (b"Host", b"a")


def request(*lines, method="POST", target=b"/v1/x?y", http11=True):
    return headers.request(method, target, http11, True, [HOST, *lines])


def sent(*lines, key=b"", hide=False):
    return headers.to_backend(request(*lines), "10.0.0.1", "b:1", hide, key).decode().split("\r\n")


def test_what_goes_to_the_backend():
    found = sent(
        (b"Connection", b"close, X-Private"),
        (b"X-Private", b"1"),
        (b"Keep-Alive", b"1"),
        (b"TE", b"trailers"),
        (b"Authorization", b"Bearer k"),
        (b"X-Forwarded-For", b"1.2.3.4"),
        (b"X-Request-Id", b"mine"),
        (b"Content-Type", b"application/json"),
    )
    assert found == [
        "POST /v1/x?y HTTP/1.1",
        "Host: a",
        "Authorization: Bearer k",
        "Content-Type: application/json",
        "X-Forwarded-For: 1.2.3.4, 10.0.0.1",
        "X-Request-Id: mine",
        "",
    ]


def test_keys_of_clients_stay_here():
    line = (b"authorization", b"Bearer k")
    assert not [one for one in sent(line, hide=True) if "Bearer" in one]
    assert [one for one in sent(line, key=b"own") if "Bearer" in one] == ["Authorization: Bearer own"]


def test_host_cannot_be_made_a_matter_of_one_connection():
    assert "Host: a" in sent((b"Connection", b"host"))


@pytest.mark.parametrize("given_id", [b"", b"a b", b"x" * 129, b"\xe4"])
def test_an_id_that_is_not_sane_is_replaced(given_id):
    assert len(request((b"X-Request-Id", given_id)).id) == 32


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([(b"X ", b"1")], 400),
        ([(b"Transfer-Encoding ", b"chunked")], 400),
        ([(b"X y", b"1")], 400),
        ([(b"Content-Length", b"1"), (b"Content-Length", b"1")], 400),
        ([(b"Content-Length", b"1, 1")], 400),
        ([(b"Content-Length", b"-1")], 400),
        ([(b"Content-Length", b"0x1")], 400),
        ([(b"Content-Length", b"")], 400),
        ([(b"Content-Length", b"1"), (b"Transfer-Encoding", b"chunked")], 400),
        ([(b"Transfer-Encoding", b"chunked, chunked")], 501),
        ([(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"chunked")], 501),
        ([(b"Transfer-Encoding", b"\x0bchunked")], 400),
        ([(b"Transfer-Encoding", b"identity")], 501),
        ([(b"Host", b"b")], 400),
        ([(b"X", b"a\rb")], 400),
        ([(b"X", b"a\nb")], 400),
        ([(b"X", b"a\0b")], 400),
        ([(b"Upgrade", b"h2c")], 501),
        ([(b"Expect", b"else")], 417),
    ],
)
def test_what_two_servers_could_read_differently_is_refused(lines, status):
    with pytest.raises(Refused) as caught:
        request(*lines)
    assert caught.value.status == status and caught.value.close


@pytest.mark.parametrize("target", [b"http://a/", b"*", b"a", b"", b"/a b", b"/\xe4", b"/\x7f"])
def test_targets_that_are_no_path(target):
    with pytest.raises(Refused):
        request(target=target)


def test_http_10():
    assert not headers.request("GET", b"/", False, False, []).host
    with pytest.raises(Refused):
        request((b"Transfer-Encoding", b"chunked"), http11=False)


def test_replies_lose_what_belongs_to_one_connection():
    lines = [
        (b"Server", b"uvicorn"),
        (b"Connection", b"X-A"),
        (b"X-A", b"1"),
        (b"X-Request-Id", b"no"),
        (b"Content-Length", b"5"),
    ]
    found = headers.reply(200, [*lines, (b"Content-Type", b"Text/Event-Stream; x")])
    assert found.lines == b"Server: uvicorn\r\nContent-Type: Text/Event-Stream; x\r\n"
    assert (found.length, found.chunked, found.is_stream) == (5, False, True)


@pytest.mark.parametrize(
    "lines",
    [
        [(b"Content-Length", b"5"), (b"Content-Length", b"5")],
        [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")],
        [(b"Transfer-Encoding", b"gzip, chunked")],
        [(b"X", b"a\r\nSet-Cookie: b")],
        [(b"Content-Length ", b"5")],
    ],
)
def test_replies_that_two_readers_could_read_differently(lines):
    with pytest.raises(ValueError, match=r"."):
        headers.reply(200, lines)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=12), st.binary(max_size=12)), max_size=8))
def test_nothing_of_a_request_becomes_a_line_of_its_own(lines):
    try:
        found = headers.request("GET", b"/", True, True, [HOST, *lines])
    except Refused:
        return
    data = headers.to_backend(found, "c", "b", False, b"")
    names = sum(name.count(b"\n") for name, _ in lines)  # names are llhttp's to check
    assert data.count(b"\n") <= 4 + len(lines) + names
