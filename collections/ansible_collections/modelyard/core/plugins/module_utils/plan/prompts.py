"""One line of a file of prompts: what is to be counted, and how long an answer was asked for. Pure functions.

Known are plain text, a number of tokens, and JSON objects: requests of the API for chats and completions (`messages`, `prompt`),
lines of OpenAI's batches (`body`), `text`, `tokens`, and lines of the gateway's result log (`prompt_tokens`; where the engine
refused a prompt, its number stands in the error).
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

#: What is longer is no line of prompts.
LINE_BYTES = 16 * 2**20
#: A number of tokens beyond this is none.
MOST_TOKENS = 10**8
#: Characters from which on digits are looked at as other text is.
LONG = 20
#: The engine's words for a prompt that was refused, by release; `answer` is what was asked for besides.
REFUSED = tuple(
    re.compile(pattern)
    for pattern in (
        r"\((?P<tokens>\d+) in the (?:messages|prompt), (?P<answer>\d+) in the completion\)",
        r"(?:prompt contains|request has|prompt has) (?:at least )?(?P<tokens>\d+) (?:input )?tokens",
        r"\(length (?P<tokens>\d+)\)",
        r"Input length \((?P<tokens>\d+)\)",
    )
)
#: Parts of a message that are no text; what they cost is decided by the model's own code.
TEXT_PARTS = ("text", "input_text")


class Damaged(Exception):
    """The line holds no prompt; the words say why, and nothing of the line."""


class Prompt(NamedTuple):
    """What is to be counted: `tokens` when that is known already, else `text` or `messages`.

    `raw`: the text goes to the model as it is, without the chat template. `answer`: tokens that were asked for, None when the
    line does not say. `extra`: arguments of the chat template. `pictures`: parts that are no text.
    """

    tokens: Optional[int] = None
    text: Optional[str] = None
    messages: Optional[List[Dict[str, Any]]] = None
    raw: bool = False
    answer: Optional[int] = None
    extra: Mapping[str, Any] = {}
    pictures: int = 0


def read(line: bytes, plain: bool = False) -> List[Prompt]:
    """The prompts of a line; none of an empty line, or of one that is about something else.

    :param plain: every line is text, whatever it looks like
    :raises Damaged: it holds no prompt
    """
    number = line.strip()
    if number.isdigit() and len(number) < LONG and not plain and number[:1] != b"0":  # files of these are long: no detour by JSON
        return [Prompt(tokens=_count(int(number)))]
    try:
        text = line.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise Damaged("it is no UTF-8") from None
    if not text.strip():
        return []
    if plain:
        return [Prompt(text=text)]
    first, digits = text.lstrip()[0], text.strip()
    if first not in '{["' and not (digits.isascii() and digits.isdigit()):
        return [Prompt(text=text)]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        if first != "{":  # a sentence in quotes, an instruction in brackets
            return [Prompt(text=text)]
        raise Damaged("it is no JSON") from None
    if isinstance(found, str):
        return [Prompt(text=found)]
    if isinstance(found, int):
        return [Prompt(tokens=_count(found))]
    if not isinstance(found, dict):
        raise Damaged("it is neither an object, nor a number, nor text")
    return _of_object(found)


def _of_object(found: Mapping[str, Any]) -> List[Prompt]:
    if isinstance(found.get("body"), dict):  # a line of a batch
        return _of_object(found["body"])
    answer = next((value for value in (_whole(found.get(key)) for key in ("max_completion_tokens", "max_tokens")) if value), None)
    if isinstance(found.get("messages"), list):
        return [_chat(found, answer)]
    if "prompt" in found:
        return _completion(found["prompt"], answer)
    for key in ("text", "input"):
        if isinstance(found.get(key), str):
            return [Prompt(text=found[key], answer=answer)]
    for key in ("tokens", "input_tokens"):
        if key in found:
            return [Prompt(tokens=_count(found[key]), answer=answer)]
    if "prompt_tokens" in found:
        return _logged(found)
    if "note" in found:
        return []
    raise Damaged("it has none of messages, prompt, text, tokens, prompt_tokens and body")


def _chat(found: Mapping[str, Any], answer: Optional[int]) -> Prompt:
    messages, pictures = [], 0
    for message in found["messages"]:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Damaged("a message has no role")
        content = message.get("content")
        if isinstance(content, list):
            texts = [part["text"] for part in content if _is_text(part)]
            pictures += len(content) - len(texts)
            content = "\n".join(texts)
        if content is not None and not isinstance(content, str):
            raise Damaged("the content of a message is neither text nor a list of parts")
        messages.append({**message, "content": content or ""})
    if not messages:
        raise Damaged("it has no message")
    extra = found.get("chat_template_kwargs")
    more = dict(extra) if isinstance(extra, dict) else {}
    if isinstance(found.get("tools"), list) and found["tools"]:
        more["tools"] = found["tools"]
    return Prompt(messages=messages, answer=answer, extra=more, pictures=pictures)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type", "text") in TEXT_PARTS and isinstance(part.get("text"), str)


def _completion(prompt: Any, answer: Optional[int]) -> List[Prompt]:
    """`prompt` of the completions API: a text, several, token ids, or several lists of them."""
    if isinstance(prompt, str):
        return [Prompt(text=prompt, raw=True, answer=answer)]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(one, int) for one in prompt):
            return [Prompt(tokens=len(prompt), answer=answer)]
        if all(isinstance(one, (str, list)) and one for one in prompt):
            return [found for one in prompt for found in _completion(one, answer)]
    raise Damaged("its prompt is neither text nor a list of token ids")


def _logged(found: Mapping[str, Any]) -> List[Prompt]:
    """A line of the result log. What was generated is the least that was asked for."""
    written = _whole(found.get("completion_tokens"))
    if found["prompt_tokens"] is not None:
        return [Prompt(tokens=_count(found["prompt_tokens"]), answer=written)]
    for pattern in REFUSED:
        said = pattern.search(str(found.get("error") or ""))
        if said:
            return [Prompt(tokens=_count(int(said["tokens"])), answer=_whole(int(said.groupdict().get("answer") or 0)))]
    return []


def _whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_TOKENS else None


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        raise Damaged("its number of tokens is none")
    return value
