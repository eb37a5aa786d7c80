"""Tables and verdicts of the benchmark: medians of all runs, ratios, and what issue and docs want."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

Results = dict[str, dict[str, list[dict[str, Any]]]]
OURS = "modelyard"


def median(results: Results, load: str, proxy: str, name: str) -> float:
    """The median of a figure over all runs; nan when it was not measured."""
    found = [run[name] for run in results.get(load, {}).get(proxy, ()) if name in run and not math.isnan(run[name])]
    return statistics.median(found) if found else math.nan


def worst(results: Results, load: str, proxy: str, name: str) -> float:
    """The largest of a figure over all runs."""
    return max((run[name] for run in results.get(load, {}).get(proxy, ())), default=math.nan)


def each(results: Results, load: str, proxy: str, name: str) -> float:
    """Microseconds of the proxy's CPU for each request of a load (or `done` times `name`)."""
    found = [
        run["cpu_s"] / run["done"] * 1e6 for run in results.get(load, {}).get(proxy, ()) if run.get("done") and "cpu_s" in run
    ]
    return statistics.median(found) if found else math.nan


#: (load, words, figure, how runs become one, digits)
ROWS: list[tuple[str, str, str, Callable[[Results, str, str, str], float], int]] = [
    ("first token, 64 streams", "first token p50, ms", "ttft_p50_ms", median, 2),
    ("first token, 64 streams", "first token p99, ms", "ttft_p99_ms", median, 2),
    ("first token, 256 streams", "first token p50, ms", "ttft_p50_ms", median, 2),
    ("first token, 256 streams", "first token p99, ms", "ttft_p99_ms", median, 2),
    ("256 streams", "gap p1, ms (sent every 50)", "gap_p1_ms", median, 1),
    ("256 streams", "gap p50, ms", "gap_p50_ms", median, 1),
    ("256 streams", "gap p99, ms", "gap_p99_ms", median, 1),
    ("256 streams", "tokens over 10 ms late, %", "late_percent", median, 2),
    ("256 streams", "CPU of the proxy, s", "cpu_s", median, 2),
    ("256 streams", "kept from its core by others, %", "waited_percent", median, 1),
    ("256 streams", "failed streams", "failed", worst, 0),
    ("small requests", "requests/s", "rate", median, 0),
    ("small requests", "p99, ms", "p99_ms", median, 1),
    ("small requests", "CPU of the proxy, us each", "cpu", each, 0),
    ("small requests", "kept from its core by others, %", "waited_percent", median, 1),
    ("small requests", "failed", "failed", worst, 0),
    ("bodies of 2 MiB", "requests/s, 32 at once", "rate", median, 0),
    ("bodies of 2 MiB", "CPU of the proxy, us each", "cpu", each, 0),
    ("bodies of 2 MiB", "failed", "failed", worst, 0),
    ("32 clients", "most on one of 8 engines", "peak", worst, 0),
    ("48 clients", "most on one of 8 engines", "peak", worst, 0),
    ("killed", "last failed request after, s", "last_failure_s", worst, 2),
    ("killed", "failed requests sent after it", "failed_after", worst, 0),
    ("answers 500", "last request to it after, s", "last_request_s", worst, 2),
    ("answers 500", "failed requests sent after it", "failed_after", worst, 0),
]


def table(results: Results, memory: dict[str, float], names: list[str]) -> str:
    """All figures, a column for each proxy."""
    lines = [["load", "figure", *names]]
    for load, words, figure, how, digits in ROWS:
        values = [how(results, load, name, figure) for name in names]
        if not all(map(math.isnan, values)):
            lines.append([load, words, *("-" if math.isnan(value) else f"{value:.{digits}f}" for value in values)])
    lines.append(["", "largest resident memory, MiB", *(f"{memory[name]:.0f}" if name in memory else "-" for name in names)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for line in lines:
        left = "  ".join(cell.ljust(width) for cell, width in zip(line[:2], widths, strict=False))
        text.append(f"  {left}  " + "  ".join(cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)))
    return "\n".join(text)


def verdicts(results: Results) -> list[dict[str, Any]]:
    """Each wanted figure of ours: {words, value, wanted (words), met (None when it could not be measured)}."""
    found: list[dict[str, Any]] = []

    def want(words: str, value: float, limit: float, above: bool = False, lower: float = -math.inf) -> None:
        met = None if math.isnan(value) else (value >= limit if above else lower <= value <= limit)
        wanted = f"at least {limit:g}" if above else f"at most {limit:g}" if lower == -math.inf else f"{lower:g} to {limit:g}"
        found.append({"words": words, "value": value, "wanted": wanted, "met": met})

    for clients in (32, 48):
        want(
            f"{clients} clients, 8 engines: most on one",
            worst(results, f"{clients} clients", OURS, "peak"),
            math.ceil(clients / 8),
        )
    for streams in (64, 256):
        for share, limit in (("p50", 2), ("p99", 10)):
            load, figure = f"first token, {streams} streams", f"ttft_{share}_ms"
            added = median(results, load, OURS, figure) - median(results, load, "nginx", figure)
            want(f"first token at {streams} streams, {share}: ms over nginx", added, limit)
    for share, words in (("gap_p50_ms", "gap p50"), ("gap_p99_ms", "gap p99")):
        ratio = median(results, "256 streams", OURS, share) / median(results, "256 streams", "direct", share)
        want(f"256 streams, {words}: through it / direct", ratio, 1.1, lower=0.9)
    ratio = median(results, "small requests", f"{OURS}+keys", "rate") / median(results, "small requests", "aiohttp", "rate")
    want("small requests/s, all switched on / plain aiohttp proxy", ratio, 1, above=True)
    want("killed engine: last failed request after, s", worst(results, "killed", OURS, "last_failure_s"), 1)
    want("engine that answers 500: last request to it after, s", worst(results, "answers 500", OURS, "last_request_s"), 1)
    return found


def lines(found: list[dict[str, Any]]) -> str:
    """The verdicts as text."""
    width = max(len(one["words"]) for one in found)
    words = {True: "met", False: "MISSED", None: "not measured"}
    return "\n".join(
        f"  {one['words']:{width}}  {one['value']:8.2f}   wanted: {one['wanted']:14} {words[one['met']]}" for one in found
    )
