"""Verdicts on the tensor test: output of a program -> what it said, result -> fault. Pure functions.

A card passes when its process saw exactly one card, the right one, and computed right numbers on it; a rank of an all-reduce
when every sum was right. Results have the shape of survey/card_test.py; faults are ids of judge/card_causes.py.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import card_causes as causes
from ansible_collections.modelyard.core.plugins.module_utils.process import proc

LINES, COLUMNS = 12, 300
#: Largest error of a 512 x 512 product, divided by the largest number in it. Seen on CPU: 4e-7 and 3e-4 (2026-11-29).
ALLOWED = {"float32": 1e-4, "float16": 5e-3}
SECRET = re.compile(r"(?i)\b([\w-]*(?:api_?key|token|secret|password)[\w-]*)(\s*[=:]\s*)\S+")
#: What the programs name before they do it, in order, and what a process was doing then.
DOING = {
    "": "starting",
    "import torch": "importing torch",
    "reach the card": "reaching the card",
    "multiply": "multiplying",
    "meet the other ranks": "waiting to meet the other ranks",
    "first all-reduce": "in the first all-reduce",
    "all-reduce": "in an all-reduce",
    "part from the other ranks": "waiting for the other ranks at the end",
}


class Said(NamedTuple):
    """What a program printed: the stage it named last, its answer or error ({} for none), and the last lines of all else."""

    stage: str
    answer: Dict[str, Any]
    error: Dict[str, str]
    lines: List[str]


def read(out: str, err: str) -> Said:
    """Both outputs of a program. A line of JSON is an answer only with the right keys; anything else is kept as text."""
    stage = ""
    answer: Dict[str, Any] = {}
    error: Dict[str, str] = {}
    other: List[str] = []
    for line in out.splitlines():
        record = _record(line)
        if isinstance(record.get("stage"), str):
            stage = record["stage"]
        elif isinstance(record.get("answer"), dict):
            answer = record["answer"]
        elif isinstance(record.get("error"), dict):
            error = {key: str(record["error"].get(key, "")) for key in ("type", "message")}
            seen = record["error"].get("seen")
            answer = seen if isinstance(seen, dict) else {}
        else:
            other.append(line)
    error = {key: _masked(value) for key, value in error.items()}
    lines = [_clean(line) for line in [*other[-LINES // 2 :], *err.splitlines()[-LINES:]] if line.strip()]
    return Said(stage, answer, error, lines[-LINES:])


def _record(line: str) -> Dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        value = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _masked(text: str) -> str:
    return SECRET.sub(r"\1\2***", proc.masked(text))


def _clean(line: str) -> str:
    return _masked("".join(c if c.isprintable() else " " for c in line[: 2 * COLUMNS]).strip())[:COLUMNS]


# -- faults ---------------------------------------------------------------------------------------------------------------


def fault(result: Mapping[str, Any]) -> str:
    """Why a process gave no answer, as an id of card_causes; "" when it gave one."""
    state = str(result["state"])
    if state == "passed":
        return ""
    if result["pid_left"]:
        return "stuck"
    if state in ("hung", "stopped"):
        return "import" if result["stage"] == "import torch" and state == "hung" else state
    found = causes.of(result["error"], result["said"])
    if found in (causes.NONE, causes.OTHER) and state in ("crashed", "no_answer"):
        return state
    return found or causes.OTHER


def card_fault(result: Mapping[str, Any], uuid: str = "") -> str:
    """Why a card failed; "" when it passed. `uuid`: of the card that was meant; "" when it is not known."""
    found = fault(result)
    if found:
        return found
    answer = result["answer"]
    count = answer.get("count")
    if count != 1:
        return "more" if isinstance(count, int) and count > 1 else "not_visible"
    if _other_card(str(answer.get("uuid") or ""), uuid):
        return "other_card"
    return "wrong" if wrong_formats(answer) else ""


def _other_card(seen: str, wanted: str) -> bool:
    # Only NVIDIA's are written alike by torch and by the vendor's tool.
    return bool(seen) and wanted.startswith("GPU-") and seen.lower() != wanted[4:].lower()


def wrong_formats(answer: Mapping[str, Any]) -> Dict[str, Any]:
    """Number formats in which the product was wrong, with its deviation (None: no number at all)."""
    seen = answer.get("deviation")
    measured = seen if isinstance(seen, dict) else {}
    found = {}
    for name, limit in ALLOWED.items():
        value = measured.get(name)
        if not isinstance(value, (int, float)) or not 0 <= value <= limit:
            found[name] = value
    return found


def rank_fault(result: Mapping[str, Any]) -> str:
    """Why a rank of an all-reduce failed; "" when it passed."""
    found = fault(result)
    return found or ("" if result["answer"].get("wrong") == 0 else "wrong")


def first_failed(ranks: Sequence[Mapping[str, Any]]) -> int:
    """The number of the rank that failed first, as far as can be told: the others fail because it is gone."""

    def order(number: int) -> Tuple[bool, bool, int, float]:
        rank = ranks[number]
        texts = [str(rank["error"].get("message", "")), *rank["said"]]
        consequence = rank["state"] == "stopped" or (rank["state"] == "failed" and any(map(causes.CONSEQUENCE.search, texts)))
        waits = rank["state"] == "hung" and not rank["pid_left"]
        # Of those that hang, the others wait for the one that has come least far.
        far = list(DOING).index(rank["stage"]) if waits and rank["stage"] in DOING else 0
        return (consequence, waits, far, rank["seconds"])

    return min((n for n, rank in enumerate(ranks) if rank_fault(rank)), key=order)
