"""A request on its way to a backend, and the replies on their way back."""

from hypothesis import given
from hypothesis import strategies as st
from modelyard_gateway.headers import ReplyHead, Request
from modelyard_gateway.reply import Reply
from modelyard_gateway.uplink import KEEP, Uplink

PARTS = st.lists(st.binary(min_size=1, max_size=30), max_size=8)


def head():
    return b"HEAD\r\n"


def request(length=0, method="POST", http11=True):
    return Request(method, b"/", http11, True, "id", length=length)


def unchunked(data):
    found = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        if not int(size, 16):
            assert data == b"\r\n"
            return found
        found, data = found + data[: int(size, 16)], data[int(size, 16) + 2 :]


@given(PARTS, st.booleans(), st.integers(0, 8))
def test_the_body_arrives_as_it_is_however_it_comes(parts, known, first):
    """`first`: so many parts have come when the backend is there. Then the same on another connection."""
    body = b"".join(parts)
    uplink = Uplink(request(len(body) if known else None))
    for part in parts[:first]:
        uplink.add(part)
    early = first >= len(parts)
    data = uplink.take(early, head)
    for part in parts[first:]:
        uplink.add(part)
        data += uplink.take(False, head)
    data += uplink.take(True, head)
    assert uplink.all_sent and uplink.can_repeat and uplink.take(True, head) == b""
    lines, _, payload = data.partition(b"\r\n\r\n")
    if b"chunked" in lines:
        assert not known and not early
        payload = unchunked(payload)
    else:
        assert lines.endswith(b"Content-Length: %d" % len(body))
    assert payload == body
    uplink.rewind()
    assert uplink.take(True, head) == b"HEAD\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_a_long_body_is_sent_only_once():
    uplink = Uplink(request(KEEP + 1))
    uplink.add(b"x" * (KEEP + 1))
    assert uplink.can_repeat, "nothing was sent yet"
    uplink.rewind()
    assert len(uplink.take(True, head)) > KEEP
    assert not uplink.can_repeat


def test_a_get_has_no_length():
    assert Uplink(request(method="GET")).take(True, head) == b"HEAD\r\n\r\n"


class Wire:
    """What would go to the client."""

    def __init__(self):
        self.writes, self.aborted = [], False

    def write(self, data):
        self.writes.append(data)

    def abort(self):
        self.aborted = True

    def is_closing(self):
        return False


def reply(length=None, kind="text/event-stream", **more):
    wire = Wire()
    return wire, Reply(
        wire, request(**more), ReplyHead(200, length, length is None, kind, "", b"A: b\r\n"), b"X-Request-Id: i\r\n", False
    )


def test_each_piece_is_one_write_and_the_head_goes_with_the_first():
    wire, made = reply()
    made.pass_on(b"data: 1\n\n", False)
    made.pass_on(b"", False)
    made.pass_on(b"data: 2\n\n", True)
    assert wire.writes == [
        b"HTTP/1.1 200 OK\r\nA: b\r\nX-Request-Id: i\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
        b"9\r\ndata: 2\n\n\r\n0\r\n\r\n",
    ]
    assert not made.must_close and made.bytes_out == 18


def test_a_broken_stream_ends_with_an_event_of_its_own():
    for before, gap in ((b"data: 1\n\n", b""), (b"data: {", b"\n\n")):
        wire, made = reply()
        made.pass_on(before, False)
        made.break_off(502, "backend_broken", "gone")
        payload = unchunked(b"".join(wire.writes).partition(b"\r\n\r\n")[2])
        assert payload.startswith(before + gap + b'data: {"error": {') and payload.endswith(b"}}\n\n")
        assert b"[DONE]" not in payload and made.must_close and not wire.aborted


def test_other_broken_replies_break_the_connection():
    for length, kind in ((10, "application/json"), (None, "application/json"), (10, "text/event-stream")):
        wire, made = reply(length, kind)
        made.pass_on(b"{", False)
        made.break_off(502, "backend_broken", "gone")
        assert wire.aborted and len(wire.writes) == 1


def test_an_old_client_sees_the_end_by_the_close():
    wire, made = reply(http11=False)
    made.pass_on(b"x", True)
    assert made.must_close and wire.writes[0].endswith(b"Connection: close\r\n\r\nx")
