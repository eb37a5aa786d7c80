"""Steps that ask for text: a chat, a completion, many requests one at a time."""

from __future__ import annotations

import statistics
from typing import Any, Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import vectors
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import last, message, tokens, unanswered
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    CHAT,
    EMBED,
    OTHER,
    Body,
    Instance,
    Service,
    Step,
    Verdict,
    also,
    chat,
    failed,
    generates,
    kind,
    passed,
    post,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan import lora

READ_REPLY = "read the reply in the evidence; the model's chat template or its parser may swallow the text"


def plain(_: Service, __: Instance, seen: Dict[str, Any]) -> Verdict:
    """A reply with text in it, and tokens counted."""
    answer, none = last(seen)
    if none:
        return none
    choice, text = message(answer)
    if not choice or not text:
        return failed("the reply holds no text", "empty", READ_REPLY)
    if not tokens(answer):
        return failed("the reply counts no completion tokens", "shape", READ_REPLY)
    return passed(f"{tokens(answer)} tokens, finish_reason {choice.get('finish_reason')}")


def completion(_: Service, __: Instance, seen: Dict[str, Any]) -> Verdict:
    """The same of /v1/completions, which has the text elsewhere."""
    answer, none = last(seen)
    if none:
        return none
    try:
        choice = answer["body"]["choices"][0]
        text, reason = choice["text"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        text, reason = "", None
    if not isinstance(text, str) or not text:
        return failed("the reply holds no text", "empty", READ_REPLY)
    return passed(f"{tokens(answer)} tokens, finish_reason {reason}")


def adapters(service: Service, _: Instance, seen: Dict[str, Any]) -> Verdict:
    """A chat with each adapter: an engine loads one that it was not given at its start only when it is asked for."""
    for name, answer in zip(lora.modules(service["engine"]), seen["answers"]):
        none = unanswered(answer, seen, f"adapter {name}: ")
        if none:
            return none
        if not message(answer)[1]:
            return failed(f"adapter {name}: the reply holds no text", "empty", READ_REPLY)
    if len(seen["answers"]) != len(lora.modules(service["engine"])):
        return failed(f"{len(seen['answers'])} adapters were asked", "shape", "run the acceptance again")
    return passed(", ".join(lora.modules(service["engine"])))


def _with_adapters(service: Service) -> List[Body]:
    return [{**chat(service, "Say hello.", 16), "model": name} for name in lora.modules(service["engine"])]


def serial(service: Service, __: Instance, seen: Dict[str, Any]) -> Verdict:
    """All of n requests one at a time."""
    answers = seen["answers"]
    holds = vectors.usable if kind(service) == EMBED else lambda answer: bool(message(answer)[1])
    for place, answer in enumerate(answers, 1):
        none = unanswered(answer, seen, f"request {place}: ")
        if none:
            return none
        if not holds(answer):
            return failed(f"request {place}: the reply holds nothing", "empty", READ_REPLY)
    wanted = service["acceptance"]["serial_requests"]
    if len(answers) != wanted:
        return failed(f"{len(answers)} of {wanted} requests were answered", "shape", "run the acceptance again")
    times = [a["seconds"] for a in answers]
    if not times:
        return passed("none asked for")
    return passed(f"{len(times)} of {len(times)}, median {statistics.median(times):.2f} s, longest {max(times):.2f} s")


def _ask_serial(service: Service, instance: Instance) -> Dict[str, Any]:
    count = service["acceptance"]["serial_requests"]
    # No two alike: an answer out of a cache proves nothing.
    if kind(service) == EMBED:
        return post(vectors.PATH, lambda s: [vectors.body(s, [f"number {n}"]) for n in range(count)])(service, instance)
    return post(CHAT, lambda s: [chat(s, f"Count to {n}.", 16) for n in range(2, count + 2)])(service, instance)


def _completion(service: Service) -> List[Body]:
    return [{"model": service["model"]["id"], "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}]


CHAT_STEP = Step("chat", post(CHAT, lambda s: [chat(s, "Say hello.", 16)]), plain, quick=True, wanted=generates)
ADAPTERS = Step(
    "adapters",
    post(CHAT, _with_adapters),
    adapters,
    quick=True,
    wanted=lambda s: generates(s) and bool(lora.modules(s["engine"])),
)
COMPLETIONS = Step("completions", post("/v1/completions", _completion), completion, wanted=also("completions"))
SERIAL = Step("serial", _ask_serial, serial, wanted=lambda s: kind(s) != OTHER)
