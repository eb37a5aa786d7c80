"""The step `embeddings`: an engine that pools gives vectors, and different ones for different texts."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import last
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    EMBED,
    Body,
    Instance,
    Service,
    Step,
    Verdict,
    failed,
    kind,
    passed,
    post,
)

PATH = "/v1/embeddings"
TEXTS = ("The capital of France is Paris.", "Twelve apples lie in a basket.")
READ_REPLY = "read the reply in the evidence; compare engine.runner and pooler_config with what the model is made for"


def body(service: Service, texts: Sequence[str]) -> Body:
    """A request for one vector a text."""
    return {"model": service["model"]["id"], "input": list(texts), "encoding_format": "float"}


def read(answer: Mapping[str, Any]) -> List[List[float]]:
    """The vectors in order; empty when the reply has another shape."""
    try:
        return [[float(x) for x in one["embedding"]] for one in answer["body"]["data"]]
    except (KeyError, TypeError, ValueError):
        return []


def usable(answer: Mapping[str, Any]) -> bool:
    """Vectors of finite numbers that are not all nothing."""
    found = read(answer)
    return bool(found) and all(v and all(map(math.isfinite, v)) and any(v) for v in found)


def embeddings(_: Service, __: Instance, seen: Dict[str, Any]) -> Verdict:
    """One vector a text, of one length, finite, not nothing, not the same."""
    answer, none = last(seen)
    if none:
        return none
    found = read(answer)
    if len(found) != len(TEXTS):
        return failed(f"{len(found)} vectors came for {len(TEXTS)} texts", "shape", READ_REPLY)
    if len({len(v) for v in found}) > 1:
        return failed("the vectors have different lengths", "shape", READ_REPLY)
    if not all(math.isfinite(x) for v in found for x in v):
        return failed("a vector holds a number that is not finite", "not_finite", READ_REPLY)
    if not usable(answer):
        return failed("a vector is nothing but zeros", "empty", READ_REPLY)
    if found[0] == found[1]:
        return failed("two different texts have the same vector", "same", READ_REPLY)
    return passed(f"{len(found)} vectors of {len(found[0])} numbers")


STEP = Step("embeddings", post(PATH, lambda s: [body(s, TEXTS)]), embeddings, quick=True, wanted=lambda s: kind(s) == EMBED)
