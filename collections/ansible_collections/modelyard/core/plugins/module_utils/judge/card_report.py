"""Words about the tensor test: results -> findings and rows of a table. Pure functions, for the control node.

Requests have the shape of plan/card_test_request.py, results that of survey/card_test.py.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import card_causes as causes
from ansible_collections.modelyard.core.plugins.module_utils.judge.card_test import (
    ALLOWED,
    COLUMNS,
    DOING,
    card_fault,
    first_failed,
    rank_fault,
    wrong_formats,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

CARD, REDUCE = "PF-CARD-TEST", "PF-ALL-REDUCE"
#: (what was tested, verdict, seconds, what was seen)
Row = Tuple[str, str, str, str]
Findings = List[Dict[str, str]]
#: Where in the source of a library an error was raised.
PLACE = re.compile(r"^\[[^\]]*\.(?:cc|cpp|cu|h|hpp):\d+\]\s*")


def noun(device: str) -> str:
    """What a card is called."""
    return "core" if device == "cpu" else "card"


def _numbers(cards: Iterable[Any]) -> str:
    return ", ".join(map(str, cards))


def _reason(result: Mapping[str, Any]) -> str:
    """The process' own words for what went wrong, in one line."""
    text = str(result["error"].get("message") or "") or str(result["error"].get("type", ""))
    for part in (text.partition("Last error:")[2], text, "\n".join(result["said"][-1:])):  # NCCL says the cause at the end
        lines = [PLACE.sub("", line.strip()) for line in part.splitlines() if line.strip()]
        if lines:
            return lines[0][:COLUMNS]
    return ""


def _left(result: Mapping[str, Any]) -> str:
    left = result["pid_left"]
    if not left:
        return ""
    stack = left["stack"]
    where = "" if not stack else f", in the kernel at {' < '.join(stack[:5])}"
    return f"; still there although it was killed: pid {left['pid']}, state {left['state']}{where}" + (
        " (only root may see where it is in the kernel)" if stack is None else ""
    )


def _ended(result: Mapping[str, Any], found: str) -> str:
    """How a process ended that gave no answer."""
    doing = DOING.get(result["stage"], result["stage"])
    if found == "stopped":
        return "was ended because another one had failed"
    if result["state"] == "hung":
        return f"gave no answer within {result['seconds']:.0f} s, while {doing}{_left(result)}"
    if result["state"] == "crashed":
        reason = _reason(result)
        return f"was ended by {causes.signal_name(result['signal'])} while {doing}" + (f": {reason}" if reason else "")
    reason = _reason(result) or "it said nothing"
    return f"ended with exit code {result['rc']} and no answer: {reason}" if result["state"] == "no_answer" else reason


def holders(result: Mapping[str, Any]) -> str:
    """Who has the card open; "" when nobody was seen."""
    return "; ".join(f"pid {h['pid']} of user {h['user']} ({h['command'][:80]})" for h in result["holders"])


def card_words(result: Mapping[str, Any], found: str, device: str) -> str:
    """What was seen of a card that failed."""
    answer = result["answer"]
    name = f"{noun(device)} {result['index']}"
    if found == "more":
        return f"{answer['count']} {noun(device)}s are visible where only {name} was to be"
    if found == "not_visible" and result["state"] == "passed":
        return f"{name} made no tensor: it is not visible"
    if found == "other_card":
        return f"another card answered for {name}: {answer['uuid']}"
    if found == "wrong":
        bad = [f"{form} deviates by {'no number' if value is None else value}" for form, value in wrong_formats(answer).items()]
        return f"{name} computes wrong: {', '.join(bad)} (allowed: {', '.join(f'{k} {v:g}' for k, v in ALLOWED.items())})"
    words = _ended(result, found)
    if result["state"] in ("hung", "crashed", "no_answer"):
        words = f"the test of {name} {words}"
    else:
        words = f"{name} made no tensor: {words}"
    if found == "memory":
        words += f"; {answer['free_mib']} of {answer['total_mib']} MiB are free" if "free_mib" in answer else ""
        if device != "cpu":
            words += f"; it is held by {holders(result)}" if result["holders"] else "; who holds it could not be seen"
    return words


def of_the_running_one(result: Mapping[str, Any], found: str, request: Mapping[str, Any]) -> bool:
    """Is its memory held by the very service that is to use it? It runs, and is stopped before it starts anew."""
    return found == "memory" and request["running"] and any(h["marker"] == request["service"] for h in result["holders"])


def report(request: Mapping[str, Any], answer: Mapping[str, Any], host: str) -> Tuple[Findings, List[Row]]:
    """Findings and rows of one service. `answer`: what the module card_test returned, {cards, groups}."""
    cards = {card["index"]: card for card in request["cards"]}
    found: Findings = []
    rows: List[Row] = []
    for result in answer["cards"]:
        own, row = _card(request, cards[result["index"]], result, host)
        rows.append(row)
        found += [item for item in own if item not in found]  # what concerns the whole runtime is said once
    for group in answer["groups"]:
        own, row = _group(request, group, host)
        rows.append(row)
        found += own
    return found, rows


def _card(request: Mapping[str, Any], card: Mapping[str, Any], result: Mapping[str, Any], host: str) -> Tuple[Findings, Row]:
    name, seconds = f"{noun(request['device'])} {card['index']}", f"{result['seconds']:.1f}"
    uuid = str(card.get("uuid") or "")
    found = card_fault(result, uuid)
    if not found:
        return [], (name, "pass", seconds, _seen(result["answer"]))
    words = card_words(result, found, request["device"])
    if of_the_running_one(result, found, request):
        return [], (name, "not tested", seconds, f"{request['service']} still runs there and holds its memory")
    row = (name, "FAIL", seconds, words)
    if causes.of_runtime(found):
        what = f"no tensor can be made with this runtime: {_reason(result)}"
        return [finding(CARD, f"{host}:{request['runtime']}", what, causes.do(found))], row
    return [finding(CARD, f"{host}:{name}" + (f" ({uuid})" if uuid else ""), words, _do(result, found))], row


def _do(result: Mapping[str, Any], found: str) -> str:
    return causes.BY_SIGNAL.get(result["signal"], causes.CRASHED) if found == "crashed" else causes.do(found)


def _seen(answer: Mapping[str, Any]) -> str:
    deviation = ", ".join(f"{name} {answer['deviation'][name]:.0e}" for name in ALLOWED)
    return f"{answer.get('name')}, torch {answer.get('torch')}, {answer.get('free_mib')} MiB free, deviation {deviation}"


def _group(request: Mapping[str, Any], group: Mapping[str, Any], host: str) -> Tuple[Findings, Row]:
    name, ranks, kind = f"all-reduce {group['name']}", group["ranks"], noun(request["device"])
    seconds = f"{group['seconds']:.1f}"
    if group["state"] == "not_run":
        return [], (name, "not tested", seconds, f"{kind} {_numbers(group['broken'])} did not pass alone")
    if group["ok"]:
        answer = ranks[0]["answer"]
        size = f"{answer.get('bytes', 0) // 2**20} MiB in {answer.get('seconds', 0):.3f} s"
        return [], (name, "pass", seconds, f"{len(ranks)} ranks, {answer.get('backend')}, {size}")
    number = first_failed(ranks)
    found = rank_fault(ranks[number])
    if found == "memory" and request["running"]:
        return [], (name, "not tested", seconds, f"{request['service']} still runs there and holds memory")
    words, do = _group_words(request, ranks, number, found)
    where = f"{host}:{kind}s {_numbers(card for rank in ranks for card in rank['cards'])} of {group['name']}"
    return [finding(REDUCE, where, words, do)], (name, "FAIL", seconds, words)


def _group_words(request: Mapping[str, Any], ranks: List[Mapping[str, Any]], number: int, found: str) -> Tuple[str, str]:
    """(what, do) of an all-reduce in which rank `number` failed first."""
    rank, apart = ranks[number], causes.apart(request["backend"])
    which = f"rank {number} ({noun(request['device'])} {_numbers(rank['cards'])})"
    if found == "wrong":
        words = f"{which} got wrong sums: {rank['answer'].get('wrong')} of {rank['answer'].get('bytes', 0) // 4} numbers"
        return words, f"data is changed on its way between the cards: do not use them together. {apart}"
    if found == "hung":
        late = [f"rank {n} {DOING.get(r['stage'], r['stage'])}" for n, r in enumerate(ranks) if r["state"] == "hung"]
        alone = rank["stage"] in ("", "reach the card")
        return f"no all-reduce within {rank['seconds']:.0f} s: {', '.join(late)}", causes.do("hung") if alone else apart
    return f"{which} {'' if rank['state'] != 'failed' else 'failed: '}{_ended(rank, found)}", _do(rank, found)
