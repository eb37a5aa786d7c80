"""What a diagnostic window says: are requests with a schema fatal only together, or is something else wrong? Pure functions.

One request alone is the control. A window is one observation: what it does not show can still be there, and words say so.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance, json_schema, reply_cause

#: What can go wrong, the worst first. The first three are the engine's end, or as good as that.
DIED, RPC, DEAD, HANGS, SLOW, WRONG, REFUSED, BROKEN = (
    "died",
    "rpc_timeout",
    "dead",
    "hangs",
    "slow",
    "wrong",
    "refused",
    "broken",
)
GRAVE = (DIED, RPC, DEAD, HANGS, BROKEN)
#: Findings of the survey that a restart can leave behind.
LEFT_BEHIND = (
    *("PF-LEFTOVER", "PF-ZOMBIE-HOLDS", "PF-MEMORY-HELD", "PF-STUCK", "PF-STUCK-ELSEWHERE", "PF-NEEDS-ADMIN", "PF-SHM-STALE"),
    *("PF-STRANGER", "PF-CARD-LOST", "PF-CARD-NEEDS-RESET", "PF-CARD-ERRORS", "PF-CARD-LOG", "PF-BUSY-WITHOUT-PROCESS"),
)
PROMPT = "Which city is the capital of France? Answer as JSON."
MAX_TOKENS = 200


class Fault(NamedTuple):
    """`id` is empty when all was well."""

    id: str
    words: str


def body(model: str) -> Dict[str, Any]:
    """A short request with a schema, the one of the acceptance ladder."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "probe", "strict": True, "schema": acceptance.SCHEMA}},
    }


def fault(seen: Mapping[str, Any]) -> Fault:
    """What went wrong with some requests. `seen`: as survey.diagnose.ask gives it."""
    if seen["fatal"]:
        in_vain = [line.strip() for line in seen["fatal"] if "RPC call" in line]
        if in_vain:  # the last of them is the error, the first a line of the program
            return Fault(RPC, f"the engine waits for a rank in vain: {in_vain[-1]}")
        return Fault(DEAD, f"its log has become fatal: {seen['fatal'][0]}")
    if not seen["alive"]:
        return Fault(DIED, "the engine has ended")
    answers = seen["answers"]
    late = [answer for answer in answers if answer["error"] == "timeout"]
    if late:
        waited = (
            f"{len(late)} of {len(answers)} request(s) had no answer within {max(answer['seconds'] for answer in late):.0f} s"
        )
        return Fault(SLOW, f"{waited}, but tokens came") if _moved(seen) else Fault(HANGS, f"{waited}; {_still(seen)}")
    for answer in answers:
        if answer["status"] == 0:
            return Fault(BROKEN, f"the connection failed: {answer['error']}")
        if answer["status"] != 200:
            said = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
            cause = reply_cause.cause(answer["status"], said)
            what = cause.what if cause else ""
            return Fault(REFUSED if answer["status"] < 500 else BROKEN, f"HTTP {answer['status']}: {what}. Body: {said[:300]}")
    complaints = [complaint for complaint in map(_complaint, answers) if complaint]
    if complaints:
        return Fault(WRONG, f"{len(complaints)} of {len(answers)} answer(s) do not fit the schema: {complaints[0]}")
    if seen["health"] != 200:
        return Fault(DEAD, f"the answers came, and /health says {seen['health'] or 'nothing'} after them")
    return Fault("", "")


def _complaint(answer: Mapping[str, Any]) -> str:
    """Why an answer is not what the schema wants; empty when it is."""
    try:
        value = json.loads(answer["body"]["choices"][0]["message"]["content"])
    except (KeyError, IndexError, TypeError):
        return "it is no answer of a chat"
    except ValueError:
        return "it is no JSON"
    return "; ".join(json_schema.errors(value, acceptance.SCHEMA))[:300]


def _counts(seen: Mapping[str, Any], key: str, since: float = 0.0) -> List[float]:
    """A counter while requests were open, from a part of that time on (0 to 1); after it an engine lets go of what was asked."""
    open_s = max(answer["seconds"] for answer in seen["answers"])
    found = [one["counters"] for one in seen["samples"] if one["counters"] and since * open_s <= one["at"] <= open_s]
    return [counters[key] for counters in found if key in counters]


def _moved(seen: Mapping[str, Any]) -> bool:
    """Did tokens come in the second half of the time? At its beginning they do before a hang as well."""
    later = _counts(seen, "generation_tokens", 0.5)
    return len(later) > 1 and later[-1] > later[0]


def _still(seen: Mapping[str, Any]) -> str:
    running = _counts(seen, "running")
    states = {f"{one['comm']} {one['state']}" for one in seen["samples"][-1]["processes"] if one["state"] != "gone"}
    shown = ", ".join(sorted(states)) or "none"
    # It counts at the end of a step: of one that hangs in the first step after a pause the count is that of the pause.
    count = f"{running[-1]:.0f} run by its count of the last finished step" if running else "it does not tell how many run"
    return f"no token comes, {count}; its processes: {shown}"


def of_others(seen: Mapping[str, Any]) -> bool:
    """Were there more requests than ours?"""
    pairs = [one["counters"] for one in seen["samples"] if one["counters"]]
    return max((one.get("running", 0.0) + one.get("waiting", 0.0) for one in pairs), default=0.0) > len(seen["answers"])


def verdict(
    alone: Mapping[str, Any],
    together: Optional[Mapping[str, Any]],
    slots: Optional[int],
    findings: Sequence[Mapping[str, str]],
) -> Dict[str, Any]:
    """{id, what, why: [..], do: [..]}: the result in words, what it rests on, and what next.

    :param together: None when the control failed already, and nothing more was sent
    :param slots: max_num_seqs, where the service sets it
    :param findings: of the survey before the window
    """
    first = fault(alone)
    second = fault(together) if together is not None else Fault("", "")
    why = [f"one alone: {first.words or _took(alone)}"]
    why += [f"two together: {second.words or _took(together)}"] if together is not None else []
    left = [f"{one['id']} {one['where']}: {one['what']}" for one in findings if one["id"] in LEFT_BEHIND]
    disturbed = [name for name, seen in (("alone", alone), ("together", together)) if seen is not None and of_others(seen)]
    if disturbed:
        why.append(f"requests of others came in meanwhile ({', '.join(disturbed)}), so this is less sure")
    kernel = [line for seen in (alone, together) if seen is not None for line in seen["kernel"]]
    why += [f"the kernel's log: {line}" for line in kernel[:3]]
    if first.id:
        return _alone_failed(first, why, left)
    if not second.id:
        return _both_answered(why, left, slots)
    if second.id == SLOW:
        what = "not decided: together they took longer than the limit, but the engine went on working"
        return {"id": "slow", "what": what, "why": why, "do": ["run again with a longer diagnose_limit_s"]}
    if second.id == REFUSED:
        what = "not decided: the engine refused one of two requests that it answers alone"
        return {"id": "refused", "what": what, "why": why, "do": ["read the body; a limit of requests in front of it?"]}
    what = "concurrent structured decoding: one request is answered, two at once are not"
    if slots == 1:
        what = "two requests at once, and not concurrent decoding: with max_num_seqs 1 the engine takes one after the other"
    return {"id": "together", "what": what, "why": why, "do": _after_together(second, slots)}


def _took(seen: Optional[Mapping[str, Any]]) -> str:
    times = [f"{answer['seconds']:.2f} s" for answer in (seen or {"answers": []})["answers"]]
    return f"answered as the schema wants, after {' and '.join(times)}"


def _alone_failed(found: Fault, why: List[str], left: List[str]) -> Dict[str, Any]:
    if found.id == REFUSED:
        what = "nothing was tested: the engine refuses the request itself"
        return {"id": "request", "what": what, "why": why, "do": ["read the body; nothing needs a restart"]}
    if found.id == SLOW:
        what = "not decided: already one request took longer than the limit, but the engine worked on it"
        return {"id": "slow", "what": what, "why": why, "do": ["run again with a longer diagnose_limit_s"]}
    what = "not concurrent decoding: already one request alone fails"
    if found.id == WRONG:
        do = ["look at engine.structured_outputs_config (backend, disable_any_whitespace), then playbooks/acceptance.yml"]
        return {"id": "alone", "what": what, "why": why, "do": do}
    if left:
        what += "; what a restart can leave behind is there"
        do = ["end these causes first, in this order: playbooks/teardown.yml, what PF-NEEDS-ADMIN says, playbooks/recover.yml"]
        return {"id": "leftovers", "what": what, "why": [*why, *left], "do": do}
    if found.id == HANGS:
        do = [
            "an engine that hung before already, in an earlier window for example, shows the same, and answers /health all the "
            "time: see the states of its processes and where its log ends, stop and start it, then diagnose again",
        ]
        return {"id": "alone", "what": what, "why": why, "do": do}
    do = [
        "nothing that a restart leaves behind was found before the window: look at the log in the evidence, from its first error",
        "playbooks/preflight.yml shows what is left now; playbooks/recover.yml proves the cards before the next start",
    ]
    return {"id": "alone", "what": what, "why": why, "do": do}


def _both_answered(why: List[str], left: List[str], slots: Optional[int]) -> Dict[str, Any]:
    what = "nothing failed: two requests with a schema at once are answered as one alone is"
    do = ["what has failed before is rarer than one window shows, needs other requests, or came from leftovers of a restart"]
    if slots == 1:
        what += ". With max_num_seqs 1 they were decoded one after the other, so concurrent decoding was not tested"
    if left:
        do.append("what a restart can leave behind is there now; it is the nearer cause")
    return {"id": "both_answered", "what": what, "why": [*why, *left], "do": do}


def _after_together(found: Fault, slots: Optional[int]) -> List[str]:
    do = []
    if found.id in GRAVE:
        do.append(
            "nothing was restarted. See what is left with playbooks/preflight.yml, end it with playbooks/teardown.yml, and only "
            "then deploy; where memory stays held, playbooks/recover.yml"
        )
    if slots != 1:
        do.append("until it is solved, one request at a time: engine.max_num_seqs: 1, and more instances for more throughput")
    do.append("try another backend of structured outputs (engine.structured_outputs_config: {backend: ...}) and diagnose again")
    do.append(
        "try engine.async_scheduling: false, and no speculative decoding, which others have named; then another release of vLLM"
    )
    return do
