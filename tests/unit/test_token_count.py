"""Counting the lines of a part with the program that runs in a runtime's Python; the runtime's transformers are a stub."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest
import tokenizer_stub
from ansible_collections.modelyard.core.plugins.module_utils.plan.token_counts import Counts
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import token_count
from ansible_collections.modelyard.core.plugins.module_utils.survey.token_count import Failed, Tokenizer
from unit import worlds

PROGRAM = (worlds.ROOT / "roles/context_fit/files/count_tokens.py").read_text(encoding="utf-8")
USER = {"role": "user", "content": "one two three"}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return str(tokenizer_stub.install(tmp_path_factory.mktemp("runtime") / "r") / "bin/python")


def opened(python, tmp_path, fault="", template="", **config):
    return Tokenizer(python, PROGRAM, str(tokenizer_stub.model(tmp_path / "model", fault, **config)), template, False)


def counted(lines, tokenizer, plain=False, **settings):
    counts = Counts(settings.get("reserve", 0), settings.get("limit"))
    stream = io.BytesIO(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    token_count.count(stream, counts, settings.get("first", 1), plain, lambda: tokenizer)
    return counts


def test_prompts_are_counted_as_the_engine_makes_them(python, tmp_path):
    with opened(python, tmp_path) as tokenizer:
        assert tokenizer.loaded["config"]["defaulted"] is True
        assert (tokenizer.loaded["tokenizer"], tokenizer.loaded["template"]) == ("Tokenizer", True)
        wanted = [["a b", True, {}], ["a b", False, {}], [[USER], False, {}], [[USER], False, {"tools": [{}]}]]
        assert tokenizer.count(wanted) == [3, 3, 4, 5]


def test_a_template_that_refuses_damages_one_line_and_says_nothing_of_it(python, tmp_path):
    strange = {"messages": [{"role": "strange", "content": "SECRET"}]}
    half = rb'{"text": "SECRET \ud83d"}'  # of a character: json reads it, a tokenizer does not take it
    with opened(python, tmp_path) as tokenizer:
        counts = counted([{"messages": [USER]}, strange, b"{\n", b"\n", {"tokens": 9}, b"a b c\n", half], tokenizer, first=100)
    assert (counts.prompts, counts.damaged, counts.skipped, counts.lines) == (3, 3, 1, 7)
    assert counts.damaged_lines == [
        (101, "the chat template refuses it (ValueError)"),
        (102, "it is no JSON"),
        (106, "the tokenizer refuses it (UnicodeEncodeError)"),
    ]
    assert counts.longest == [(9, 104), (4, 100), (4, 105)]
    assert "SECRET" not in json.dumps(counts.data())


def test_many_prompts_go_in_batches(python, tmp_path):
    with opened(python, tmp_path) as tokenizer:
        counts = counted([{"prompt": "x " * (number % 7)} for number in range(1000)], tokenizer)
        assert (counts.prompts, counts.longest_prompt) == (1000, 7)
        large = counted([{"prompt": "word " * 400_000}] * 3, tokenizer)
    assert large.lengths == {token_count.Counts(0, None).longest_prompt + 400_064: 3}


def test_the_next_batch_is_read_while_one_is_counted():
    counts, seen = Counts(0, None), []

    class Slow:
        def send(self, wanted):
            seen.append(("sent", len(wanted), counts.lines))

        def answer(self):
            seen.append(("taken", counts.prompts, counts.lines))
            return [1] * 256

    token_count.count(io.BytesIO(b"a text\n" * 600), counts, 1, False, Slow)
    first, second = ("sent", 256, 256), ("sent", 256, 512)
    assert seen == [first, ("taken", 0, 512), second, ("taken", 256, 600), ("sent", 88, 600), ("taken", 512, 600)]
    assert counts.prompts == 600


def test_numbers_need_no_tokenizer():
    def none():
        raise Failed("there is none")

    counts = Counts(0, None)
    token_count.count(io.BytesIO(b"7\n9\n"), counts, 1, False, none)
    assert counts.lengths == {7: 1, 9: 1}
    with pytest.raises(Failed, match="there is none"):
        token_count.count(io.BytesIO(b"a text\n"), counts, 1, False, none)


def test_without_a_template_texts_are_taken_as_they_are(python, tmp_path):
    with opened(python, tmp_path, "no template") as tokenizer:
        assert tokenizer.count([["a b", False, {}]]) == [3]
        assert tokenizer.loaded["template"] is False
    (tmp_path / "t.jinja").write_text("other", encoding="utf-8")
    with Tokenizer(python, PROGRAM, str(tmp_path / "model"), str(tmp_path / "t.jinja"), False) as tokenizer:
        assert tokenizer.loaded["template"] is True


def test_a_config_that_transformers_do_not_know_is_left_to_config_json(python, tmp_path):
    with opened(python, tmp_path, model_type="unheard of") as tokenizer:
        assert tokenizer.loaded["config"] is None


def test_what_cannot_be_loaded_is_said(python, tmp_path):
    with pytest.raises(Failed, match=r"could not be loaded: OSError: tokenizer.json is not there$"):
        opened(python, tmp_path, "broken")
    with pytest.raises(Failed, match="could not be started: No such file"):
        Tokenizer("/nowhere/python", PROGRAM, "/nowhere", "", False)
    with pytest.raises(Failed, match=r"ended with 1: ModuleNotFoundError: No module named 'nothing'"):
        Tokenizer(python, "import nothing", "/nowhere", "", False)


def test_a_program_that_dies_or_hangs_is_said_and_ended(python, tmp_path, monkeypatch):
    with opened(python, tmp_path / "a", "dies") as tokenizer, pytest.raises(Failed, match="ended with 7: out of luck"):
        tokenizer.count([["a", True, {}]])
    with opened(python, tmp_path / "b", "hangs") as tokenizer:
        monkeypatch.setattr(token_count, "LIMIT_S", 0.3)
        began = time.monotonic()
        with pytest.raises(Failed, match="did not answer within"):
            tokenizer.count([["a", True, {}]])
        assert time.monotonic() - began < 5
        pid, folder = tokenizer._process.pid, tokenizer._folder.name
        assert os.path.exists(folder)
    assert not os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(folder)


def test_a_part_loses_its_name_before_it_is_read(tmp_path):
    part = tmp_path / "part"
    part.write_bytes(b"7\n")
    with token_count.taken(str(part)) as stream:
        assert not part.exists()
        assert stream.read() == b"7\n"


def test_what_runs_is_asked_for_its_length_and_its_cache(tmp_path):
    log = worlds.ROOT / "tests/fixtures/vllm-logs-0.32.0-cpu/worker-sigkilled.log"
    home = tmp_path / "home"
    assert token_count.deployed(str(home), "tiny") == {"max_model_len": None, "running": False, "cache": None}
    for index, path in enumerate((str(log), "/nowhere")):
        folder = layout.instance_dir(str(home), "tiny", index)
        (folder / "run").mkdir(parents=True)
        leader = {"pid": os.getpid() if index else 1, "start": 1}
        launch = {"argv": ["vllm", "serve", "/m", "--max-model-len", "2048"], "environment": {}}
        request = {"digest": "d", "host": "127.0.0.1", "port": 1, "launch": launch}
        state = {"log": path, "started_at": 1.0, "ended": None, "keeper": leader, "leader": leader, "request": request}
        layout.write_json(folder / "run" / "state.json", state)
    found = token_count.deployed(str(home), "tiny")
    assert (found["max_model_len"], found["running"]) == ("2048", False)
    assert found["cache"] == {"tokens": 2097152, "length": 2048, "concurrency": 1024.0, "available_gib": None}
    assert token_count.deployed(str(home), "") == {"max_model_len": None, "running": False, "cache": None}
    assert Path(log).exists()
