"""Where OpenAI-shaped replies have what the result log wants. Pure functions over decoded JSON, which may be of any shape."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from modelyard_gateway import thinking

_USUAL = frozenset(("role", "content"))


def mapping(value: Any) -> Mapping[str, Any]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def choices(body: Any) -> List[Mapping[str, Any]]:
    """The choices of a reply or of an event of a stream."""
    found = mapping(body).get("choices")
    return [mapping(choice) for choice in found] if isinstance(found, list) else []


def tokens(usage: Any) -> Dict[str, Optional[int]]:
    """Prompt and completion tokens of a usage object, which other interfaces call input and output."""
    known = mapping(usage)
    pairs = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    values = {name: known.get(name, known.get(other)) for name, other in pairs.items()}
    return {name: value if isinstance(value, int) and not isinstance(value, bool) else None for name, value in values.items()}


def message(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a choice brings: the message of a chat, the delta of an event, or the choice itself of a completion."""
    return mapping(choice.get("message") or choice.get("delta")) or choice


def text(choice: Mapping[str, Any]) -> str:
    """The text of a choice for people; a call of a tool as `name(arguments)`."""
    brought = message(choice)
    content = brought.get("content", brought.get("text"))
    shown = content if isinstance(content, str) else ""
    calls = brought.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = mapping(mapping(call).get("function"))
        name, arguments = function.get("name"), function.get("arguments")
        shown += (name + "(" if isinstance(name, str) and name else "") + (arguments if isinstance(arguments, str) else "")
        if "message" in choice and shown:
            shown += ")"
    return shown


def plain_text(event: Mapping[str, Any]) -> Optional[str]:
    """The text of an event of the usual form, which is read at once: one choice, and text alone in it. None for all others."""
    try:
        (choice,) = event["choices"]
        delta = choice["delta"]
        content = delta["content"]
        usual = choice["index"] == 0 and isinstance(content, str) and delta.keys() <= _USUAL and "message" not in choice
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return content if usual else None


def reasoning(choice: Mapping[str, Any]) -> str:
    """The reasoning text of a choice, when a parser of the engine has parted it from the answer."""
    return thinking.field(message(choice))


def clean(snippet: str, limit: int) -> Optional[str]:
    """One line of at most so many characters; None for nothing or when none is wanted."""
    return " ".join(snippet[: limit * 4].split())[:limit] or None
