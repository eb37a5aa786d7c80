"""modelyard.yml: everything that is wrong is said at once, with the right key."""

from __future__ import annotations

import pytest

from modelyard.accept import config


def wrong(data):
    with pytest.raises(config.Wrong) as caught:
        config.of(data, "modelyard.yml")
    return str(caught.value)


def test_without_a_file_the_defaults_hold(tmp_path):
    found = config.read(None, tmp_path)
    assert (found.keep_runs, found.keep_days, found.tell) == (100, 90, [])


def test_a_whole_file(tmp_path):
    webhook = "- {kind: webhook, url: https://hooks.example.org/x}"
    mail = "- {kind: mail, to: [a@b.example], name: on call}"
    (tmp_path / config.NAME).write_text(f"keep_runs: 20\ntell:\n{webhook}\n{mail}\n", encoding="utf-8")
    found = config.read(None, tmp_path)
    assert found.keep_runs == 20
    assert [(way["name"], way["timeout_s"]) for way in found.tell] == [("webhook 0", 15), ("on call", 15)]
    assert found.tell[1]["command"] == ["/usr/sbin/sendmail", "-t", "-i"]


def test_mistakes_come_together_with_the_nearest_right_key():
    said = wrong({"keep_run": 3, "limit_s": "long", "tell": [{"kind": "webhok"}, {"kind": "mail", "too": "x"}, "mail"]})
    for words in ("keep_run (did you mean keep_runs?)", "limit_s is 'long'", "did you mean webhook?", "too (did you mean to?)"):
        assert words in said
    assert "tell[2] is str" in said


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ({"kind": "webhook"}, "exactly one of url and url_file"),
        ({"kind": "webhook", "url": "https://x", "url_file": "/x"}, "exactly one of url and url_file"),
        ({"kind": "webhook", "url": "ftp://x"}, "url must begin with https://"),
        ({"kind": "mail"}, "to must be a list of words"),
        ({"kind": "mail", "to": ["a@b\nBcc: c@d"]}, "without commas and line ends"),
        ({"kind": "mail", "to": ["a@b"], "from": "x\ny"}, "from has a line end"),
        ({"kind": "command"}, "command must be a list of words"),
        ({"kind": "command", "command": ["a", 1]}, "command must be a list of words"),
        ({"kind": "command", "command": ["a"], "timeout_s": 0}, "at least 1 is wanted"),
        ({"kind": "command", "command": ["a"], "timeout_s": float("nan")}, "at least 1 is wanted"),
    ],
)
def test_what_a_way_needs(way, words):
    assert words in wrong({"tell": [way]})


def test_two_ways_of_one_name_are_refused():
    way = {"kind": "command", "command": ["a"], "name": "x"}
    assert "two entries of tell are named x" in wrong({"tell": [way, way]})


@pytest.mark.parametrize(
    ("text", "words"), [("a: [", "is no YAML"), ("- x", "holds list"), ("keep_runs: true", "keep_runs is True")]
)
def test_files_that_are_none(tmp_path, text, words):
    path = tmp_path / "mine.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(config.Wrong, match=words):
        config.read(path, tmp_path)
    with pytest.raises(config.Wrong, match="cannot be read"):
        config.read(tmp_path / "absent.yml", tmp_path)
