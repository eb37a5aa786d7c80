"""Replies without a model: text of so many tokens, JSON that fits a schema, alternatives with falling logprobs."""

from __future__ import annotations

import hashlib
import json
import math

WORDS = ("This ", "is ", "a ", "stand-in; ", "no ", "model ", "has ", "read ", "the ", "request. ")
NATURAL_TOKENS = 24  # where an answer ends by itself
DEEPEST = 32  # schemas are followed so far


def prompt_tokens(messages) -> int:
    """Tokens of a prompt, guessed: four characters each, four for each message, and 64 for each picture."""
    return sum(
        4 + math.ceil(len(_text(message.get("content"))) / 4) + 64 * _pictures(message.get("content")) for message in messages
    )


def _pictures(content) -> int:
    return sum(isinstance(part, dict) and part.get("type") == "image_url" for part in content) if isinstance(content, list) else 0


def vector(text) -> list[float]:
    """An embedding of eight numbers; another one for another text."""
    return [byte / 255 for byte in hashlib.sha256(str(text).encode()).digest()[:8]]


def _text(content) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def tokens(body, guided="fits"):
    """(tokens, finish_reason) of the answer to a chat request. With `ignore_eos` it is as long as `max_tokens` says."""
    wanted = body.get("max_completion_tokens") or body.get("max_tokens")
    said = _said(body.get("response_format") or {}, guided)
    if said is None:
        count = wanted if wanted and body.get("ignore_eos") else NATURAL_TOKENS
        found = [WORDS[number % len(WORDS)] for number in range(count)]
    else:
        found = [said[place : place + 4] for place in range(0, len(said), 4)]
    return (found[:wanted], "length") if wanted and wanted < len(found) else (found, "stop")


def _said(form, guided):
    """What a guided answer says; None for free text."""
    if form.get("type") not in ("json_schema", "json_object") or guided == "text":
        return None
    if guided == "empty":
        return "{}"
    text = json.dumps(fit((form.get("json_schema") or {}).get("schema") or {"type": "object"}))
    return text[: len(text) // 2] if guided == "cut" else text


def fit(schema, depth=0):
    """A value that fits a JSON Schema of the kinds that people write for engines: types, bounds, enum, const, anyOf."""
    if depth > DEEPEST or not isinstance(schema, dict):
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return fit({**schema, word: None, **schema[word][0]}, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind or ("object" if "properties" in schema else "string")
    if kind == "object":
        known = schema.get("properties", {})
        return {name: fit(known.get(name, {}), depth + 1) for name in dict.fromkeys([*schema.get("required", []), *known])}
    if kind == "array":
        return [fit(schema.get("items", {}), depth + 1) for _ in range(schema.get("minItems", 1))]
    if kind == "string":
        return "stand-in".ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength", 1000)]
    return {"boolean": True, "null": None}.get(kind, _number(schema)) if kind != "null" else None


def _number(schema):
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 8) - ("exclusiveMaximum" in schema))
    return max(low, min(7, high))


def logprobs(said, count, values=None):
    """What `logprobs: true` adds to a choice; `count` alternatives for each token, the likeliest first, or these values."""
    content = []
    numbers = [-0.1 - number for number in range(max(count, 1))] if values is None else values
    for token in said:
        others = [(f"{token}{place or ''}", value) for place, value in enumerate(numbers)]
        rows = [{"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in others]
        content.append({**rows[0], "top_logprobs": rows if values is not None else rows[:count]})
    return {"content": content}
