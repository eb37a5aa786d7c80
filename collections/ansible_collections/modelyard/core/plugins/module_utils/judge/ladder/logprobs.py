"""The step `logprobs`: the wanted number of alternatives for each token, finite, in order."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import last, message
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    CHAT,
    Instance,
    Service,
    Step,
    Verdict,
    chat,
    failed,
    generates,
    passed,
    post,
)

#: The logarithm of a probability is not above 0; so much is rounding.
ROUNDING = 1e-3
NUMERIC = "do not use its answers: numbers that are none come from weights, a quantisation or a kernel; keep the evidence"
SHAPE = "compare acceptance.top_logprobs with engine.max_logprobs, and read the reply in the evidence"


def _alternatives(choice: Mapping[str, Any]) -> Optional[List[List[float]]]:
    """Logprobs of the alternatives of each token; None when they have another shape."""
    try:
        return [[float(a["logprob"]) for a in token["top_logprobs"]] for token in choice["logprobs"]["content"]]
    except (KeyError, TypeError, ValueError):
        return None


def logprobs(service: Service, _: Instance, seen: Dict[str, Any]) -> Verdict:
    """The first token that is not as it should be is named."""
    answer, none = last(seen)
    if none:
        return none
    wanted = service["acceptance"]["top_logprobs"]
    tokens = _alternatives(message(answer)[0])
    if not tokens:
        return failed("the reply has no logprobs", "shape", SHAPE)
    for place, values in enumerate(tokens):
        if len(values) != wanted:
            return failed(f"token {place} has {len(values)} alternatives, {wanted} were wanted", "shape", SHAPE)
        if not all(math.isfinite(v) for v in values):
            return failed(f"token {place} has a logprob that is not finite", "not_finite", NUMERIC)
        if any(v > ROUNDING for v in values):
            return failed(f"token {place} has a logprob above 0", "not_finite", NUMERIC)
        if values != sorted(values, reverse=True):
            return failed(f"the alternatives of token {place} are not sorted", "unsorted", NUMERIC)
    return passed(f"{len(tokens)} tokens, {wanted} alternatives each")


def _ask(service: Service, instance: Instance) -> Dict[str, Any]:
    asked = {"logprobs": True, "top_logprobs": service["acceptance"]["top_logprobs"]}
    return post(CHAT, lambda s: [chat(s, "Name a colour.", 8, **asked)])(service, instance)


STEP = Step("logprobs", _ask, logprobs, wanted=generates)
