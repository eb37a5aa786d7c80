"""The tensor test on the host: every card by itself in a process of its own, then the ranks of each instance together.

The programs are roles/card_test/files/*.py; the caller brings their text. What came of it is judged by judge/card_test.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Collection, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import card_test as judge
from ansible_collections.modelyard.core.plugins.module_utils.process import children, opened, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.identity import MARKER

#: Main memory of one test on the backend cpu: torch 2.13 took 255 MiB (2026-11-29), doubled.
TEST_MIB = 512
HOLDERS_SHOWN = 16

Result = Dict[str, Any]


def each_card(
    python: str, text: str, device: str, cards: Sequence[Mapping[str, Any]], limit_s: float, parallel: int
) -> List[Result]:
    """Every card by itself. `cards`: [{index, environment, cores, device_files, uuid}]; the last three may be left out.

    A result: {index, ok, state, rc, signal, stage, answer, error, said, seconds, pid_left, holders}, see `result`.
    """
    words = [python, "-", device]
    programs = [
        children.Program(words, text, environment(python, card["environment"]), card.get("cores") or [], limit_s)
        for card in cards
    ]
    results = []
    for card, end in zip(cards, children.run(programs, at_once(device, len(cards), parallel))):
        seen = result(end)
        ok = judge.card_fault(seen, str(card.get("uuid") or "")) == ""
        # Looked for when all tests are over, so that none of them is named.
        results.append(
            {"index": card["index"], "ok": ok, **seen, "holders": holders([] if ok else card.get("device_files") or [])}
        )
    return results


def each_group(
    python: str, text: str, device: str, groups: Sequence[Mapping[str, Any]], limit_s: float, failed: Collection[int]
) -> List[Result]:
    """An all-reduce in each group, one group after the other. `groups`: [{name, ranks: [{cards, environment, cores}]}].

    A result: {name, ok, state: passed|failed|not_run, seconds, broken, ranks: [result with `cards`]}. A group with a card that
    has `failed` by itself is not tried; `broken` names these cards.
    """
    results = []
    for group in groups:
        broken = sorted({int(card) for rank in group["ranks"] for card in rank["cards"]} & set(failed))
        ends = [] if broken else children.run(_ranks(python, text, device, group, limit_s), len(group["ranks"]), together=True)
        ranks = [{"cards": list(rank["cards"]), **result(end)} for rank, end in zip(group["ranks"], ends)]
        ok = bool(ranks) and all(judge.rank_fault(rank) == "" for rank in ranks)
        results.append(
            {
                "name": group["name"],
                "ok": ok,
                "state": "not_run" if broken else "passed" if ok else "failed",
                "seconds": max((rank["seconds"] for rank in ranks), default=0.0),
                "broken": broken,
                "ranks": ranks,
            }
        )
    return results


def _ranks(python: str, text: str, device: str, group: Mapping[str, Any], limit_s: float) -> List[children.Program]:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(len(group["ranks"]))}
    programs = []
    for number, rank in enumerate(group["ranks"]):
        values = environment(python, rank["environment"], RANK=str(number), LOCAL_RANK=str(number), **address)
        words = [python, "-", device, str(limit_s)]
        programs.append(children.Program(words, text, values, rank.get("cores") or [], limit_s))
    return programs


def result(end: children.End) -> Result:
    """What came of one process.

    `state`: passed (it gave an answer; whether that is right is judged later), failed (it says what went wrong, in `error`),
    crashed (by `signal`), hung (ended at its deadline), stopped (ended because another rank had failed), no_answer.
    `stage`: what it was about to do last. `said`: the last lines of its output. `pid_left`: {} or {pid, state, stack} of one
    that is still there although it was killed; `stack` is None where it may not be read.
    """
    said = judge.read(end.out, end.err)
    error = dict(said.error)
    if end.how == children.NOT_STARTED:
        error = {"type": "NotStarted", "message": end.err}
    if end.how == children.LATE:
        state = "hung"
    elif end.how == children.STOPPED:
        state = "stopped"
    elif end.code is not None and end.code < 0:
        state = "crashed"
    elif error or (said.answer and end.code):
        state = "failed"
    else:
        state = "passed" if said.answer else "no_answer"
    return {
        "state": state,
        "rc": end.code if end.code is not None and end.code >= 0 else None,
        "signal": -end.code if end.code is not None and end.code < 0 else None,
        "stage": said.stage,
        "answer": said.answer,
        "error": error,
        "said": said.lines,
        "seconds": end.seconds,
        "pid_left": {} if end.left is None else left(end.left),
    }


def left(pid: int) -> Dict[str, Any]:
    """Of a process that does not end: the thread that is in the kernel, as far as may be seen."""
    alive = [thread for thread in proc.threads(pid) if thread.state not in "ZX"]
    deep = next((thread for thread in alive if thread.state == "D"), alive[0] if alive else None)
    return {
        "pid": pid,
        "state": deep.state if deep else "unknown",
        "stack": proc.stack(deep.tid if deep else pid),
    }


def holders(paths: Sequence[str]) -> List[Dict[str, Any]]:
    """Who has one of these device files open, as far as may be seen: [{pid, user, command, marker}]."""
    wanted, found = set(paths), []
    table = proc.processes() if wanted else {}
    for pid, targets in sorted(opened.handles(table).targets.items()):
        if wanted & targets:
            shown = {"pid": pid, "user": proc.user_name(table[pid].uid), "command": proc.command(pid) or table[pid].comm}
            found.append({**shown, "marker": proc.environment(pid, MARKER) or ""})
    return found[:HOLDERS_SHOWN]


def environment(python: str, given: Mapping[str, Any], **more: str) -> Dict[str, str]:
    """The whole environment of a test: what launch.sh gives an engine, then `given`, then `more`. Nothing else comes through."""
    user = proc.user_name(os.getuid())
    return {
        "HOME": os.environ.get("HOME", "/"),
        "USER": user,
        "LOGNAME": user,
        "LANG": "C.UTF-8",
        "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
        "NCCL_DEBUG": "WARN",  # its errors alone do not say what went wrong
        **{str(name): str(value) for name, value in given.items()},
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
    }


def at_once(device: str, count: int, wanted: int) -> int:
    """How many tests run at the same time. Cards: all. Cores: as many as there are, and as main memory allows."""
    most = wanted or count
    if device == "cpu":
        most = min(most, len(os.sched_getaffinity(0)), _free_mib() // TEST_MIB)
    return max(1, min(most, count))


def _free_mib() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    return TEST_MIB


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address: Tuple[str, int] = probe.getsockname()
        return address[1]
