"""Telling a message all wanted ways: at the same time, each again with growing pauses, all of it within one limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modelyard.tell import ways

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
Data = Mapping[str, Any]
Tell = Callable[[Data, Data, float], None]


def pauses(limit_s: float) -> list[float]:
    """Pauses between tries that fit into a limit: 1, 2, 4 ... 30 s."""
    found: list[float] = []
    while sum(found) + (pause := min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** len(found))) < limit_s:
        found.append(pause)
    return found


def one(way: Data, messages: Sequence[Data], limit_s: float, tell: Tell = ways.tell) -> dict[str, str]:
    """Tell messages in order one way; returns {id: why it was not told} of the others. Stops at the first that cannot be told:
    they come in order or later.
    """
    until = time.monotonic() + limit_s
    left = {str(message["id"]): "an earlier message could not be told" for message in messages}
    for message in messages:
        why = _tries(way, message, until, tell)
        if why:
            left[str(message["id"])] = why
            break
        del left[str(message["id"])]
    return left


def _tries(way: Data, message: Data, until: float, tell: Tell) -> str:
    why = "no time was left"
    for pause in [*pauses(until - time.monotonic()), 0.0]:
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            tell(way, message, left)
        except ways.NotTold as exc:
            why = str(exc)
            if not exc.again:
                break
        except Exception as exc:  # a fault in a way to tell must not cost the verdict
            return f"{type(exc).__name__} in this tool"
        else:
            return ""
        time.sleep(min(pause, max(0.0, until - time.monotonic())))
    return why


def all_ways(
    wanted: Sequence[Data], messages: Mapping[str, Sequence[Data]], limit_s: float, tell: Tell = ways.tell
) -> dict[str, dict[str, str]]:
    """{way: {id: why}} of what was not told. `messages`: by the name of the way.

    One that hangs beyond every limit of its own is left behind: its thread ends with this process.
    """
    results: dict[str, dict[str, str]] = {}

    def work(way: Data) -> None:
        results[way["name"]] = one(way, messages[way["name"]], limit_s, tell)

    threads = [threading.Thread(target=work, args=(way,), daemon=True) for way in wanted if messages.get(way["name"])]
    for thread in threads:
        thread.start()
    until = time.monotonic() + limit_s + 2.0
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = f"no answer within {limit_s:.0f} s"
    hung = {way["name"]: {str(m["id"]): late for m in messages.get(way["name"], [])} for way in wanted}
    return {name: results.get(name, missing) for name, missing in hung.items()}
