"""Which max_model_len prompts need, what it costs, and how it is told."""

from __future__ import annotations

import io
import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import (
    attention,
    context_fit,
    context_fit_text,
    kv_cache,
    numbers,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan.token_counts import Counts
from ansible_collections.modelyard.core.plugins.plugin_utils import parts as cutting
from hypothesis import given
from hypothesis import strategies as st
from unit.test_kv_cache import GEMMA_3_27B, QWEN3_14B

GIB = 2**30
CONFIG = {**QWEN3_14B, "max_position_embeddings": 40960}
#: 20 prompts of a retrieval service; 13 are longer than 8192.
STORY = [*range(5000, 8192, 500), *[9000] * 12, 9921]


def judged(lengths, engine=None, config=None, tp=1, backend="nvidia", gib=16.0, logged=None, deployed=None, reserve=1024):
    engine, config = engine or {}, config or CONFIG
    found = kv_cache.cache(attention.layout(config, engine, tp), engine, backend)
    wanted = context_fit.wish("qwen", engine, backend, tp, config, deployed)
    counts = Counts(reserve, wanted.today)
    for line, tokens in enumerate(lengths, 1):
        counts.lines += 1
        counts.add(line, tokens, None)
    space = context_fit.room(found, wanted, logged, gib * GIB if gib else None)
    return context_fit.judge(counts, wanted, found, space)


def test_the_story_of_the_retrieval_requests_that_were_refused():
    found = judged(STORY, {"max_model_len": 8192, "max_num_seqs": 4})
    assert (found["prompts"], found["refused"], found["short"]) == (20, 13, 2)
    assert (found["needed"], found["advised"]) == (10945, 11264)
    assert found["longest"][0] == {"line": 20, "tokens": 10945}
    assert found["max_model_len"] == {"planned": 8192, "deployed": None, "model": 40960, "today": 8192}
    told = context_fit_text.report(found, "server1", "prompts.jsonl")
    assert "Context of qwen on server1: 20 prompt(s) in 20 line(s) of prompts.jsonl" in told
    assert "max_model_len 8192 (inventory) today: 13 of 20 refused (65.0 %), 2 more get no room for the whole answer" in told
    assert "-> set engine.max_model_len: 11264 (the longest prompt with its answer takes 10945 tokens)" in told
    assert "modelyard_restart=true" in told
    assert "11264 needs 1.7 GiB a request; 9 of that length fit at once into 16 GiB (estimated before a start)" in told


def test_what_a_length_costs_is_said_and_how_many_fit():
    found = judged([30000], {"max_model_len": 8192, "max_num_seqs": 8})
    assert found["advised"] == 31744
    found = judged([31744], {"max_model_len": 8192, "max_num_seqs": 8})
    assert "32768 needs 5.0 GiB a request; 3 of that length fit at once into 16 GiB (estimated before a start)" in found["advice"]
    assert any("max_num_seqs is 8: when more than 3 requests are that long" in line for line in found["advice"])
    assert [row["max_model_len"] for row in found["memory"]["lengths"]] == [8192, 32768, 40960]
    two = judged([31744], {"max_model_len": 8192}, tp=2)
    assert any(line.startswith("32768 needs 2.5 GiB a request on each of 2 cards; 6 of") for line in two["advice"])


def test_a_length_that_does_not_fit_once_is_said_to_keep_the_engine_from_starting():
    found = judged([31744], {"max_model_len": 8192}, gib=4.0)
    assert "0 of that length fit at once" in found["advice"][1]
    assert "the engine would not start with it: the longest that fits is 26192" in found["advice"][2]
    assert {"max_model_len": 25600, "refused": 1, "short": 0, "request_bytes": 25600 * 160 * 1024, "fit": 1} in found["memory"][
        "lengths"
    ]


def test_enough_is_enough():
    found = judged([100, 200], {"max_model_len": 8192})
    assert found["advice"][0] == "max_model_len 8192 is enough: the longest prompt with its answer takes 1224 tokens"
    assert (found["refused"], found["short"], found["advised"]) == (0, 0, 2048)


def test_a_few_very_long_prompts_are_told_from_the_rest():
    found = judged([500] * 199 + [30000], {"max_model_len": 1024})
    assert "without the longest 1 % of the prompts 2048 is enough" in found["advice"]


def test_what_the_model_cannot_do_is_no_length_to_set():
    found = judged([50000, 100], {"max_model_len": 40960})
    assert found["advised"] == 40960
    assert found["advice"][0].startswith("1 of 2 need more than the model was made for (40960 tokens, config.json)")
    assert found["advice"][1].startswith("max_model_len 40960 is enough")


def test_without_a_planned_length_the_model_decides():
    found = judged([50], {})
    assert found["max_model_len"]["today"] == 40960
    assert judged([50], {"max_model_len": "32k"})["max_model_len"]["planned"] == 32000
    assert judged([50], {"max_model_len": 8192}, deployed="4096")["advice"][1] == (
        "what runs has max_model_len 4096, the inventory wants 8192"
    )


@pytest.mark.parametrize(
    ("engine", "logged", "gib", "words", "bytes_"),
    [
        ({}, {"tokens": 42656, "length": 32768, "concurrency": 1.3, "available_gib": 6.51}, 9.0, "the engine's log", 42656 * 160),
        ({"kv_cache_memory_bytes": 4 * GIB}, None, 9.0, "kv_cache_memory_bytes", 4 * GIB / 1024),
        ({"num_gpu_blocks_override": 100}, None, 9.0, "num_gpu_blocks_override", 100 * 16 * 160),
        ({}, None, 9.0, "estimated before a start", 9 * GIB / 1024),
    ],
)
def test_the_room_is_what_is_known_best(engine, logged, gib, words, bytes_):
    memory = judged([100], engine, logged=logged, gib=gib)["memory"]
    assert memory["room_from"].startswith(words)
    assert memory["room_bytes"] == int(bytes_ // (16 * 160)) * 16 * 160 * 1024


def test_what_is_not_known_is_said():
    found = judged([100], {"max_model_len": 64}, gib=None)
    assert found["memory"]["lengths"][0]["fit"] is None
    assert "how many fit is not known before a start" in found["advice"][1]
    assert "?" in context_fit_text.report(found, "a", "f")
    unknown = judged([100], {"max_model_len": 64}, config={"max_position_embeddings": 4096})
    assert unknown["advice"][1].startswith("what it costs is not known: config.json does not tell num_hidden_layers")
    assert "KV cache" not in context_fit_text.report(unknown, "a", "f")
    assert judged([], {})["advice"] == ["no prompt was counted: nothing can be said about max_model_len"]


def test_windows_and_what_was_passed_over_are_told():
    found = judged([100], {"max_model_len": 8192}, config=GEMMA_3_27B)
    told = context_fit_text.report(found, "a", "f")
    assert "KV cache: 496 KiB a token; layers: 10 full, 52 sliding (1024 tokens)" in told
    counts = Counts(0, 64)
    for line in range(1, 8):
        counts.damage(line, "it is no JSON")
    counts.skipped, counts.pictures, counts.lines = 2, 0, 9
    counts.add(8, 10, 5, pictures=2)
    wanted = context_fit.wish("m", {}, "cpu", 1, CONFIG, None)
    cache = kv_cache.cache(attention.layout(CONFIG), {}, "cpu")
    told = context_fit_text.report(context_fit.judge(counts, wanted, cache, context_fit.room(cache, wanted, None, GIB)), "a", "f")
    assert "7 damaged passed over: line 1 (it is no JSON), line 2 (it is no JSON)" in told
    assert "and 2 more" in told
    assert "2 line(s) hold no prompt" in told
    assert "1 prompt(s) hold pictures" in told
    assert "are kept for an answer" not in told
    assert "what an engine on CPUs takes where nothing is set" in told


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("32k", 32000),
        ("32K", 32768),
        ("1.5k", 1500),
        ("auto", None),
        (-1, None),
        (None, None),
        (True, None),
    ],
)
def test_lengths_are_read_as_the_engine_reads_them(value, tokens):
    assert numbers.length(value) == tokens


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (160 * 1024, "160 KiB"), (5 * GIB, "5.0 GiB"), (896 * 2**20, "896 MiB")],
)
def test_sizes_are_for_people(count, words):
    assert context_fit.size(count) == words


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=30), st.integers(1, 50_000), st.integers(0, 4096))
def test_with_the_advised_length_nothing_is_refused_that_the_model_can_do(lengths, today, reserve):
    found = judged(lengths, {"max_model_len": today}, reserve=reserve)
    advised = found["advised"]
    assert advised == 40960 or advised % 1024 == 0
    assert advised == 40960 or advised >= found["needed"]
    row = next(row for row in found["memory"]["lengths"] if row["max_model_len"] == advised)
    assert advised == 40960 or (row["refused"], row["short"]) == (0, 0)
    assert found["refused"] == sum(length >= today for length in lengths)


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=40), st.booleans())
def test_parts_are_the_file_and_know_their_lines(tmp_path_factory, lines, ended):
    text = b"\n".join(lines) + (b"\n" if ended else b"")
    first, seen, sizes = 1, b"", 0
    numbered = text.split(b"\n")
    folder = tmp_path_factory.getbasetemp()
    for number, path, size in cutting.parts(cutting.lines(io.BytesIO(text), 8), str(folder)):
        sizes += size
        assert number == first
        if path is None:
            assert len(numbered[number - 1]) + 1 > 8
            seen += numbered[number - 1] + (b"\n" if number < len(numbered) else b"")
            first += 1
        else:
            data = path.read_bytes()
            seen += data
            first += data.count(b"\n")
    assert (seen, sizes) == (text, len(text))
    assert not list(folder.glob("parts-*"))


def test_parts_grow_and_are_bounded_and_each_is_gone_before_the_next(monkeypatch, tmp_path):
    monkeypatch.setattr(cutting, "FIRST_BYTES", 10)
    monkeypatch.setattr(cutting, "PART_BYTES", 100)
    found = []
    for number, path, size in cutting.parts(cutting.lines(io.BytesIO(b"abcd\n" * 100), 50), str(tmp_path)):
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o077 == 0, "only their owner comes there"
        assert list(folder.iterdir()) == [path]
        assert path.read_bytes() == b"abcd\n" * (size // 5)
        found.append((number, size))
    assert found == [(1, 10), (3, 40), (11, 100), (31, 100), (51, 100), (71, 100), (91, 50)]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_a_part_is_said(tmp_path):
    lines = cutting.lines(io.BytesIO(b"abcd\n"), 50)
    with pytest.raises(cutting.NoRoom, match="nothing can be written into /nowhere: No such file"):
        next(cutting.parts(lines, "/nowhere"))
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(cutting.NoRoom, match=f"could not be written below {tmp_path.parent}: No space left"):
        cutting._append(tmp_path / "full", bytearray(b"abcd"))


def test_the_result_is_plain_data():
    assert json.loads(json.dumps(judged(STORY))) == judged(STORY)
