"""Large logs: the same answer wherever the pieces begin, and memory that does not grow with the log."""

from __future__ import annotations

import tracemalloc

from ansible_collections.modelyard.core.plugins.module_utils.triage import classify, classify_stream, stream
from ansible_collections.modelyard.core.plugins.module_utils.triage.rules import RULES
from ansible_collections.modelyard.core.plugins.module_utils.triage.symptoms import SYMPTOMS
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.triage.changed import HEALTHY
from unit.triage.test_classify import CASES, TEXTS

SMALL = [text for _, text in CASES if len(text) < 1500]


@settings(max_examples=40)
@given(st.lists(st.sampled_from([*SMALL, *HEALTHY]), min_size=1, max_size=4), st.data())
def test_the_answer_is_the_same_wherever_the_pieces_begin(texts, data):
    whole = "\n".join(texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert classify_stream(pieces) == classify(whole.decode())


@given(st.text(max_size=400))
def test_any_text_has_an_answer(text):
    answer = classify(text)
    assert set(answer) >= {"layer", "cause", "root_cause_visible", "gpu_needed_to_reproduce", "evidence", "next_steps", "also"}


def test_a_sign_between_many_healthy_lines_is_found_in_bounded_memory():
    calm = ("\n".join(HEALTHY[:2]) + "\n").encode() * 1000
    piece = [calm] * 40
    text = TEXTS["012-scheduler-placeholder-assertion"].encode() + b"\n"
    tracemalloc.start()
    answer = classify_stream(one for part in (piece, [text], piece) for one in part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer["cause"] == "scheduler_state_assertion"
    assert len(calm) * 80 > 20 * 2**20 > peak * 2


def test_one_line_without_an_end_is_read_in_pieces():
    assert classify_stream([b"x" * 100000] * 30 + [b" EngineDeadError\n"])["cause"] == "engine_dead_error_only"
    assert max(len(row) for _, row in stream.lines([b"error " * 50000])) <= stream.LINE_LIMIT


def test_every_word_of_every_rule_is_searched_for():
    for rule in (*RULES, *SYMPTOMS):
        for word in rule.words:
            assert word == word.lower()
            assert word == "http/1" or any(found in word.encode() for found in stream.WORDS), word
