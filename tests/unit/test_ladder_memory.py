"""Memory of cards: the planned budget, alike between ranks, and not moving wrongly."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import between, memory
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

SERVICE, INSTANCE = worlds.gpu_service(), {"index": 0, "port": 8000}
TOTAL, BUDGET = 49140, 29484


def row(index=0, own=BUDGET, **more):
    base = {"card": f"card {index}", "index": index, "health": "ok", "unknown": ""}
    return {**base, "used_mib": own + 4, "total_mib": TOTAL, "own_mib": own, **more}


def judged(*rows, share=0.6, why=""):
    return memory.memory(SERVICE, INSTANCE, {"why": why, "cards": list(rows), "share": share})


@pytest.mark.parametrize(
    ("rows", "share", "word", "cause", "words"),
    [
        ([row(0), row(1)], 0.6, "pass", "", "card 0 29484 MiB, card 1 29484 MiB; planned 29484 of 49140"),
        ([row(0), row(1, BUDGET - 900)], 0.6, "pass", "", "28584"),
        ([row(0), row(1, BUDGET - 3000)], 0.6, "fail", "asymmetric", "not used alike"),
        ([row(0), row(1, 0)], 0.6, "fail", "asymmetric", "up to 1474 MiB may differ"),
        ([row(0, BUDGET + 4000), row(1, BUDGET + 4000)], 0.6, "pass", "", "33484"),
        ([row(0, BUDGET + 6000), row(1, BUDGET + 6000)], 0.6, "fail", "over_budget", "planned were 29484"),
        ([row(0, 9000), row(1, 9000)], 0.6, "fail", "under_budget", "did not take what it was given"),
        ([row(0, 9000), row(1, 9000)], None, "pass", "", "fixed cache"),
        ([row(0), row(1, health="lost")], 0.6, "fail", "card", "card 1 is lost"),
        ([row(0, health="needs_reset"), row(1)], 0.6, "fail", "card", "card 0 is needs reset"),
        (
            [row(0), row(1, own=0, unknown="how much of it pid 7 uses is not known")],
            0.6,
            "skipped",
            "",
            "not judged: card 1: how",
        ),
    ],
)
def test_memory_of_the_ranks(rows, share, word, cause, words):
    found = judged(*rows, share=share)
    assert (found.word, found.cause) == (word, cause)
    assert words in (found.complaint or found.seen)


def test_on_cpus_it_is_left_out_with_a_word():
    found = judged(why="a CPU engine keeps its cache in main memory")
    assert (found.word, found.seen) == ("skipped", "a CPU engine keeps its cache in main memory")


@pytest.mark.parametrize(
    ("argv", "share"),
    [
        (["vllm", "serve", "m", "--gpu-memory-utilization", "0.6"], 0.6),
        (["vllm", "serve", "m", "--gpu-memory-utilization=0.85"], 0.85),
        (["vllm", "serve", "m"], None),
        (["vllm", "serve", "m", "--gpu-memory-utilization"], None),
        (["vllm", "serve", "m", "--gpu-memory-utilization", "0.6", "--kv-cache-memory-bytes", "1G"], None),
        (["vllm", "serve", "m", "--gpu-memory-utilization", "0.6", "--num-gpu-blocks-override=9"], None),
    ],
)
def test_the_budget_is_what_the_running_engine_was_told(argv, share):
    assert memory.budget_share(argv) == share


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ([row(0), row(1)], ""),
        ([row(0), row(1, BUDGET - 2000)], ""),
        ([row(0), row(1, 0)], "card 1 went from 29484 to 0 MiB: a part of the engine is gone"),
        ([row(0, BUDGET + 9000), row(1)], "more than the 29484 MiB that were planned"),
        ([row(0), row(1, 0, unknown="not known")], ""),
        ([row(5, 0)], ""),
    ],
)
def test_memory_that_moves_wrongly(now, words):
    moved = memory.moved([row(0), row(1)], now, 0.6)
    assert (words in moved) if words else moved == ""


@given(st.integers(0, TOTAL), st.integers(0, TOTAL), st.sampled_from([None, 0.3, 0.6, 0.9, 0.95]))
def test_any_memory_is_judged_and_two_equal_ranks_are_never_called_unequal(one, other, share):
    found = judged(row(0, one), row(1, other), share=share)
    assert found.word in ("pass", "fail")
    assert bool(found.complaint) is (found.word == "fail")
    assert not (one == other and found.cause == "asymmetric")


# -- between the steps ----------------------------------------------------------------------------------------------


def looked(**changes):
    base = {"fatal": [], "kernel": [], "alive": True, "log": "/l", "cards_before": [row(0)], "cards": [row(0)], "share": 0.6}
    return {**base, **changes}


def event(kind="xid", **more):
    return {"kind": kind, "bus_id": "0000:01:00.0", "xid": 79, "pid": None, "line": "[1.0] NVRM: Xid 79", **more}


@pytest.mark.parametrize(
    ("seen", "cause", "restart", "words"),
    [
        (looked(), "", False, ""),
        (looked(fatal=["EngineDeadError"]), "log", True, "the engine's log has become fatal: EngineDeadError (log: /l)"),
        (looked(alive=False), "ended", True, "the engine has ended"),
        (looked(kernel=[event()], fatal=["EngineDeadError"]), "kernel", False, "the kernel's log has become fatal: [1.0] NVRM"),
        (looked(kernel=[event("oom_kill", pid=4, line="Out of memory")]), "oom", True, "for lack of memory"),
        (looked(cards=[row(0, health="lost")]), "card", False, "card 0 is lost"),
        (looked(cards=[row(0, 0)]), "memory_moved", True, "memory moved wrongly"),
    ],
)
def test_what_ends_the_ladder_after_any_step(seen, cause, restart, words):
    found = between.stop(seen)
    if not cause:
        assert found is None
        return
    assert (found.cause, found.restart, found.word) == (cause, restart, "fail")
    assert words in found.complaint
    assert found.next


@pytest.mark.parametrize(
    ("one", "concerned"),
    [
        (event(), True),
        (event(bus_id="0000:09:00.0"), False),
        (event(bus_id="0000:09:00.0", pid=41), True),
        (event(bus_id=""), True),
        (event("oom_kill", bus_id="", pid=99), False),
        (event("oom_kill", bus_id="", pid=41), True),
        (event("segfault", bus_id="", pid=None), False),
    ],
)
def test_lines_of_the_kernel_that_are_about_this_instance(one, concerned):
    assert bool(between.events_of([one], ["0000:01:00.0"], [41, 42])) is concerned


def test_an_instance_on_cpus_is_not_concerned_by_cards():
    assert between.events_of([event(bus_id="")], [], [41]) == []
