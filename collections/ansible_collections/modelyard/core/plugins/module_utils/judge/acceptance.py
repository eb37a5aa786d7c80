"""The acceptance ladder: which steps there are, which of them a service has, and what all of them prove. Pure functions.

Each step is in ladder/, by kind. Status 200 alone never passes anything. Standard library only: the ladder is walked on the host.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import (
    entry,
    image,
    instance,
    logprobs,
    memory,
    structured,
    text,
    vectors,
)
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import FAIL, PASS, Service, Step

#: Also a part of what the stand-ins of tests are tried with.
SCHEMA = structured.SCHEMA
QUICK, FULL, CHOSEN = "quick", "full", "chosen"
DEPTHS = (QUICK, FULL)
LADDER: Tuple[Step, ...] = (
    *instance.STEPS,
    memory.STEP,
    text.CHAT_STEP,
    text.ADAPTERS,
    structured.STEP,
    logprobs.STEP,
    vectors.STEP,
    text.COMPLETIONS,
    image.STEP,
    text.SERIAL,
    entry.STEP,
)


def ids() -> List[str]:
    """All steps by their ids, in order."""
    return [step.id for step in LADDER]


def ladder(service: Service, chosen: Sequence[str] = (), depth: str = FULL) -> List[Step]:
    """The steps to walk, in order: those that are named, else those of this depth that belong to the service.

    Raises KeyError for a name that is none.
    """
    for name in chosen:
        if name not in ids():
            raise KeyError(f"{name} is no acceptance step; known: {', '.join(ids())}")
    if chosen:
        return [step for step in LADDER if step.id in chosen]
    return [step for step in LADDER if step.wanted(service) and (step.quick or depth == FULL)]


def depth_of(chosen: Sequence[str], depth: str) -> str:
    """What is written down about how deep a walk went."""
    return CHOSEN if chosen else depth


def proven(service: Service, steps: Sequence[Mapping[str, Any]]) -> List[int]:
    """Indexes of the instances that have passed the service's whole ladder, from the entries of a walk."""
    whole = [(step.id, True) for step in ladder(service)]
    indexes = sorted({int(step["instance"]) for step in steps})
    return [index for index in indexes if [(s["id"], s["passed"]) for s in steps if s["instance"] == index] == whole]


def failing(steps: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """Entries that are failures; what could not be judged because the service is at work is none."""
    return [step for step in steps if _verdict(step) == FAIL]


def _verdict(step: Mapping[str, Any]) -> str:
    return str(step.get("verdict") or (PASS if step["passed"] else FAIL))
