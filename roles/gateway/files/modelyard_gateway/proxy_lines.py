"""One line of HAProxy's or nginx's request log -> the same keys as the result log of our own gateway, as far as they know them.

What they cannot know (user, model, tokens, finish reason, snippet) is null.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional

from modelyard_gateway.result_log import entry

#: HAProxy's first letter of `%ts`: who ended it; its second one: during what.
_ENDERS = {
    "C": "the client went away",
    "S": "the engine refused or closed the connection",
    "P": "the gateway ended it",
    "R": "the gateway is out of resources",
    "I": "the gateway failed",
    "D": "the engine was taken out",
    "K": "it was ended by hand",
    "c": "the client was silent for too long",
    "s": "the engine was silent for too long",
}
_STAGES = {
    "R": "while the request came",
    "Q": "in the queue",
    "C": "while connecting",
    "H": "before the reply",
    "D": "during the reply",
}


def read(kind: str, line: str, names: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """An entry for the result log; None when the line is not that of a request. `names`: HAProxy's names of servers -> ours."""
    try:
        seen = json.loads(line)
        return (_haproxy if kind == "haproxy" else _nginx)(seen, names)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _haproxy(seen: Mapping[str, Any], names: Mapping[str, str]) -> Dict[str, Any]:
    idle, before, wait, connect, reply = (seen[key] for key in ("Ti", "TR", "Tw", "Tc", "Tr"))
    who, stage = seen["end"][:1], seen["end"][1:2]
    answered = reply >= 0
    return entry(
        seen["s"] + int(seen["ms"]) / 1000 + max(idle, 0) / 1000,
        id=seen["id"],
        path=seen["path"],
        client=seen["client"],
        backend=names.get(seen["server"]),
        tries=int(seen["retries"]) + 1 if seen["server"] in names else 0,
        status=seen["status"] if seen["status"] > 0 else None,
        queue_s=max(wait, 0) / 1000,
        ttft_s=sum(max(part, 0) for part in (before, wait, connect, reply)) / 1000 if answered else None,
        duration_s=max(seen["Ta"], 0) / 1000,
        bytes_in=seen["in"],
        bytes_out=seen["out"],
        truncated=answered and who not in "-Cc" and stage in "DL",
        client_gone=who in "Cc",
        error=" ".join(filter(None, (_ENDERS.get(who), _STAGES.get(stage)))) if who in _ENDERS and seen["end"] != "LR" else None,
    )


def _nginx(seen: Mapping[str, Any], names: Mapping[str, str]) -> Dict[str, Any]:
    headers, replies = _seconds(seen["header"]), _seconds(seen["upstream"])
    last = headers[-1] if headers else None
    status = seen["status"]
    # A reply that the engine broke off looks whole here; one that the client did not take does not.
    gone = status == 499 or seen["complete"] != "OK"
    return entry(
        seen["end_s"] - seen["seconds"],
        id=seen["id"],
        path=seen["path"],
        client=seen["client"],
        backend=seen["backend"] or None,
        tries=len(replies),
        status=status,
        queue_s=0.0,
        ttft_s=None if last is None else round(sum(part or 0.0 for part in replies[:-1]) + last, 3),
        duration_s=seen["seconds"],
        bytes_in=seen["in"],
        bytes_out=seen["out"],
        truncated=None if 200 <= status < 300 else False,
        client_gone=gone,
        error=_ENDERS["C"] if gone else None,
    )


def _seconds(text: str) -> List[Optional[float]]:
    """nginx's list with one time per engine that was tried; None where there was none."""
    return [None if part.strip() == "-" else float(part) for part in text.replace(" : ", ",").split(",") if part.strip()]
