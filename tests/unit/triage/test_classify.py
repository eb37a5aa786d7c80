# ruff: noqa: E501  log lines are as long as they are
"""The answer about a log: every public sample, further wordings of every cause, and the same logs as others would show them."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.triage import classify, classify_streams
from ansible_collections.modelyard.core.plugins.module_utils.triage import order as triage_order
from ansible_collections.modelyard.core.plugins.module_utils.triage.causes import CAUSES
from ansible_collections.modelyard.core.plugins.module_utils.triage.vocabulary import LAYERS
from unit import worlds
from unit.triage.changed import CHANGES, FOLLOWING, HEALTHY
from unit.triage.wordings import WORDINGS

FOLDER = worlds.ROOT / "tests/fixtures/triage"
LABELS = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}
TEXTS = {name: (FOLDER / f"{name}.log").read_bytes().decode() for name in LABELS}
SYMPTOMS = {*triage_order.SYMPTOM_ORDER, *triage_order.HARMLESS, *triage_order.REQUESTS, *triage_order.GENERAL}
CASES = [*((LABELS[name]["cause"], text) for name, text in TEXTS.items()), *((cause, text) for cause, _, text in WORDINGS)]
#: A row of a table is not broken into several lines by anything that passes a table on.
TABLES = {"vram_held_no_process", "orphan_engine_holds_gpu_memory"}


@pytest.mark.parametrize("name", LABELS)
def test_every_sample_is_named_with_its_layer_and_its_lines(name):
    label, text = LABELS[name], TEXTS[name]
    answer = classify(text)
    named = {key: label[key] for key in ("cause", "layer", "root_cause_visible", "gpu_needed_to_reproduce")}
    assert {key: answer[key] for key in named} == named
    assert set(answer["evidence"]) <= set(text.split("\n"))
    for wanted in label["evidence"]:
        assert any(wanted in line or line in wanted for line in answer["evidence"]), wanted


@pytest.mark.parametrize(("cause", "visible", "text"), WORDINGS)
def test_further_wordings(cause, visible, text):
    answer = classify(text)
    assert (answer["cause"], answer["root_cause_visible"]) == (cause, CAUSES[cause].visible if visible is None else visible)
    assert answer["evidence"] and set(answer["evidence"]) <= set(text.split("\n"))


def test_every_cause_has_at_least_three_wordings():
    wordings = [cause for cause, _ in CASES]
    assert {c for c in CAUSES if wordings.count(c) < 3} == {"unknown_error", "nothing_found"}


@pytest.mark.parametrize("change", CHANGES)
def test_prefixes_colours_and_broken_lines_change_no_answer(change):
    cases = [one for one in CASES if not (change.startswith("wrapped") and one[0] in TABLES)]
    wrong = [(cause, classify(CHANGES[change](text))["cause"], text) for cause, text in cases]
    assert [one for one in wrong if one[0] != one[1]] == []


def test_healthy_lines_around_change_no_answer():
    around = "\n".join(HEALTHY * 3)
    wrong = [(cause, classify(f"{around}\n{text}\n{around}")["cause"], text) for cause, text in CASES]
    assert [one for one in wrong if one[0] != one[1]] == []


def test_symptoms_behind_a_first_error_change_no_answer():
    first = [one for one in CASES if one[0] not in SYMPTOMS and CAUSES[one[0]].visible]
    first = [one for one in first if classify(one[1])["root_cause_visible"]]
    assert len(first) > 100
    for number, (cause, text) in enumerate(first):
        for following in (FOLLOWING[number % len(FOLLOWING)], "\n".join(FOLLOWING)):
            assert classify(f"{text}\n{following}")["cause"] == cause, text


def test_of_two_first_errors_the_earlier_one_is_named_and_the_other_told():
    one = "ValueError: No available memory for the cache blocks."
    other = "OSError: [Errno 98] Address already in use"
    for first, second, cause, also in (
        (one, other, "kv_cache_no_blocks", "port_in_use"),
        (other, one, "port_in_use", "kv_cache_no_blocks"),
    ):
        answer = classify(f"{first}\n{second}\n")
        assert (answer["cause"], [sign["cause"] for sign in answer["also"]]) == (cause, [also])
        assert answer["also"][0]["evidence"] == [second]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "\n".join(HEALTHY * 50), "all is well", "Received request chatcmpl-1: prompt: 'CUDA out of memory'"]
)
def test_a_log_without_a_sign_is_no_failure(text):
    answer = classify(text)
    assert (answer["cause"], answer["layer"], answer["evidence"], answer["also"]) == ("nothing_found", None, [], [])
    assert answer["root_cause_visible"] is False


@pytest.mark.parametrize(
    ("name", "cause", "also"),
    [
        ("worker-sigkilled", "worker_killed_signal", "engine_dead_error_only"),
        ("engine-core-sigkilled", "engine_dead_error_only", "worker_died_unexplained"),
        ("sigterm-default-zero-grace", "orderly_stop_unexplained", "engine_dead_error_only"),
        ("sigterm-drain-20s", "orderly_stop_unexplained", "engine_dead_error_only"),
        ("tp2-sigterm-inflight-request", "orderly_stop_unexplained", "shutdown_leak_warning"),
        ("startup-failed-numa", "unknown_error", "engine_start_failed_cause_elsewhere"),
    ],
)
def test_whole_logs_of_a_real_engine(name, cause, also):
    text = (worlds.ROOT / f"tests/fixtures/vllm-logs-0.32.0-cpu/{name}.log").read_bytes().decode("utf-8", "replace")
    answer = classify(text)
    assert answer["cause"] == cause
    assert also in [sign["cause"] for sign in answer["also"]]
    if name == "startup-failed-numa":
        assert "Not enough allowed NUMA nodes" in answer["evidence"][0]


@pytest.mark.parametrize("signal", [6, 7, 8, 9, 11])
def test_the_number_of_a_signal_is_read(signal):
    for code in (-signal, 128 + signal):
        answer = classify(f"Worker proc VllmWorker-1 died unexpectedly (exit code: {code}), shutting down executor.")
        assert answer["cause"] == "worker_killed_signal"
        assert f"signal {signal} (SIG" in answer["notes"][0]
    assert classify("Worker proc VllmWorker-1 died unexpectedly (exit code: -15)")["cause"] == "worker_died_unexplained"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB).",
            "13.57 GiB are missing",
        ),
        (
            "Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB).",
            "only 72 MiB",
        ),
        (TEXTS["043-nccl-timeout-first-collective"], "very first collective"),
        (TEXTS["044-nccl-timeout-mid-run"], "collective 158046"),
        ("max_tokens must be at least 1, got -1729.", "1729 tokens over"),
        ("World size (2) is larger than the number of available GPUs (0)", "no card at all"),
    ],
)
def test_numbers_are_read(text, words):
    assert words in classify(text)["notes"][0]


def test_a_swallowed_cause_says_how_to_make_it_visible():
    for cause in (cause for cause in CAUSES.values() if not cause.visible):
        assert cause.unmute, cause.id
    assert any("PYTHONFAULTHANDLER" in step for step in classify("EngineDeadError")["next_steps"])


def test_the_logs_of_several_processes_are_merged_by_time():
    api = b"(APIServer pid=1) ERROR 11-29 10:00:09 [a.py:1] EngineDeadError: EngineCore encountered an issue.\nOSError: [Errno 98] Address already in use\n"
    worker = b"(Worker pid=2) ERROR 11-29 10:00:01 [w.py:1] ValueError: No available memory for the cache blocks.\n"
    kernel = b"Nov 29 10:00:00 gpu1 kernel: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n"
    assert classify_streams({"api": [api], "worker": [worker]})["first_in"] == "worker"
    answer = classify_streams({"api": [api], "worker": [worker], "kernel": [kernel]})
    assert (answer["cause"], answer["first_in"]) == ("gpu_off_bus", "kernel")


def test_the_vocabulary_is_whole():
    samples = {label["cause"] for label in LABELS.values()}
    assert samples <= set(CAUSES)
    for cause in CAUSES.values():
        assert cause.layer in LAYERS or cause.id in ("unknown_error", "nothing_found")
        assert cause.gpu in ("yes", "no", "unknown") and cause.steps and cause.meaning
        words = " ".join(cause.steps).lower()
        assert not any(word in words for word in ("pkill", "killall", "kill all"))


def test_every_rule_of_order_names_causes_that_exist():
    for over in triage_order.OVER:
        assert {over.winner, *over.losers} <= set(CAUSES) and over.winner not in over.losers and over.why
    assert {*triage_order.HELD, *triage_order.GENERAL, *triage_order.REQUESTS, *triage_order.SYMPTOM_ORDER} <= set(CAUSES)


@pytest.mark.parametrize("over", triage_order.OVER, ids=lambda over: over.winner)
def test_what_explains_is_named_and_not_what_it_explains(over):
    texts: dict[str, str] = {}
    for cause, text in CASES:
        texts.setdefault(cause, text)
    for loser in over.losers:
        if over.winner in triage_order.GENERAL and loser not in triage_order.GENERAL:
            continue
        for text in (f"{texts[loser]}\n\n{texts[over.winner]}", f"{texts[over.winner]}\n\n{texts[loser]}"):
            assert classify(text)["cause"] == over.winner, loser


def test_the_page_about_triage_lists_every_cause():
    page = (worlds.ROOT / "docs/triage.md").read_text(encoding="utf-8")
    for cause in CAUSES.values():
        assert f"| `{cause.id}` | {cause.layer or 'none'} | {cause.meaning} | {'yes' if cause.visible else 'no'} |" in page
