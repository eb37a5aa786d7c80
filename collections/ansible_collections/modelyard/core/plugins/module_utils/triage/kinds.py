"""Of what kind one line is by itself: for those who look at a log while an engine starts or runs. Pure functions."""

from __future__ import annotations

from ansible_collections.modelyard.core.plugins.module_utils.triage import order, reading
from ansible_collections.modelyard.core.plugins.module_utils.triage.rules import RULES
from ansible_collections.modelyard.core.plugins.module_utils.triage.symptoms import SYMPTOMS


def first_error(words: str) -> bool:
    """Does a line, without its prefixes, name a first error? Requests that were refused are none of an engine."""
    low = words.lower()
    return any(
        rule.cause not in order.REQUESTS
        and not rule.frames
        and any(word in low for word in rule.words)
        and rule.pattern.search(words)
        for rule in RULES
    )


def symptom(words: str) -> bool:
    """Does a line only say that something had failed? One that shows the signal says how."""
    low = words.lower()
    found = [rule.cause for rule in SYMPTOMS if any(word in low for word in rule.words) and rule.pattern.search(words)]
    return "worker_killed_signal" not in found and bool(found or reading.FOLLOWER.search(words))
