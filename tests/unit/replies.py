"""Answers of an engine as the judges of the acceptance get them."""

from __future__ import annotations

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from unit import worlds

SERVICE = worlds.service()
INSTANCE = {"index": 0, "port": 8000}


def judged(step, seen, service=SERVICE):
    """(complaint, what was seen) of one step."""
    return tuple(acceptance.ladder(service, [step])[0].judge(service, INSTANCE, seen)[:2])


def answer(body=None, status=200, seconds=0.5, error=""):
    return {"status": status, "body": body, "seconds": seconds, "error": error}


def one(body=None, **more):
    return {"answers": [answer(body, **more)]}


def reply(content, finish_reason="stop", tokens=7, **choice):
    return {
        "choices": [{"message": {"content": content}, "finish_reason": finish_reason, **choice}],
        "usage": {"completion_tokens": tokens},
    }


def tokens(*alternatives):
    """A logprobs reply: for each token its alternatives."""
    content = [{"token": "a", "logprob": v[0], "top_logprobs": [{"logprob": x} for x in v]} for v in alternatives]
    return reply("a", logprobs={"content": content})


GOOD = {"answer": "Paris", "count": 1, "kind": "place"}
