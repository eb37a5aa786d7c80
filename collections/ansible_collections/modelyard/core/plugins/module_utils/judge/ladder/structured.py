"""The step `schema`: replies that fit a JSON Schema, our own and those that the inventory adds."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.judge import json_schema
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import message, unanswered
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    CHAT,
    Body,
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
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

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
OURS: Dict[str, Any] = {
    "name": "",
    "schema": SCHEMA,
    "prompt": "Which city is the capital of France? Answer as JSON.",
    "max_tokens": 200,
}
THINKING_TOKENS = 2048
UNCONSTRAINED = (
    "answers are not held to a schema: see structured_outputs_config (guided_decoding_backend before 0.11) under engine"
)
BLANK = "; it was cut by max_tokens (white space between tokens? structured_outputs_config: disable_any_whitespace)"
CUT = "; it was cut by max_tokens before it was whole"
LONGER = "give it a larger max_tokens (acceptance.schemas), or its schema bounds (maxLength, maxItems); nothing needs a restart"
#: So many blanks one after the other are no indentation.
BLANKS = re.compile(r"\s{12}")


def wanted(service: Service) -> List[Mapping[str, Any]]:
    """All schemas of the step, our own first."""
    return [OURS, *service["acceptance"].get("schemas", ())]


def request(service: Service, one: Mapping[str, Any]) -> Body:
    """A chat that is held to the schema, in the field that the release reads (plan/data/vllm/facts.yml)."""
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in one["name"]) or "probe"
    field = str(service.get("structured", "response_format"))
    form: Dict[str, Any] = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": one["schema"]}}
    return chat(
        service,
        one["prompt"],
        one["max_tokens"] + _thinking(service),
        **{field: form if field == "response_format" else one["schema"]},
    )


def _thinking(service: Service) -> int:
    """Tokens for a thinking part, which is not held to the schema and comes first where the engine has a parser for it."""
    if not service["engine"].get("reasoning_parser"):
        return 0
    length = number(service["engine"].get("max_model_len"))
    return min(THINKING_TOKENS, length // 4) if length and length > 0 else THINKING_TOKENS


def _no_json(title: str, text: str, cut: bool) -> Verdict:
    """`cut`: it has ended because max_tokens were written. Then it may be held to its schema all the same."""
    blank, begun = cut and bool(BLANKS.search(text)), text.lstrip()[:1] in ("{", "[", '"')
    hint = BLANK if blank else CUT if cut and begun else ""
    what = f"{title}the reply is no JSON{hint}: {text.strip()[:120]!r}"
    return failed(what, "cut", LONGER) if hint == CUT else failed(what, "unconstrained", UNCONSTRAINED)


def schema(service: Service, _: Instance, seen: Dict[str, Any]) -> Verdict:
    """Every reply is JSON and fits the schema that was sent."""
    shown = ""
    for one, answer in zip(wanted(service), seen["answers"]):
        title = f"schema {one['name']}: " if one["name"] else ""
        none = unanswered(answer, seen, title)
        if none:
            return none
        choice, text = message(answer)
        if text and not choice["message"]["content"]:
            what = f"{title}the reply holds nothing but a thinking part ({len(text)} characters)"
            return failed(what, "empty", "give acceptance.schemas a larger max_tokens, or the model a way to think less")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return _no_json(title, text, choice.get("finish_reason") == "length")
        errors = json_schema.errors(value, one["schema"])
        if errors:
            what = f"{title}the reply does not fit the schema: {'; '.join(errors)[:300]}"
            return failed(what, "unconstrained", UNCONSTRAINED)
        shown = shown or json.dumps(value)[:80]
    if len(seen["answers"]) != len(wanted(service)):
        return failed(f"{len(seen['answers'])} of {len(wanted(service))} requests were answered", "shape", UNCONSTRAINED)
    more = service["acceptance"].get("schemas", ())
    return passed(shown + (f"; and {', '.join(one['name'] for one in more)}" if more else ""))


STEP = Step("schema", post(CHAT, lambda s: [request(s, one) for one in wanted(s)]), schema, quick=True, wanted=generates)
