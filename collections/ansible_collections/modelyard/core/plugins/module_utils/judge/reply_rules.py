"""The table of reply_cause.py: which texts and which statuses mean which cause, in words, with what to do next. Data.

The texts are those of vLLM 0.8 to 0.33 and of the gateway.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Pattern, Tuple


class Cause(NamedTuple):
    """`what`: in words, with the numbers of the body; `do`: what next; `fault`: whose it is, `client`, `server` or `load`.

    `restart`: whether a restart of the instance would be of use, after what `do` says. What a client or the load causes comes
    back after it, and it takes the answers away from everybody else.
    """

    id: str
    what: str
    do: str
    fault: str
    restart: bool = False


class Rule(NamedTuple):
    """A cause that a body shows. `what` and `do` may name groups of the pattern."""

    id: str
    statuses: Tuple[int, ...]
    sign: Pattern[str]
    what: str
    do: str
    fault: str
    restart: bool = False


def _rule(
    name: str, statuses: Tuple[int, ...], sign: str, what: str, do: str, fault: str = "client", restart: bool = False
) -> Rule:
    return Rule(name, statuses, re.compile(sign, re.IGNORECASE | re.DOTALL), what, do, fault, restart)


_NO_RESTART = "nothing needs a restart"
_CONTEXT = f"send less, lower max_tokens, or plan a larger max_model_len; {_NO_RESTART}"
#: The first rule that fits counts.
RULES: Tuple[Rule, ...] = (
    _rule(
        "context",
        (400,),
        r"maximum context length is (?P<limit>\d+) tokens\D+?(?:contains |has |requested )(?:at least )?(?P<asked>\d+)\b"
        r"(?! characters)",
        "the prompt is too long: {asked} tokens, max_model_len {limit}",
        _CONTEXT,
    ),
    _rule(
        "context",
        (400,),
        r"\(length (?P<asked>\d+)\).*?longer than the maximum model length of (?P<limit>\d+)",
        "the prompt is too long: {asked} tokens, max_model_len {limit}",
        _CONTEXT,
    ),
    _rule(
        "context",
        (400,),
        r"maximum context length is (?P<limit>\d+)",
        "the prompt is too long for max_model_len {limit}",
        _CONTEXT,
    ),
    _rule(
        "max_tokens",
        (400,),
        r"max_tokens=(?P<asked>\d+) cannot be greater than max_model_len=(?P<limit>\d+)",
        "max_tokens asks for {asked} tokens, max_model_len is {limit}",
        f"lower max_tokens, or plan a larger max_model_len; {_NO_RESTART}",
    ),
    _rule("context", (400,), r"max_model_len|maximum model length|context length", "the prompt is too long", _CONTEXT),
    _rule(
        "multimodal",
        (400,),
        r"at most \d+ \w+\(s\) may be provided|not a multimodal|image_url|multi-?modal|mm_per_prompt",
        "the engine does not take such pictures, sounds or videos, or not so many",
        f"see that the model is multimodal, and limit_mm_per_prompt under engine; {_NO_RESTART}",
    ),
    _rule(
        "unsupported",
        (400, 404, 501),
        r"does not support [\w ]{1,40} API",
        "the engine was not started for such requests",
        "compare the path with engine.runner and engine.convert (engine.task in older releases)",
    ),
    _rule(
        "template",
        (400,),
        r"chat template",
        "the model has no template for chats",
        "set engine.chat_template, or ask /v1/completions",
    ),
    _rule(
        "model",
        (400, 404),
        r"model [`'\"]?(?P<name>[^`'\"]{1,100}?)[`'\"]? does not exist",
        "the model {name} is not served here",
        "use an id of /v1/models",
    ),
    _rule(
        "schema",
        (400, 422),
        r"grammar|json[_ ]?schema|structured[_ ]output|response_format|guided_",
        "the engine cannot hold an answer to this schema",
        f"correct the schema; {_NO_RESTART}",
    ),
    _rule(
        "tools",
        (400,),
        r"tool[_ ]choice|tool-call-parser|enable-auto-tool-choice",
        "the engine was started without a parser for calls of tools",
        "set engine.enable_auto_tool_choice and engine.tool_call_parser, or ask without tools",
    ),
    _rule("not_json", (400, 422), r"json_invalid|JSON decode error|Expecting value", "the body is no JSON", "correct the client"),
    _rule(
        "parameter",
        (400, 422),
        r"(?:parameter=|\"param\": ?\")(?P<name>[\w, .]{1,60}?)(?=, value=|[^\w, .]|$)",
        "the parameter {name} is wrong",
        f"correct it in the client; {_NO_RESTART}",
    ),
    _rule(
        "queue",
        (429,),
        r"queue|in flight|overloaded",
        "the gateway's queue was full, or the wait in it too long",
        "send fewer at once, or add instances; retry after the time that the answer names",
        "load",
    ),
    _rule(
        "hung",
        (502, 503, 504),
        r"hung|no token",
        "an engine has stopped making progress",
        "look at that engine's log",
        "server",
        restart=True,
    ),
    _rule(
        "refused",
        (502,),
        r"refused",
        "the backend refused the connection: nothing listened there",
        "look at the log of that instance, then deploy",
        "server",
        restart=True,
    ),
    _rule(
        "broken",
        (502,),
        r"broke|reset|closed|disconnect|ended",
        "the backend's connection broke before it had answered",
        "look at the end of that instance's log",
        "server",
    ),
    _rule(
        "engine_dead",
        (500, 503),
        r"EngineDead|EngineCore|engine (?:is )?dead|Engine loop",
        "the engine behind the API has died",
        "look at that instance's log, then deploy",
        "server",
        restart=True,
    ),
    _rule(
        "none_healthy",
        (503,),
        r"no (?:healthy )?backend|none .*healthy|no server is available|healthy",
        "no backend was healthy",
        "look at the backends in the gateway's status",
        "server",
    ),
)
#: What a status says by itself: id, words, what next, fault.
BY_STATUS = {
    400: Cause("request", "the engine refused the request", f"read the body; {_NO_RESTART}", "client"),
    401: Cause(
        "key", "the API key is missing or wrong", "compare the client's key with the gateway's and the service's", "client"
    ),
    403: Cause("forbidden", "the request is not allowed", "read the body", "client"),
    404: Cause("path", "there is no such path or model", "compare the path, and the model with /v1/models", "client"),
    405: Cause("method", "the path does not know this method", "correct the client", "client"),
    408: Cause("slow_client", "the client did not send its request in time", "look at the client and its network", "client"),
    413: Cause("too_large", "the body is larger than the gateway's limit", "send less, or raise the limit", "client"),
    415: Cause("content_type", "the content type is not application/json", "correct the client", "client"),
    422: Cause("request", "the request does not have the right form", f"read the body; {_NO_RESTART}", "client"),
    429: Cause("too_many", "there were too many requests", "send fewer at once, or add instances", "load"),
    431: Cause("headers", "the headers are too large", "correct the client", "client"),
    499: Cause(
        "client_gone", "the client went away before the answer was complete", "compare with the client's time limit", "client"
    ),
    500: Cause("engine_error", "the engine failed at this request", "look at that instance's log at that time", "server"),
    502: Cause("bad_gateway", "the backend gave no usable answer", "look at that instance's log at that time", "server"),
    503: Cause("unavailable", "the service was not available", "look at the log of what answered, a gateway's status", "server"),
    504: Cause(
        "timeout",
        "the backend did not answer within the time limit",
        "see whether it still generates before anything is restarted",
        "server",
    ),
}
CLIENT_GONE = BY_STATUS[499]
TRUNCATED = Cause("truncated", "the answer broke off in the middle", "look at the end of that instance's log", "server")
IN_STREAM = Cause("stream_error", "the engine reported an error in the middle of the answer", "read the error", "server")
ABORTED = Cause(
    "aborted", "the engine gave the request up: it was stopped or told to", "see whether that instance was stopped then", "server"
)
UNANSWERED = Cause("no_answer", "there was no answer", "look at that instance's log at that time", "server")
#: What a time-out means, by what the engine's figures say (engine_counters.py).
TIMEOUTS = {
    "loaded": Cause(
        "loaded",
        "the engine is at work for others and still generates",
        f"ask again when less is asked of it, or add instances; {_NO_RESTART}",
        "load",
    ),
    "hung": Cause(
        "hung",
        "the engine has requests and generates no token",
        "the evidence is kept; read the log for a time-out between processes, then stop and start this instance",
        "server",
        True,
    ),
    "slow": Cause(
        "slow",
        "the engine has generated all the time, but too slowly for the limit",
        f"raise acceptance.request_timeout_s, or see what else uses its cards and cores; {_NO_RESTART}",
        "server",
    ),
    # Figures are told at the end of a step: of an engine that hangs in the first step after a pause they are those of the pause.
    "idle": Cause(
        "silent",
        "no token came, and by its own figures, which are of its last finished step, the engine has no request: it hangs since "
        "then, or the request got lost in the API server",
        "the evidence is kept; see which process stands still and where the log ends, then stop and start this instance",
        "server",
        True,
    ),
    "unknown": Cause(
        "timeout",
        "whether the engine still generates could not be seen, because its /metrics do not answer",
        "look at the end of its log, and at /metrics again, before anything is restarted",
        "server",
    ),
}
#: What a refused connection means, by the process and the port.
ENDED = Cause(
    "ended", "connection refused, and the API server has ended", "read the end of the engine's log, then deploy", "server", True
)
CLOSED = Cause(
    "closed",
    "connection refused: the API server lives, but nothing listens on its port",
    f"look at the end of its log: it may still be loading, or be on its way down; until that is known, {_NO_RESTART}",
    "server",
)
REOPENED = Cause(
    "reopened",
    "connection refused a moment ago, and now something listens on the port",
    "run the acceptance again",
    "server",
)
REFUSED = Cause(
    "refused", "connection refused: nothing listens on the port", "look at the log of what should listen there", "server"
)
