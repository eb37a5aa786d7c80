"""A load test as people read it. Pure functions of the record."""

from __future__ import annotations

import textwrap
from typing import Any, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge.load.figures import in_percent
from ansible_collections.modelyard.core.plugins.module_utils.plan.text import WIDTH, table

UNITS = {"concurrency": "clients", "rate": "requests/s asked", "users": "users"}


def report(record: Mapping[str, Any], host: str) -> str:
    """The whole report of one run. `host`: its name in the inventory."""
    shape, entry = record["shape"], record["entry"]
    tool = f"{record['tool']['name']} {record['tool']['version']}"
    lines = [
        f"Load test of {record['service']} on {host}: {'passed' if record['passed'] else 'FAILED'}",
        f"  {tool} against the {entry['kind']} on port {entry['port']}; {shape['input_tokens']} tokens in, "
        f"{shape['output_tokens']} out, seed {shape['seed']}",
        *table(rows(record["levels"])),
    ]
    lines += _wrapped("capacity", capacity(record))
    lines += _wrapped("throughput", throughput(record))
    for level in record["levels"]:
        if level["errors"]:
            said = ", ".join(f"{count} x {error}" for error, count in level["errors"].items())
            example = f"; for example {level['error_example'][:160]}" if level.get("error_example") else ""
            lines += _wrapped("errors", f"at {level['kind']} {level['value']:g}: {said}{example}")
    for complaint in record["complaints"]:
        lines += _wrapped("not met", complaint)
    for item in record["advice"]:
        lines += _wrapped("advice", item["words"])
    if record["compared_with"]:
        lines += _wrapped("compared", f"with {record['compared_with']['id']}: {'; '.join(record['compared_with']['words'])}")
    for note in record.get("notes", []):
        lines += _wrapped("note", note)
    return "\n".join(lines)


def rows(levels: Sequence[Mapping[str, Any]]) -> List[Sequence[Any]]:
    """A row for each level. Latencies are the median and P95, in milliseconds."""
    unit = UNITS[levels[0]["kind"]] if levels else "level"
    found: List[Sequence[Any]] = [
        (
            unit,
            "answered",
            "failed",
            "seconds",
            "requests/s",
            "tokens/s",
            "first token",
            "gap",
            "whole answer",
            "ran",
            "waited",
            "cards",
        )
    ]
    for level in levels:
        server, busy = level["server"], [c["utilization_median"] for c in level["cards"] if c["utilization_median"] is not None]
        found.append(
            (
                f"{level['value']:g}",
                level["completed"],
                level["failed"] or "-",
                f"{level['seconds']:.1f}",
                f"{level['requests_per_s']:.2f}",
                f"{level['output_tokens_per_s']:.0f}",
                *(_span(level[key]) for key in ("ttft_ms", "itl_ms", "e2e_ms")),
                _known(server["running_max"]),
                _known(server["waiting_max"]),
                f"{min(busy)}-{max(busy)} %" if busy and min(busy) != max(busy) else f"{busy[0]} %" if busy else "?",
            )
        )
    return found


def _span(latency: Mapping[str, Any]) -> str:
    return "-" if latency["p50"] is None else f"{latency['p50']:.0f} / {latency['p95']:.0f} ms"


def _known(value: Any) -> str:
    return "?" if value is None else str(value)


def capacity(record: Mapping[str, Any]) -> str:
    """What the server can do at once, apart from how many clients ask."""
    count = f"{record['instances']} instance{'s' if record['instances'] != 1 else ''}"
    if record["slots"] is None:
        words = f"{count}; how many requests each computes at once is not set (max_num_seqs)"
    else:
        words = f"{record['slots']} slots ({count} of {record['slots'] // max(1, record['instances'])})"
    if not record["levels"]:
        return words
    most = record["levels"][-1]
    server = most["server"]
    if server["running_max"] is not None:
        words += f"; at {most['kind']} {most['value']:g} at most {server['running_max']} ran"
        words += f" and {server['waiting_max']} waited in the engines" if server["waiting_max"] is not None else ""
    if server["kv_usage_max"] is not None:
        words += f"; KV cache up to {in_percent(server['kv_usage_max'])}, {_known(server['preemptions'])} preemptions"
    return words


def throughput(record: Mapping[str, Any]) -> str:
    """Where it ends, and what can be planned with."""
    best, day = record["sustained"], record["per_day"]
    if not best:
        return "none: at no level all requests were answered that must be"
    kind = record["levels"][0]["kind"]
    figures = f"{best['requests_per_s']:.2f} requests/s, {best['output_tokens_per_s']:.0f} tokens/s"
    if record["tops_out_at"] is not None:
        words = f"tops out at {kind} {record['tops_out_at']:g} with {figures}"
    elif len(record["levels"]) > 1:
        words = f"still rises at {kind} {best['value']:g} with {figures}"
    else:
        words = f"{figures} at {kind} {best['value']:g}"
    return f"{words}; at {day['factor']:g} of that {day['requests']:,} requests and {day['output_tokens']:,} tokens in a day"


def _wrapped(head: str, words: str) -> List[str]:
    text = f"  {head.ljust(10)}  {words}"
    return textwrap.wrap(text, WIDTH + 20, subsequent_indent=" " * 14, break_long_words=False, break_on_hyphens=False)


def progress(host: str, seen: Mapping[str, Any]) -> str:
    """One line while it runs. `seen`: {level, of, kind, value, done, requests, failed, seconds, rate, running, waiting}."""
    share = f"{seen['done']} of {seen['requests']}" if seen["requests"] else f"{seen['done']}"
    failed = f", {seen['failed']} failed" if seen["failed"] else ""
    queue = "" if seen["running"] is None else f", {seen['running']} running, {_known(seen['waiting'])} waiting"
    words = (
        f"{share} requests{failed}, {seen['rate']:.1f}/s{queue}" if seen["done"] or seen["running"] else "the generator starts"
    )
    return f"  [{seen['seconds']:4.0f} s] {host}: {seen['kind']} {seen['value']:g} ({seen['level']} of {seen['of']}): {words}"


def finished(host: str, level: Mapping[str, Any]) -> str:
    """One line for a level that is over."""
    failed = f", {level['failed']} failed" if level["failed"] else ""
    return (
        f"  {host}: {level['kind']} {level['value']:g}: {level['completed']} answered{failed} in {level['seconds']:.1f} s, "
        f"{level['requests_per_s']:.2f} requests/s, {level['output_tokens_per_s']:.0f} tokens/s, "
        f"whole answer {_span(level['e2e_ms'])}"
    )
