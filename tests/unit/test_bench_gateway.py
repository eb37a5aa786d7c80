"""The benchmark of the gateway counts and judges rightly: the parts of tools/bench_gateway that need no proxy."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from bench_gateway import client, report
from bench_gateway.wire import Reply, Wire

EVENT = b'data: {"choices": []}\n\n'
STREAM = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"17\r\n%b\r\n" % EVENT * 7 + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
)


class Transport:
    def write(self, data: bytes) -> None:
        pass


def fed(parts: list[bytes]) -> list[Reply]:
    replies: list[Reply] = []
    wire = Wire(lambda _, reply: replies.append(reply))
    wire.connection_made(Transport())
    wire.ask(b"")
    for part in parts:
        wire.data_received(part)
    wire.connection_lost(None)
    return replies


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_events_of_a_stream_are_counted_however_it_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    (reply,) = fed([STREAM[a:b] for a, b in zip(places, places[1:], strict=False) if a < b])
    assert reply.good
    assert sum(events for _, events in reply.marks) == 8


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", True),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 3\r\n\r\nabc", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", False),
        (STREAM[:-5], False),
        (b"", False),
    ],
)
def test_what_is_not_a_whole_200_has_failed(data: bytes, good: bool) -> None:
    (reply,) = fed([data])
    assert reply.good is good


def test_tokens_are_told_from_the_event_before_them_and_those_after() -> None:
    # The role and the first token, one token, two in a clump, the end with usage and [DONE].
    assert list(client.token_times([(1.0, 2), (2.0, 1), (3.0, 2), (3.5, 3)], 4)) == [1.0, 2.0, 3.0, 3.0]


def results(peak: int, late_ms: float) -> dict[str, dict[str, list[dict[str, Any]]]]:
    first = {
        "nginx": [{"ttft_p50_ms": 1.0, "ttft_p99_ms": 2.0}],
        "modelyard": [{"ttft_p50_ms": 1.0 + late_ms, "ttft_p99_ms": 3.0}],
    }
    return {"32 clients": {"modelyard": [{"peak": 3}, {"peak": peak}, {"peak": 3}]}, "first token, 64 streams": first}


@pytest.mark.parametrize(("peak", "late_ms", "missed"), [(4, 1.9, 0), (5, 1.9, 1), (5, 2.1, 2)])
def test_a_missed_figure_is_said_and_one_that_was_not_measured_is_no_success(peak: int, late_ms: float, missed: int) -> None:
    found = report.verdicts(results(peak, late_ms))
    assert sum(one["met"] is False for one in found) == missed
    assert sum(one["met"] is True for one in found) == 3 - missed
    assert all(math.isnan(one["value"]) for one in found if one["met"] is None)
    assert report.lines(found).count("MISSED") == missed
