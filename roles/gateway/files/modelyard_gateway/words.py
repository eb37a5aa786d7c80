"""Numbers as people read them. Shared by the page, the command and the problems."""

from __future__ import annotations

from typing import Mapping, Optional


def span(seconds: float) -> str:
    """Say a length of time with as many figures as matter: `12 s`, `4 min`, `3 h 20 min`, `5 d 3 h`."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 100:
        return f"{whole} s"
    if minutes < 100:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def latency(seconds: Optional[float]) -> str:
    """Say a measured time: `12 ms`, `1.25 s`, `75 s`. Not measured is `-`."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def count(number: int, one: str, many: str = "") -> str:
    """Say a number with its noun: `1 request`, `3 requests`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def tally(counts: Mapping[str, int]) -> str:
    """List what was counted, the most frequent first: `server error 8, broken 4`."""
    kinds = sorted((item for item in counts.items() if item[1]), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind.replace('_', ' ')} {number}" for kind, number in kinds)
