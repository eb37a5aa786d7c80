"""What one level of a load test has shown, out of what its generator wrote down. Pure functions.

Throughput counts what was answered whole, over the time from the first request to the last answer: the end of a level, when
clients have nothing more to ask, is part of it. Percentiles are nearest-rank values of what really was.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Dict, List, Mapping, Sequence

Figures = Dict[str, Any]
PERCENTILES = (50, 95, 99)
LATENCIES = ("ttft_ms", "itl_ms", "e2e_ms")
#: Kinds of errors that are listed; the rest are added up.
MOST_ERRORS = 8
OTHERS = "others"


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of sorted values, of which there is one at least."""
    return values[max(0, math.ceil(percent / 100 * len(values)) - 1)]


def percentiles(values: Sequence[float]) -> Dict[str, Any]:
    """{p50, p95, p99}; None where there are no values."""
    ordered = sorted(values)
    return {f"p{p}": round(percentile(ordered, p), 2) if ordered else None for p in PERCENTILES}


def of_replies(level: Mapping[str, Any], result: Mapping[str, Any]) -> Figures:
    """Figures of a level of our own generator. `result`: load/generate.py, Level.result."""
    replies = result["replies"]
    whole = [reply for reply in replies if not reply["error"]]
    errors = Counter(reply["error"] for reply in replies if reply["error"])
    if result["unfinished"]:
        errors["not ended when the level was ended"] = result["unfinished"]
    seconds = float(result["seconds"])
    return {
        **_head(level, len(replies) + result["unfinished"], len(whole), seconds),
        **_rates(len(whole), sum(r["output_tokens"] for r in whole), sum(r["input_tokens"] for r in whole), seconds),
        "ttft_ms": percentiles([reply["ttft_ms"] for reply in whole]),
        "itl_ms": percentiles([gap for reply in whole for gap in reply["itl_ms"]]),
        "e2e_ms": percentiles([reply["e2e_ms"] for reply in whole]),
        "errors": _listed(errors),
        "error_example": next((reply["said"] for reply in replies if reply["said"]), ""),
        "by_backend": _by_backend(reply["backend"] for reply in whole),
    }


def of_bench(level: Mapping[str, Any], document: Mapping[str, Any], names: Mapping[str, str]) -> Figures:
    """Figures of a level of `vllm bench serve`. `document`: its result; `names`: figures of data/vllm/bench.yml."""
    completed = int(_number(document.get(names["completed"])) or 0)
    requests = int(level["requests"])
    failed = _number(document.get(names["failed"]))
    failed = requests - completed if failed is None else int(failed)
    seconds = _number(document.get(names["seconds"])) or 0.0
    output_tokens, input_tokens = (int(_number(document.get(names[key])) or 0) for key in ("output_tokens", "input_tokens"))
    told = document.get(names["errors"])
    words = Counter(_last_line(text) for text in (told if isinstance(told, list) else []) if text)
    missing = failed - sum(words.values())
    if missing > 0:
        words["an error that vllm bench serve does not name"] = missing
    latencies = {
        key: {f"p{p}": _number(document.get(names[key].format(percentile=p))) if completed else None for p in PERCENTILES}
        for key in LATENCIES
    }
    return {
        **_head(level, requests, completed, seconds),
        "failed": failed,
        **_rates(completed, output_tokens, input_tokens, seconds),
        **latencies,
        "errors": _listed(words),
        "error_example": "",
        "by_backend": {},
    }


def of_nothing(level: Mapping[str, Any], why: str, done: int, seconds: float) -> Figures:
    """A level whose generator left no result; `done`: requests that the engines say they have answered, as far as is known."""
    requests = max(int(level["requests"]), done, 1)
    none = {key: percentiles([]) for key in LATENCIES}
    rates = _rates(0, 0, 0, seconds)
    rest = {"errors": {why: requests - done}, "error_example": "", "by_backend": {}}
    return {**_head(level, requests, done, seconds), **rates, **none, **rest}


def _head(level: Mapping[str, Any], requests: int, completed: int, seconds: float) -> Figures:
    return {
        "kind": level["kind"],
        "value": level["value"],
        "requests": requests,
        "completed": completed,
        "failed": requests - completed,
        "seconds": round(seconds, 3),
    }


def _rates(completed: int, output_tokens: int, input_tokens: int, seconds: float) -> Figures:
    amounts = {"requests_per_s": completed, "output_tokens_per_s": output_tokens, "input_tokens_per_s": input_tokens}
    return {name: round(amount / seconds, 3) if seconds > 0 else 0.0 for name, amount in amounts.items()}


def _listed(errors: Mapping[str, int]) -> Dict[str, int]:
    """The most frequent kinds of errors, the rest together."""
    ordered: List[Any] = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ordered[MOST_ERRORS:])
    return {**dict(ordered[:MOST_ERRORS]), **({OTHERS: rest} if rest else {})}


def _by_backend(names: Any) -> Dict[str, int]:
    """Requests by the index of the instance; `X-Backend` is NAME/INDEX."""
    counted = Counter(name.rpartition("/")[2] for name in names if name)
    return {name: counted[name] for name in sorted(counted, key=lambda n: (len(n), n))}


def _last_line(text: Any) -> str:
    """What an error says at its end; a traceback's last line is its exception."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1][:120] if lines else "an error without words"


def _number(value: Any) -> Any:
    """A finite number that is no truth value; None for anything else."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return round(value, 3) if usable else None


def in_percent(share: float) -> str:
    """`64 %`; of a little something `less than 1 %`, which is not nothing."""
    return "less than 1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def error_rate(level: Mapping[str, Any]) -> float:
    """The part of a level's requests that failed, 0 to 1."""
    return float(level["failed"]) / float(level["requests"]) if level["requests"] else 1.0
