"""Lines of HAProxy's and nginx's request logs -> the keys of our own result log. The lines are real ones."""

from __future__ import annotations

import pytest
from harness import ROOT
from modelyard_gateway import proxy_lines

NAMES = {f"b{index}": f"stub/{index}" for index in range(4)}


def entries(kind: str, version: str) -> dict[str, dict]:
    text = (ROOT / f"tests/fixtures/gateway/{kind}-{version}-requests.log").read_text(encoding="utf-8")
    found = [proxy_lines.read(kind, line, NAMES) for line in text.splitlines()]
    return {one["id"]: one for one in found if one}


@pytest.fixture(params=[("haproxy", "2.6.12"), ("nginx", "1.22.1")], ids=["haproxy", "nginx"])
def kind(request):
    return request.param


def test_what_both_know(kind):
    found = entries(*kind)
    fine = found["fine"]
    assert (fine["status"], fine["backend"], fine["path"]) == (200, "stub/0", "/v1/chat/completions")
    assert (fine["client"], fine["tries"], fine["client_gone"], fine["error"]) == ("127.0.0.1", 1, False, None)
    assert 0.2 <= fine["ttft_s"] <= fine["duration_s"] <= 0.21
    assert fine["time"].startswith("2026-") and fine["time"].endswith("Z")
    assert fine["user"] is fine["completion_tokens"] is None
    assert found["refused-by-engine"]["status"] == 400
    assert (found["no-reply"]["status"], found["no-reply"]["ttft_s"]) == (502, None)
    assert (found["silent"]["status"], found["silent"]["truncated"]) == (504, False)
    assert found["gone"]["client_gone"] is True
    assert [found[f"elsewhere-{index}"]["tries"] for index in range(4)] == [1, 1, 1, 2]
    assert (found["own"]["tries"], found["own"]["backend"], found["own"]["path"]) == (0, None, "/gateway/x")
    assert (found["none-left"]["tries"], found["none-left"]["ttft_s"]) == (4, None)


def test_replies_that_broke_off():
    assert entries("haproxy", "2.6.12")["broken"]["truncated"] is True
    assert entries("haproxy", "2.6.12")["broken"]["error"] == "the engine refused or closed the connection during the reply"
    assert entries("haproxy", "2.6.12")["silent"]["error"] == "the engine was silent for too long before the reply"
    # nginx cannot tell: not false, but unknown.
    assert entries("nginx", "1.22.1")["broken"]["truncated"] is None


def test_the_beginning_is_the_time_of_a_line():
    assert entries("haproxy", "2.6.12")["fine"]["time"].endswith(":29.212Z")
    assert entries("nginx", "1.22.1")["silent"]["time"].endswith(":37.198Z")


@pytest.mark.parametrize("line", ["", "Server engines/b2 is DOWN", "{}", "[]", "null", '{"id": 1', '{"s": "x"}', "\0"])
def test_other_lines_are_none(kind, line):
    assert proxy_lines.read(kind[0], line, NAMES) is None
