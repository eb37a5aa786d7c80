# ruff: noqa: E501  log lines are as long as they are
"""`modelyard triage` and the filter: the same answer, without secrets, and an exit status that says what it was."""

from __future__ import annotations

import io
import json
import sys

import pytest
from ansible.errors import AnsibleFilterError
from unit.test_filters import call

from modelyard import cli

LOG = "ValueError: No available memory for the cache blocks. HF_TOKEN=hf_abcdefghijklmnop\nEngineDeadError: EngineCore encountered an issue.\n"


def test_a_log_is_explained_in_words_and_as_json(tmp_path, capsys):
    file = tmp_path / "a.log"
    file.write_text(LOG)
    assert cli.main(["triage", str(file)]) == 0
    shown = capsys.readouterr().out
    for part in (
        "Layer: kv_cache_memory",
        "kv_cache_no_blocks",
        "No available memory",
        "What only follows:",
        "engine_dead_error_only",
    ):
        assert part in shown
    assert cli.main(["triage", "--json", str(file)]) == 0
    machine = capsys.readouterr().out
    assert json.loads(machine)["cause"] == "kv_cache_no_blocks"
    assert "hf_abc" not in shown + machine


def test_several_logs_are_merged_and_the_one_of_the_first_error_is_named(tmp_path, capsys):
    (tmp_path / "api").write_text("ERROR 11-29 10:00:09 [a.py:1] EngineDeadError\n")
    (tmp_path / "worker").write_text("ERROR 11-29 10:00:01 [a.py:1] Memory access fault by GPU node-1\n")
    assert cli.main(["triage", str(tmp_path / "api"), str(tmp_path / "worker")]) == 0
    assert f"Where: {tmp_path / 'worker'}" in capsys.readouterr().out


def test_the_standard_input_and_a_log_without_a_sign(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"all is well\n")))
    assert cli.main(["triage", "-"]) == 1
    assert "nothing in this text tells of a failure" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_named_before_anything_is_judged(tmp_path, capsys):
    (tmp_path / "a").write_text(LOG)
    assert cli.main(["triage", str(tmp_path / "a"), str(tmp_path / "none")]) == 2
    seen = capsys.readouterr()
    assert seen.out == "" and str(tmp_path / "none") in seen.err and "Nothing was judged" in seen.err


def test_the_filter_gives_plain_data_without_secrets_and_refuses_what_is_no_text():
    answer = call("modelyard_triage", LOG)
    assert answer["layer"] == "kv_cache_memory" and "hf_abc" not in json.dumps(answer)
    with pytest.raises(AnsibleFilterError, match=r"Pass \.stdout"):
        call("modelyard_triage", ["a"])
