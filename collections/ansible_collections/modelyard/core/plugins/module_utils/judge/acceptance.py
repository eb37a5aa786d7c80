"""The acceptance ladder as data: what each step asks of a service, and how its answer is judged. Pure functions.

A step is passed when its judge returns no complaint. Status 200 alone never passes anything. Standard
library only: the ladder is walked on the host.
"""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import json_schema
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

Body = Dict[str, Any]
#: (complaint, what was seen); an empty complaint is a pass.
Verdict = Tuple[str, str]

#: Required fields, a closed set, bounded: `{}`, a wrong type and an extra key all fail.
SCHEMA: Dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "maxLength": 16},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"type": "string", "enum": ["place", "number", "other"]},
    },
    "required": ["answer", "count", "kind"],
    "additionalProperties": False,
}


class Step(NamedTuple):
    """One rung. `ask`: request for the module service_probe; `judge`: its answer -> verdict."""

    id: str
    ask: Callable[[Mapping[str, Any], Mapping[str, Any]], Dict[str, Any]]
    judge: Callable[[Mapping[str, Any], Mapping[str, Any], Dict[str, Any]], Verdict]


def chat(service: Mapping[str, Any], prompt: str, max_tokens: int, **more: Any) -> Body:
    """A chat request; temperature 0, so that a repetition says the same."""
    return {
        "model": service["model"]["id"],
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        **more,
    }


def refused(answer: Mapping[str, Any]) -> str:
    """Why an answer is no answer, in words that say what to do; empty when it came with status 200."""
    status = answer["status"]
    if status == 200:
        return ""
    if status == 0:
        if answer["error"] == "refused":
            return "connection refused: nothing listens on the port; look at the engine's log"
        if answer["error"] == "timeout":
            return (
                f"no answer within {answer['seconds']:.0f} s; the engine may still be busy: "
                "look at its log before anything is restarted"
            )
        return f"no answer ({answer['error']})"
    body = answer["body"]
    said = json.dumps(body)[:600] if isinstance(body, (dict, list)) else str(body)[:600]
    if status == 400:
        return f"HTTP 400: the request was refused ({_reason_of_400(said)}); nothing needs a restart. Body: {said}"
    if status == 401:
        return "HTTP 401: the API key was not accepted; compare api_key in the service's folder with the running engine's"
    if status == 404:
        return f"HTTP 404: model name or path unknown. Body: {said}"
    return f"HTTP {status}. Body: {said}"


def _reason_of_400(body: str) -> str:
    lower = body.lower()
    if "context length" in lower or "maximum model length" in lower or "max_model_len" in lower:
        return "context: the prompt is longer than max_model_len allows"
    if "schema" in lower or "grammar" in lower:
        return "schema: the engine cannot constrain to it"
    return "parameter"


def _message(answer: Mapping[str, Any]) -> Tuple[Dict[str, Any], str]:
    """(first choice, its text); empty when the reply has another shape."""
    body = answer["body"]
    try:
        choice = body["choices"][0]
        text = choice["message"]["content"] or choice["message"].get("reasoning") or ""
    except (KeyError, IndexError, TypeError, AttributeError):
        return {}, ""
    return (choice, text) if isinstance(text, str) else ({}, "")


def _usage(answer: Mapping[str, Any]) -> int:
    """Completion tokens that the reply counts; 0 when it does not."""
    usage = answer["body"].get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else 0
    return tokens if isinstance(tokens, int) else 0


def _alternatives(choice: Mapping[str, Any]) -> Optional[List[List[float]]]:
    """Logprobs of the alternatives of each token; None when they have another shape."""
    try:
        return [[float(a["logprob"]) for a in token["top_logprobs"]] for token in choice["logprobs"]["content"]]
    except (KeyError, TypeError, ValueError):
        return None


# -- judges ---------------------------------------------------------------------------------------------------------


def judge_process(service: Mapping[str, Any], instance: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """API server, engine core and one worker a rank, all ours."""
    comms = seen["comms"]
    shown = f"pid {seen['leader']}, {len(comms)} processes"
    if not seen["alive"]:
        return "the API server is not running", shown
    tp = service["topology"]["tensor_parallel_size"]
    workers = sum(c.startswith("VLLM::Worker") for c in comms)
    if not any(c.startswith("VLLM::EngineCor") for c in comms):
        return f"no EngineCore below the API server ({', '.join(comms)})", shown
    if tp > 1 and workers != tp:
        return f"{workers} workers for tensor_parallel_size {tp}", shown
    return "", f"{shown}, {workers} worker(s)"


def judge_port(_: Mapping[str, Any], instance: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """The port is listened on, and by this very service."""
    if not seen["listening"]:
        return f"nothing listens on port {instance['port']}", ""
    if not seen["ours"]:
        owner = f"pid {seen['pid']}" if seen["pid"] else "a process that this user may not look into"
        return f"port {instance['port']} is held by {owner}, which is not of this service", ""
    return "", f"port {instance['port']}, pid {seen['pid']}"


def judge_health(_: Mapping[str, Any], __: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """/health answers 200."""
    return refused(seen["answers"][-1]), "200"


def judge_models(service: Mapping[str, Any], _: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """/v1/models shows the wanted id, and the wanted max_model_len when the inventory names one."""
    answer = seen["answers"][-1]
    complaint = refused(answer)
    if complaint:
        return complaint, ""
    try:
        entries = {str(m["id"]): m for m in answer["body"]["data"]}
    except (KeyError, TypeError):
        return f"the reply is not a list of models: {str(answer['body'])[:120]!r}", ""
    entry = entries.get(service["model"]["id"])
    if entry is None:
        return f"{service['model']['id']} is not listed, only {', '.join(entries)}", ""
    length, wanted = entry.get("max_model_len"), number(service["engine"].get("max_model_len"))
    if wanted and wanted > 0 and length != wanted:
        return f"max_model_len is {length}, {wanted} was wanted", ""
    return "", f"{entry['id']}, max_model_len {length}"


def judge_chat(_: Mapping[str, Any], __: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """A reply with text in it."""
    complaint = refused(seen["answers"][-1])
    if complaint:
        return complaint, ""
    choice, text = _message(seen["answers"][-1])
    if not choice or not text:
        return "the reply holds no text", ""
    tokens = _usage(seen["answers"][-1])
    if not tokens:
        return "the reply counts no completion tokens", ""
    return "", f"{tokens} tokens, finish_reason {choice.get('finish_reason')}"


def judge_schema(_: Mapping[str, Any], __: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """The reply is JSON and fits the schema that was sent."""
    complaint = refused(seen["answers"][-1])
    if complaint:
        return complaint, ""
    choice, text = _message(seen["answers"][-1])
    try:
        value = json.loads(text)
    except ValueError:
        hint = ""
        if choice.get("finish_reason") == "length":
            hint = "; it was cut by max_tokens (white space between tokens? structured_outputs_config: disable_any_whitespace)"
        return f"the reply is no JSON{hint}: {text.strip()[:120]!r}", ""
    errors = json_schema.errors(value, SCHEMA)
    if errors:
        return f"the reply does not fit the schema: {'; '.join(errors)[:300]}", ""
    return "", json.dumps(value)[:80]


def judge_logprobs(service: Mapping[str, Any], _: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """Every token has the wanted number of alternatives, finite and sorted."""
    complaint = refused(seen["answers"][-1])
    if complaint:
        return complaint, ""
    wanted = service["acceptance"]["top_logprobs"]
    choice, _text = _message(seen["answers"][-1])
    tokens = _alternatives(choice)
    if not tokens:
        return "the reply has no logprobs", ""
    for place, values in enumerate(tokens):
        if len(values) != wanted:
            return f"token {place} has {len(values)} alternatives, {wanted} were wanted", ""
        if not all(math.isfinite(v) for v in values):
            return f"token {place} has a logprob that is not finite", ""
        if values != sorted(values, reverse=True):
            return f"the alternatives of token {place} are not sorted", ""
    return "", f"{len(tokens)} tokens, {wanted} alternatives each"


def judge_serial(service: Mapping[str, Any], __: Mapping[str, Any], seen: Dict[str, Any]) -> Verdict:
    """All of n requests one at a time."""
    answers = seen["answers"]
    for place, answer in enumerate(answers, 1):
        complaint = refused(answer)
        if complaint:
            return f"request {place}: {complaint}", ""
        if not _message(answer)[1]:
            return f"request {place}: the reply holds no text", ""
    wanted = service["acceptance"]["serial_requests"]
    if len(answers) != wanted:
        return f"{len(answers)} of {wanted} requests were answered", ""
    times = sorted(a["seconds"] for a in answers)
    if not times:
        return "", "none asked for"
    return "", f"{len(times)} of {len(times)}, median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s"


def _get(path: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Dict[str, Any]]:
    return lambda service, instance: {"kind": "http", "method": "GET", "path": path, "bodies": [None]}


def _post(
    make: Callable[[Mapping[str, Any]], List[Body]],
) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Dict[str, Any]]:
    return lambda service, instance: {
        "kind": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "bodies": make(service),
    }


def _schema_request(service: Mapping[str, Any]) -> List[Body]:
    wanted = {"type": "json_schema", "json_schema": {"name": "probe", "strict": True, "schema": SCHEMA}}
    return [chat(service, "Which city is the capital of France? Answer as JSON.", 200, response_format=wanted)]


LADDER: Tuple[Step, ...] = (
    Step("process", lambda s, i: {"kind": "process"}, judge_process),
    Step("port", lambda s, i: {"kind": "port"}, judge_port),
    Step("health", _get("/health"), judge_health),
    Step("models", _get("/v1/models"), judge_models),
    Step("chat", _post(lambda s: [chat(s, "Say hello.", 16)]), judge_chat),
    Step("schema", _post(_schema_request), judge_schema),
    Step(
        "logprobs",
        _post(lambda s: [chat(s, "Name a colour.", 8, logprobs=True, top_logprobs=s["acceptance"]["top_logprobs"])]),
        judge_logprobs,
    ),
    Step(
        "serial",
        _post(lambda s: [chat(s, f"Count to {n}.", 16) for n in range(2, s["acceptance"]["serial_requests"] + 2)]),
        judge_serial,
    ),
)


def proven(steps: Sequence[Mapping[str, Any]]) -> List[int]:
    """Indexes of the instances that have passed the whole ladder, from the entries of a walk."""
    whole = [(step.id, True) for step in LADDER]
    indexes = sorted({int(step["instance"]) for step in steps})
    return [index for index in indexes if [(s["id"], s["passed"]) for s in steps if s["instance"] == index] == whole]


def ladder(ids: Optional[List[str]] = None) -> List[Step]:
    """The steps in order, or those of them that are named; raises KeyError for a name that is none."""
    known = {step.id for step in LADDER}
    for name in ids or []:
        if name not in known:
            raise KeyError(f"{name} is no acceptance step; known: {', '.join(s.id for s in LADDER)}")
    return [step for step in LADDER if not ids or step.id in ids]
