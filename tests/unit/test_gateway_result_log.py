"""The result log on good and on bad disks: it never blocks, never raises, loses nothing silently, and stays lines of JSON."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import time

import pytest
from harness import ROOT
from modelyard_gateway import result_log
from modelyard_gateway.result_log import ResultLog, entry
from modelyard_gateway.rotating import Rotating


@pytest.fixture
def opened():
    logs = []

    def make(path, limit=1_000_000, keep=3):
        logs.append(ResultLog(str(path), limit, keep, retry_s=0.02))
        return logs[-1]

    yield make
    for log in logs:
        log.close(0)


def lines(path):
    return [json.loads(line) for line in path.read_bytes().decode().splitlines()]


def until(condition):
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_lines_are_written_in_order_and_close_waits_for_them(tmp_path, opened):
    path = tmp_path / "new/logs/results.jsonl"
    log = opened(path)
    for number in range(5000):
        log.write({"n": number, "text": "é\ud800"})
    assert log.close(20) is True
    assert [line["n"] for line in lines(path)] == list(range(5000))
    assert log.state() == {"path": str(path), "written": 5000, "dropped": 0, "problem": ""}
    assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0
    log.write({"n": 0})
    assert log.state()["dropped"] == 1


def test_no_file_passes_its_limit_and_the_oldest_goes(tmp_path, opened):
    path = tmp_path / "results.jsonl"
    log = opened(path, 2000)
    for number in range(1000):
        log.write({"n": number})
    assert log.close(20) is True
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["results.jsonl", "results.jsonl.1", "results.jsonl.2"]
    assert all(file.stat().st_size <= 2000 for file in files)
    found = [line["n"] for file in reversed(files) for line in lines(file)]
    assert found == list(range(1000))[-len(found) :]
    assert len(found) > 300


def test_a_file_that_is_too_large_already_is_rotated_and_a_torn_line_is_cut_off(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"n":1}\n' * 300 + b'{"n":')
    file = Rotating(str(path), 1000, 2)
    assert file.append([b'{"n":2}\n']) == 1
    file.close()
    assert (lines(path), len(lines(tmp_path / "results.jsonl.1"))) == ([{"n": 2}], 300)
    alone = Rotating(str(tmp_path / "one"), 10, 1)
    for _ in range(3):
        assert alone.append([b'{"n":3}\n', b'{"n":4}\n']) == 1
    assert lines(tmp_path / "one") == [{"n": 3}]


def test_a_file_that_somebody_moves_or_removes_is_made_again(tmp_path):
    path = tmp_path / "logs/results.jsonl"
    file = Rotating(str(path), 1000, 2)
    file.append([b"1\n"])
    path.rename(tmp_path / "away")
    file.append([b"2\n"])
    path.unlink()
    path.parent.rmdir()
    file.append([b"3\n"])
    file.close()
    assert ((tmp_path / "away").read_text(), path.read_text()) == ("1\n", "3\n")


def test_a_full_disk_stops_nothing_and_is_told_when_there_is_room_again(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(result_log, "QUEUE_LINES", 10)
    path = tmp_path / "results.jsonl"
    path.symlink_to("/dev/full")
    log = opened(path)
    for number in range(50):
        log.write({"n": number})
    until(lambda: log.state()["problem"])
    assert "No space left" in log.state()["problem"]
    log.write({"n": 50})
    assert log.state()["dropped"] == 41
    path.unlink()
    until(lambda: log.state()["written"] == 10)
    assert log.close(20) is True
    *kept, note = lines(path)
    assert [line["n"] for line in kept] == list(range(10))
    assert note["note"].startswith("41 lines were lost: ")
    assert log.state()["problem"] == ""


@pytest.mark.parametrize("way", ["folder is a file", "path is a folder"])
def test_a_place_that_cannot_be_written_is_a_problem_and_no_error(tmp_path, opened, way):
    (tmp_path / "there").touch() if way == "folder is a file" else (tmp_path / "there/log").mkdir(parents=True)
    log = opened(tmp_path / "there/log")
    log.write({"n": 1})
    until(lambda: log.state()["problem"])
    assert str(tmp_path / "there/log") in log.state()["problem"]
    assert log.close(0.1) is False


def test_what_is_no_json_is_counted(tmp_path, opened):
    log, loop = opened(tmp_path / "log"), []
    loop.append(loop)
    log.write({"n": loop})
    assert log.close(20) is True
    assert "no JSON" in lines(tmp_path / "log")[0]["note"]


def test_a_line_that_has_only_half_the_room_leaves_nothing_behind(tmp_path):
    """With the kernel's own limit of a file's size: a write that is cut short, then one that fails."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY));"
        "from modelyard_gateway.rotating import Rotating; f = Rotating(sys.argv[1], 1000, 2); f.append([b'1' * 59 + b'\\n']);\n"
        "for _ in range(2):\n  try: f.append([b'2' * 59 + b'\\n']); print('written')\n  except OSError as e: print(e.errno)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2); f.append([b'3\\n'])"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "roles/gateway/files")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "log")], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["28", "28"]
    assert (tmp_path / "log").read_text() == "1" * 59 + "\n3\n"


def test_a_line_has_its_keys_in_order_and_safe_values():
    line = entry(
        1796015776.1239, id="r-1", snippet="a\nb\x1b[31m", duration_s=1.23456789, error="kept\nas it is", user="u" * 2000
    )
    assert list(line) == list(result_log.KEYS)
    assert line["time"] == "2026-11-30T05:16:16.123Z"
    assert (line["snippet"], line["duration_s"], line["error"]) == ("a b [31m", 1.2346, "kept\nas it is")
    assert (len(line["user"]), line["status"]) == (1000, None)
    with pytest.raises(TypeError, match="has no authorization"):
        entry(0, authorization="Bearer x")
