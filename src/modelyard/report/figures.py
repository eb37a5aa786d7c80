"""Numbers as people read them. Pure functions."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import shortened

UNKNOWN = "-"


def plain(value: float | None, digits: int = 0) -> str:
    """`12,345`; `-` for None. Large numbers lose their digits behind the point."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 1e15:
        return f"{value:.1e}"
    return f"{value:,.{digits if abs(value) < 1000 else 0}f}"


def rate(value: float | None) -> str:
    """Something a second: two digits behind the point below 10, one below 100."""
    return plain(value, 0 if value is None or abs(value) >= 100 else 1 if abs(value) >= 10 else 2)


#: Seconds are shown as rates are.
seconds = rate


def span(value: float | None) -> str:
    """`42 s`, `3 min 20 s`, `2 h 5 min`."""
    if value is None or value < 0:
        return UNKNOWN
    if value < 60:
        return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    if value < 172800:
        return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"
    return f"{plain(value // 86400)} d"


def percent(share: float | None) -> str:
    """`71 %` of a share between 0 and 1."""
    return UNKNOWN if share is None else f"{plain(share * 100, 1 if abs(share) < 0.1 and share else 0)} %"


def short(value: float) -> str:
    """A label of an axis: `0`, `0.5`, `250`, `1.2k`, `3M`."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}" if abs(value) < 1e15 else f"{value:.0e}"
    return f"{value:.3g}"


def numbers(found: Sequence[int]) -> str:
    """`0,1,4-7`: each once and in order."""
    return shortened.numbers(sorted(set(found)))


def count(amount: int, what: str) -> str:
    """`1 host`, `3 hosts`."""
    return f"{amount:,} {what}{'' if amount == 1 else 's'}"


def some(names: Sequence[str], most: int = 4) -> str:
    """`a, b and 7 more`."""
    more = len(names) - most
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:most])} and {more} more"
