"""Logs and the history of starts; what the keeper does with processes is in tests/integration/test_keeper.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import history, logfile
from hypothesis import given
from hypothesis import strategies as st


def start(folder, keep=20, starts=()):
    path, handle = logfile.create(folder, keep, starts)
    os.write(handle, path.name.encode())
    os.close(handle)
    return path


def entry(log, at=0.0, ordered=False, **changes):
    return {**history.entry(log, at, ordered), **changes}


def test_each_start_has_a_log_of_its_own_and_current_points_to_it(tmp_path):
    paths = [start(tmp_path / "logs") for _ in range(5)]
    assert len(set(paths)) == 5
    assert (tmp_path / "logs/current.log").resolve() == paths[-1]
    assert [p.read_text() for p in paths] == [p.name for p in paths]


def test_old_logs_go_and_the_newest_stay_with_the_one_that_is_written(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for day in range(1, 31):
        path = logs / f"202511{day:02d}T000000Z.log"
        path.write_text("old")
        os.utime(path, (day, day))
    path = start(logs)
    kept = sorted(p.name for p in logs.iterdir() if not p.is_symlink())
    assert len(kept) == 20
    assert path.name in kept
    assert kept[0] == "20251112T000000Z.log"


def test_many_starts_in_one_second_never_remove_the_log_that_is_being_written(tmp_path):
    for _ in range(60):
        assert start(tmp_path / "logs").is_file()


def test_the_first_log_of_a_crash_that_repeats_is_kept(tmp_path):
    logs, starts = tmp_path / "logs", [entry("healthy.log", served_s=3600.0)]
    for place in range(6):
        path = start(logs, 3, starts)
        os.utime(path, (place, place))
        starts.append(entry(path.name, at=place, ended_at=place + 0.5))
        if place == 0:
            first = path
    assert first.is_file()
    assert len([p for p in logs.iterdir() if not p.is_symlink()]) == 4
    # Once it has served for long, the story is over.
    starts[-1].update(served_s=3600.0)
    start(logs, 3, starts)
    assert not first.exists()


@pytest.mark.parametrize(
    ("starts", "now", "wait"),
    [
        ([], 100.0, 0.0),
        ([entry("a", ended_at=100.0)], 100.0, 10.0),
        ([entry("a", ended_at=100.0)], 104.0, 6.0),
        ([entry("a", ended_at=100.0)], 200.0, 0.0),
        ([entry("a", ended_at=1.0), entry("b", ended_at=100.0)], 100.0, 20.0),
        ([entry("x", ended_at=1.0)] * 3 + [entry("b", ended_at=100.0)], 100.0, 80.0),
        ([entry("x", ended_at=1.0)] * 50 + [entry("b", ended_at=100.0)], 100.0, 300.0),
        ([entry("a", ended_at=100.0, asked=True)], 100.0, 0.0),
        ([entry("a", ended_at=100.0, served_s=700.0)], 100.0, 0.0),
        ([entry("a", ended_at=1.0), entry("b", ended_at=2.0), entry("c", ordered=True, ended_at=100.0)], 100.0, 10.0),
        ([entry("a", ended_at=9999.0)], 100.0, 10.0),  # the clock was set back
        ([entry("a", at=95.0)], 100.0, 5.0),  # the keeper was killed: nobody wrote down the end
    ],
)
def test_how_long_the_next_start_waits(starts, now, wait):
    assert history.wait_s(starts, now) == wait


numbers = st.floats(0, 1e9, allow_nan=False)
starts = st.builds(
    entry,
    st.text(min_size=1, max_size=5),
    numbers,
    ordered=st.booleans(),
    asked=st.booleans(),
    ended_at=st.none() | numbers,
    served_s=st.floats(0, 5000),
)


@given(st.lists(starts, max_size=30), numbers)
def test_a_wait_is_never_longer_than_the_longest_and_never_negative(listed, now):
    assert 0 <= history.wait_s(listed, now) <= history.LONGEST_WAIT_S


@given(
    st.lists(st.text("abc", min_size=1, max_size=6), unique=True, max_size=30), st.integers(1, 10), st.lists(starts, max_size=5)
)
def test_the_newest_logs_are_never_superfluous(logs, keep, listed):
    gone = history.superfluous(logs, keep, listed)
    assert not set(gone) & set(logs[-keep:])
    assert len(logs) - len(gone) <= keep + 1


@pytest.mark.parametrize("data", [None, {}, [], {"starts": 3}, {"starts": [1, {}, {"log": 3}, {"log": "a", "at": "x"}]}])
def test_garbage_in_the_history_is_no_history(data):
    assert history.whole(data) == []


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize("collapse", [True, False], ids=["cut out", "moved"])
def test_a_log_beyond_its_cap_keeps_beginning_and_end_and_says_what_is_missing(tmp_path, monkeypatch, collapse):
    if not collapse:
        monkeypatch.setattr(logfile, "_collapse", lambda *more: False)
    path, cap = tmp_path / "a.log", 2**20
    wanted = [f"line {number:07d}" for number in range(200_000)]
    path.write_text("\n".join(wanted) + "\n")
    size = path.stat().st_size
    gone = logfile.trim(path, cap)
    assert gone > 0
    assert cap // 2 < path.stat().st_size <= cap
    kept = lines(path)
    note = next(place for place, line in enumerate(kept) if line.startswith("--- modelyard: "))
    assert kept[: note - 1] == wanted[: note - 1]
    assert kept[note - 1] in (wanted[note - 1], wanted[note - 1][: len(kept[note - 1])], "")
    tail = kept[note + 2 :]
    assert tail
    assert tail == wanted[-len(tail) :]
    told = int(kept[note].split()[2])
    assert abs(size - told - path.stat().st_size) < 4096 + 512
    assert logfile.trim(path, cap) == 0


@pytest.mark.parametrize("collapse", [True, False], ids=["cut out", "moved"])
def test_what_an_engine_appends_meanwhile_comes_behind(tmp_path, monkeypatch, collapse):
    if not collapse:
        monkeypatch.setattr(logfile, "_collapse", lambda *more: False)
    path, handle = logfile.create(tmp_path / "logs", 20, ())
    os.write(handle, b"x" * 99 + b"\n")
    for number in range(12):
        os.write(handle, (f"{number:06d}" + "y" * 93 + "\n").encode() * 2000)
        logfile.trim(path, 2**20)
        os.write(handle, f"after {number}\n".encode())
    os.close(handle)
    text = path.read_text()
    assert path.stat().st_size < 2**20 + 300_000
    assert text.startswith("x" * 99)
    assert text.endswith("after 11\n")
    assert "\0" not in text
    notes = [line for line in text.splitlines() if line.startswith("--- modelyard: ")]
    assert len(notes) == 1
    written = 100 + 12 * 200_000 + sum(len(f"after {number}\n") for number in range(12))
    assert abs(written - path.stat().st_size - int(notes[0].split()[2])) < 12 * 512


def test_a_log_below_its_cap_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("short\n")
    before = path.stat().st_mtime_ns
    assert logfile.trim(path, 2**20) == 0
    assert path.stat().st_mtime_ns == before
    assert logfile.trim(tmp_path / "gone.log", 10) == 0


def test_nothing_is_lost_where_a_range_can_be_cut_out(tmp_path):
    # Another process writes numbered lines as fast as it can while the middle is taken out again and again.
    path = tmp_path / "a.log"
    path.touch()
    code = (
        "import os, sys\n"
        "log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)\n"
        "for number in range(400000): os.write(log, b'%09d xxxxxxxxxxxxxxxxxxxx\\n' % number)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    cuts = 0
    while writer.poll() is None:
        cuts += logfile.trim(path, 2**20) > 0
    kept = lines(path)
    note = next(place for place, line in enumerate(kept) if line.startswith("--- modelyard: "))
    assert cuts > 3
    numbers = [int(line[:9]) for line in kept[note + 2 :]]
    probe = tmp_path / "probe.log"
    probe.write_bytes(b"x" * 2**20)
    with probe.open("r+b") as stream:
        exact = logfile._collapse(stream.fileno(), logfile.BLOCK, logfile.BLOCK)
    if exact:
        assert numbers == list(range(numbers[0], 400000))
    assert numbers[-1] == 399999
