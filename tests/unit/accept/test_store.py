"""The state folder: history, room, and what is cut or removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from unit.accept import runs

from modelyard import files
from modelyard.accept import store

DAY = 86400.0


@pytest.fixture
def place(tmp_path):
    made = store.Store(tmp_path / "state")
    assert made.prepare() == ""
    return made


def keep(place, number, answer="accepted"):
    id = f"20261130T1142{number:02}Z"
    record = {**runs.run({}, id=id, began=number * DAY), "answer": answer}
    for kind in ("json", "html"):
        place.put(f"runs/{id}.{kind}", files.write_json, record)
    return id


def test_the_history_comes_from_the_records_when_its_own_file_is_lost(place):
    ids = [keep(place, number) for number in (1, 2)]
    found = place.history()
    assert [(entry["id"], entry["began"]) for entry in found] == [(ids[0], DAY), (ids[1], 2 * DAY)]
    assert {entry["answer"] for entry in found} == {"accepted"}
    place.put("history.json", files.write_json, {"schema": 1, "runs": [{**found[0], "answer": "busy"}, {"id": 7}]})
    assert [entry["answer"] for entry in place.history()] == ["busy", "accepted"], "what it says is not read again"
    assert place.words == []


def test_what_is_beyond_the_limits_goes_with_all_its_files(place):
    ids = [keep(place, number) for number in range(1, 6)]
    (place.runs / "notes.txt").write_text("mine", encoding="utf-8")
    kept = place.tidy(place.history(), 5 * DAY, 2, 90)
    assert [entry["id"] for entry in kept] == ids[-2:]
    assert sorted(path.name for path in place.runs.iterdir()) == sorted(
        ["notes.txt", *(f"{id}.{kind}" for id in ids[-2:] for kind in ("json", "html"))]
    )


def test_damaged_records_stay_until_they_are_old(place):
    path = place.runs / "20200101T000000Z.json"
    path.write_text("{", encoding="utf-8")
    assert place.history() == []
    assert str(path) in place.words[0]
    place.tidy([], path.stat().st_mtime + DAY, 9, 2)
    assert path.exists()
    place.tidy([], path.stat().st_mtime + 3 * DAY, 9, 2)
    assert not path.exists()


def test_latest_points_to_the_newest(place):
    for number in (1, 2):
        place.link(keep(place, number))
    assert os.readlink(place.folder / "latest.json") == "runs/20261130T114202Z.json"
    assert not (place.folder / "latest.log").exists()


def full_at(monkeypatch, *folders):
    """No room below these folders."""
    real = Path.write_bytes

    def write(path, data):
        if any(path.is_relative_to(folder) for folder in folders):
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)


def test_a_run_works_where_there_is_room_and_leaves_nothing(place, monkeypatch):
    (place.folder / "work").mkdir()
    (place.folder / "work/of-a-run-that-was-killed").write_text("x", encoding="utf-8")
    with place.work() as work:
        assert work == place.folder / "work"
        assert list(work.iterdir()) == []
    assert not work.exists()
    full_at(monkeypatch, place.folder)
    with place.work() as work:
        assert not work.is_relative_to(place.folder)
        assert work.stat().st_mode & 0o777 == 0o700
    assert not work.exists()
    assert f"the disk of {place.folder} is full" in place.words[0]
    full_at(monkeypatch, "/")
    with pytest.raises(OSError, match="no disk has room for it"), place.work():
        pass
    assert not (place.folder / "work").exists()


def test_room_is_kept_for_what_was_told(place):
    tries = []

    def write(path, data):
        tries.append((place.folder / store.RESERVE).exists())
        if tries[-1]:
            raise OSError(28, "No space left on device")

    place.put("latest", write, {})
    assert (place.folder / store.RESERVE).stat().st_size == store.RESERVE_BYTES
    assert "latest was not written: No space left on device" in place.words.pop()
    place.put("told.json", write, {}, with_reserve=True)
    assert (tries, place.words) == ([True, True, False], [])
    assert place.prepare() == ""
    assert (place.folder / store.RESERVE).exists(), "it is made again where there is room"


def test_its_folders_are_for_their_owner_alone(tmp_path):
    place = store.Store(tmp_path / "accept" / "lab")
    assert place.prepare() == ""
    assert {path.stat().st_mode & 0o777 for path in (place.folder, place.runs)} == {0o700}


def test_a_disk_that_was_always_full_is_told_as_full(tmp_path):
    place = store.Store(tmp_path)

    def write(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    place.put("told.json", write, {}, with_reserve=True)
    assert place.words == [f"{tmp_path}/told.json was not written: No space left on device"]


def test_of_a_long_output_the_middle_is_left_out():
    text = "a" * store.LOG_HEAD + "b" * 99 + "c" * store.LOG_TAIL
    assert store.bounded(text) == text.replace("b" * 99, "\n... 99 characters left out ...\n")
    assert store.bounded("short") == "short"
