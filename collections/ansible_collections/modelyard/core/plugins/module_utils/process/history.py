"""The starts of one instance: which of them failed, how long to wait before the next, which logs to keep. Pure functions.

run/starts.json holds them, oldest first: [{log, at, ended_at, served_s, asked, code, signal}]. `at` and `ended_at` are seconds
of the wall clock, `served_s` how long /health answered, `asked` whether somebody had ordered the end.
"""

from __future__ import annotations

import math
import os
from typing import Any, Dict, List, Mapping, Sequence

#: An engine that served for so long did not fail at its start: what ended it later is a new story.
HEALTHY_S = 600.0
#: Seconds before the next start, by the number of failed ones in a row.
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 300.0
STARTS_KEPT = 100


def entry(log: str, at: float, ordered: bool) -> Dict[str, Any]:
    """A start that has just been made. `ordered`: by a person or a deploy, and not by a supervisor that starts anew."""
    return {
        "log": log,
        "at": at,
        "ordered": ordered,
        "ended_at": None,
        "served_s": 0.0,
        "asked": False,
        "code": None,
        "signal": None,
    }


def end(status: int, at: float) -> Dict[str, Any]:
    """What is added when a started program has ended with that wait status."""
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    return {"ended_at": round(at, 3), "code": code, "signal": killed_by}


def failed(start: Mapping[str, Any]) -> bool:
    """Did it end by itself before it had served for long? One whose end nobody wrote down counts as failed, too."""
    return not start["asked"] and start["served_s"] < HEALTHY_S


def series(starts: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """The failed starts at the end of the list, oldest first: one crash that repeats, as far as can be told."""
    found: List[Mapping[str, Any]] = []
    for start in reversed(starts):
        if not failed(start):
            break
        found.insert(0, start)
    return found


def wait_s(starts: Sequence[Mapping[str, Any]], now: float) -> float:
    """Seconds from `now` until the next start: 10, 20, 40 ... 300 after the last end, for each failed one in a row.

    An ordered start begins the count anew: whoever ordered it waits for nothing.
    """
    row = series(starts)
    ordered = [place for place, start in enumerate(row) if start["ordered"]]
    row = row[ordered[-1] :] if ordered else row
    if not row:
        return 0.0
    pause = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(len(row) - 1, 10))
    since = row[-1]["ended_at"] or row[-1]["at"]
    # A clock that was set back must not make the wait longer than it would be from now.
    return float(max(0.0, min(pause, since + pause - now)))


def superfluous(logs: Sequence[str], keep: int, starts: Sequence[Mapping[str, Any]]) -> List[str]:
    """Names of logs that may go: all but the newest `keep`, and but the first one of the crash series that goes on.

    `logs`: names from oldest to newest. The first failure is what the later ones follow from, so it outlives them.
    """
    row = series(starts)
    first = row[0]["log"] if len(row) > 1 else None
    return [name for name in logs[: -max(1, keep)] if name != first]


def whole(data: Any) -> List[Dict[str, Any]]:
    """The entries of a starts.json that can be used; people and full disks may have touched the file."""
    listed = data.get("starts") if isinstance(data, dict) else None
    found = []
    for start in listed if isinstance(listed, list) else []:
        if not isinstance(start, dict) or not isinstance(start.get("log"), str):
            continue
        numbers = (start.get("at"), start.get("served_s"), start.get("ended_at") or 0)
        if all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers):
            found.append({**entry(start["log"], start["at"], False), **start})
    return found[-STARTS_KEPT:]
