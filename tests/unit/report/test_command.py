from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_page import RECORDS, Page, record
from unit import worlds

from modelyard.report import command


def report(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def runs(tmp_path):
    """The record of a run, and the folder of the earlier ones, where one has a page beside it and one is damaged."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for hour, name, answer in (
        (5, "previous", "accepted"),
        (6, "previous", "busy"),
        (11, "failed_schema", "failed"),
        (12, "previous", "accepted"),
    ):
        run = {**record(name), "id": f"20261130T{hour:02d}4200Z", "answer": answer}
        (folder / f"{run['id']}.json").write_text(json.dumps(run))
    (folder / "20261130T054200Z.html").write_text("a page")
    return folder


def test_the_page_lies_beside_the_record_and_knows_the_runs_before(runs, capsys):
    (runs / "20261129T000000Z.json").write_text("{")
    assert report(runs / "20261130T114200Z.json", "--history", runs, "--load", RECORDS / "load_sweep.json") == 0
    told = capsys.readouterr()
    assert told.out == f"Written: {runs}/20261130T114200Z.html\n"
    assert told.err.startswith(f"left out of the history: {runs}/20261129T000000Z.json holds no JSON")
    found = Page((runs / "20261130T114200Z.html").read_text())
    assert [own["href"] for tag, own in found.elements if tag == "a"] == ["20261130T054200Z.html"]
    assert "compared with run 20261130T054200Z" in found.text  # not the busy one, nor the later one
    assert "Load tests" in found.text
    assert sorted(path.name for path in runs.iterdir() if path.name.startswith(".")) == []
    assert (runs / "20261130T114200Z.html").stat().st_mode & 0o777 == 0o644


def test_pages_in_another_folder_are_linked_by_their_way(runs, tmp_path):
    (tmp_path / "pages").mkdir()
    assert report(runs / "20261130T114200Z.json", "--history", runs, "-o", tmp_path / "a.html") == 0
    links = [own["href"] for tag, own in Page((tmp_path / "a.html").read_text()).elements if tag == "a"]
    assert links == ["runs/20261130T054200Z.html"]


def test_the_page_on_the_screen(capsys):
    assert report(RECORDS / "accepted.json", "-o", "-") == 0
    assert "first run" in Page(capsys.readouterr().out).text


def test_the_plain_lines(capsys):
    assert report(RECORDS / "accepted.json", "--text") == 0
    assert capsys.readouterr().out.startswith("Accepted: inventory/lab_4090, 1 of 1 service on 1 host accepted\n")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{", "holds no JSON"),
        (b"\xff\xfe", "holds no JSON"),
        (b"[" * 100_000, "holds no JSON"),
        (b"[]", "holds no record, but list"),
        (b"{}", "is no record of a run: it has no hosts"),
    ],
)
def test_what_is_no_record_is_named(tmp_path, capsys, content, told):
    file = tmp_path / "run.json"
    if content is not None:
        file.write_bytes(content)
    assert report(file) == 2
    assert capsys.readouterr().err.startswith(f"{file} {told}")
    assert not file.with_suffix(".html").exists()


@pytest.mark.parametrize("words", [("--load", "{gone}"), ("--history", "{gone}")])
def test_what_is_named_and_not_there_is_said(tmp_path, capsys, words):
    gone = tmp_path / "gone"
    assert report(RECORDS / "accepted.json", *(word.format(gone=gone) for word in words), "-o", tmp_path / "a.html") == 2
    assert str(gone) in capsys.readouterr().err


def test_what_cannot_be_written_leaves_the_old_page(tmp_path, capsys, monkeypatch):
    page = tmp_path / "a.html"
    page.write_text("the old one")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command.Path, "replace", full)
    assert report(RECORDS / "accepted.json", "-o", page) == 1
    assert capsys.readouterr().err == f"{page} was not written: No space left on device; what was there before is unchanged\n"
    assert page.read_text() == "the old one" and [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_a_folder_that_is_not_there_is_said(tmp_path, capsys):
    assert report(RECORDS / "accepted.json", "-o", tmp_path / "no/a.html") == 1
    assert "was not written: No such file or directory" in capsys.readouterr().err


def started(*words, **more):
    command_line = [sys.executable, "-m", "modelyard", "report", *map(str, words)]
    return subprocess.run(command_line, cwd=worlds.ROOT / "src", stderr=subprocess.PIPE, check=False, **more)


def test_a_reader_that_stops_reading_is_no_failure():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = started(RECORDS / "failed_schema.json", "-o", "-", stdout=gone)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_behind_the_screen_is_said():
    with Path("/dev/full").open("wb") as full:
        done = started(RECORDS / "accepted.json", "--text", stdout=full)
    assert done.returncode == 1 and done.stderr.startswith(b"it could not be shown: No space left on device\n")


def test_it_is_a_command_of_its_own():
    done = started(RECORDS / "busy.json", "--text", stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.startswith(b"Busy: not judged")
