"""A pattern of requests: who asks when, how long prompts and answers are, who wants a schema, who goes away."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Wish:
    """One request.

    `at_ms`: after the beginning. `prompt`, `output`: tokens. `shared`: so many tokens at the beginning of the prompt are those of
    all requests that share some. `schema`: the answer must hold to one. `cancel_after`: the client goes away when so many tokens
    of its answer have come; 0 when the request is taken in, None for never.
    """

    at_ms: float = 0.0
    prompt: int = 16
    output: int = 16
    shared: int = 0
    schema: bool = False
    cancel_after: int | None = None


def wishes(entries: list[dict[str, Any]]) -> list[Wish]:
    """From plain data, in the order of time. Raises ValueError with all that is wrong."""
    found, wrong = [], []
    for number, entry in enumerate(entries, 1):
        try:
            wish = Wish(**entry)
        except TypeError as exc:
            wrong.append(f"request {number}: {str(exc).replace('Wish.__init__() ', '')}")
            continue
        problem = _problem(wish)
        if problem:
            wrong.append(f"request {number}: {problem}")
        found.append(wish)
    if wrong:
        raise ValueError("; ".join(wrong))
    return sorted(found, key=lambda wish: wish.at_ms)


def _problem(wish: Wish) -> str:
    if wish.prompt < 1 or wish.output < 1:
        return "prompt and output are numbers of tokens, 1 or more"
    if not 0 <= wish.shared <= wish.prompt:
        return f"shared is a part of the prompt: 0 to {wish.prompt}"
    if wish.at_ms < 0 or (wish.cancel_after is not None and wish.cancel_after < 0):
        return "at_ms and cancel_after are 0 or more"
    return ""


def longest(pattern: list[Wish]) -> int:
    """Tokens of the longest request."""
    return max(wish.prompt + wish.output for wish in pattern)


def plain(pattern: list[Wish]) -> list[dict[str, Any]]:
    """Back to plain data, without what is as usual."""
    usual = asdict(Wish())
    return [
        {key: value for key, value in asdict(wish).items() if key in ("prompt", "output") or value != usual[key]}
        for wish in pattern
    ]


def varied(pattern: list[Wish], seed: int, limit: int) -> list[Wish]:
    """The pattern as another day brings it: each request somewhat earlier, later, longer or shorter. Seed 0 is the pattern.

    None has more than `limit` tokens, as none of the pattern has: a service would refuse it.
    """
    if seed == 0:
        return pattern
    chance = random.Random(seed)

    def about(number: float) -> float:
        return number * chance.uniform(0.8, 1.25)

    other = []
    for wish in pattern:
        # A longer prompt leaves room for the answer that it had.
        prompt = max(1, min(round(about(wish.prompt)), limit - wish.output))
        cancel = wish.cancel_after if wish.cancel_after is None else round(about(wish.cancel_after))
        other.append(
            replace(
                wish,
                at_ms=max(0.0, wish.at_ms + chance.uniform(-30, 30)),
                prompt=prompt,
                shared=min(wish.shared, prompt),
                output=max(1, min(round(about(wish.output)), limit - prompt)),
                cancel_after=cancel,
            )
        )
    return sorted(other, key=lambda wish: wish.at_ms)
