"""The smallest pattern that still shows a fault. Pure: what shows it is a question that is handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from modelyard_lab.pattern import Wish

Shows = Callable[[list[Wish]], bool]


def smallest(pattern: list[Wish], shows: Shows) -> list[Wish]:
    """Requests taken away as long as the rest shows the fault (delta debugging), then each of the rest made plainer.

    `shows` may give up by answering False; what was found so far is the answer then.
    """
    found = _fewer(pattern, shows)
    plainer = True
    while plainer:
        plainer = False
        for place in range(len(found)):
            for simple in _plainer(found[place]):
                other = sorted([*found[:place], simple, *found[place + 1 :]], key=lambda wish: wish.at_ms)
                if shows(other):
                    found, plainer = other, True
                    break
    return found


def _fewer(pattern: list[Wish], shows: Shows) -> list[Wish]:
    parts = 2
    while len(pattern) > 1:
        size = max(1, len(pattern) // parts)
        for begin in range(0, len(pattern), size):
            rest = pattern[:begin] + pattern[begin + size :]
            if rest and shows(rest):
                pattern, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(pattern), parts * 2)
    return pattern


def _plainer(wish: Wish) -> Iterator[Wish]:
    """The same request without one of its properties, then with less of it: the greatest step first."""
    if wish.schema:
        yield replace(wish, schema=False)
    if wish.cancel_after is not None:
        yield replace(wish, cancel_after=None)
        if wish.cancel_after > 0:
            yield replace(wish, cancel_after=0)
    if wish.shared:
        yield replace(wish, shared=0)
    if wish.at_ms:
        yield replace(wish, at_ms=0.0)
    for name in ("prompt", "output"):
        value = getattr(wish, name)
        least = max(1, wish.shared) if name == "prompt" else 1
        for less in dict.fromkeys((least, (value + least) // 2, value - 1)):
            if least <= less < value:
                yield replace(wish, **{name: less})
