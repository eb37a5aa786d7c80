"""Which runs of a history may go. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modelyard.accept import answer


def superfluous(history: Sequence[Mapping[str, Any]], now: float, runs: int, days: float) -> list[str]:
    """Ids beyond the newest `runs`, or older than `days`; never the newest, nor the newest accepted: others are compared with it.

    `history`: [{id, began, answer}], oldest first.
    """
    keep = {entry["id"] for entry in history[-1:]}
    keep |= {entry["id"] for entry in [e for e in history if e["answer"] == answer.ACCEPTED][-1:]}
    old = {entry["id"] for entry in history if now - entry["began"] > days * 86400}
    beyond = {entry["id"] for entry in history[: max(0, len(history) - runs)]}
    return [entry["id"] for entry in history if entry["id"] in (old | beyond) - keep]
