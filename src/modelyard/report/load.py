"""A load record as the page needs it: facts, plots, and the two tables. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from modelyard.report import figures, reading
from modelyard.report.plot import Plot, Series, is_drawn

PERCENTILES = ("p50", "p95", "p99")
#: What the values of the levels are, in words for the axis and for the head of the tables.
KINDS = {
    "concurrency": ("requests at once from clients", "at once"),
    "rate": ("requests arriving per second", "per second"),
    "users": ("users", "users"),
}
#: What was asked, in words; what is not here is told by its name.
SHAPE = {
    "input_tokens": "{} tokens in",
    "output_tokens": "{} tokens out",
    "ignore_eos": "no answer ends earlier",
    "requests": "{} requests a level",
    "seconds": "{} s a level",
    "pause_s": "pauses of {} s",
}
#: Times are shown in milliseconds up to here, then in seconds.
MILLISECONDS_UP_TO = 10_000


@dataclass(frozen=True)
class Level:
    """One step of the sweep. Latencies in milliseconds by percentile. `marks`: what is special about it; `beyond`: figures that
    are beyond a limit, which counts only where `is_judged`."""

    value: float | None
    requests: int | None
    completed: int | None
    failed: int | None
    requests_per_s: float | None
    output_per_s: float | None
    ttft: Mapping[str, float | None]
    itl: Mapping[str, float | None]
    e2e: Mapping[str, float | None]
    errors: str
    spread: str
    running: float | None
    waiting: float | None
    kv: float | None
    preemptions: int | None
    use: str
    memory: float | None
    marks: Sequence[str]
    beyond: Sequence[str]
    is_judged: bool


@dataclass(frozen=True)
class Load:
    """One load test. `passed`: None when it had no verdict."""

    id: str
    at: str
    service: str
    passed: bool | None
    facts: Sequence[tuple[str, str]]
    complaints: Sequence[str]
    advice: Sequence[str]
    notes: Sequence[str]
    compared: str
    compared_words: Sequence[str]
    across: tuple[str, str]
    levels: Sequence[Level]
    plots: Sequence[Plot]


def load(record: Any) -> Load:
    """Read a record. What is missing or of another kind counts as not known."""
    found = reading.mapping(record)
    levels = reading.mappings(found.get("levels"))
    kind = reading.line(levels[0].get("kind")) if levels else ""
    across = KINDS.get(kind, ("level", "level"))
    compared = reading.mapping(found.get("compared_with"))
    name = reading.line(found.get("id"))
    passed = found.get("passed")
    return Load(
        id=name,
        at=reading.moment(found.get("at")) or reading.moment(reading.stamp(name)),
        service=reading.line(found.get("service")) or "(no name)",
        passed=passed if isinstance(passed, bool) else None,
        facts=_facts(found, across[1]),
        complaints=_words(found.get("complaints")),
        advice=[_advice(one) for one in reading.mappings(found.get("advice"))],
        notes=_words(found.get("notes")),
        compared=reading.line(compared.get("id")),
        compared_words=_words(compared.get("words")),
        across=across,
        levels=[_level(level, found) for level in levels],
        plots=plots(found, [level for level in levels if reading.line(level.get("kind")) == kind], across[0], kind),
    )


def _advice(found: Mapping[str, Any]) -> str:
    """The words, which name the knob as a rule."""
    knob, words = reading.line(found.get("knob")), reading.line(found.get("words"))
    return words if not knob or knob in words else f"{knob}: {words}"


def _words(value: Any) -> list[str]:
    return [words for words in map(reading.line, reading.items(value)) if words]


def _facts(found: Mapping[str, Any], across: str) -> list[tuple[str, str]]:
    tool, entry, sustained, day, runtime = (
        reading.mapping(found.get(key)) for key in ("tool", "entry", "sustained", "per_day", "runtime")
    )
    requests, tokens, factor = (reading.number(day.get(key)) for key in ("requests", "output_tokens", "factor"))
    at = f"{figures.plain(reading.number(sustained.get('value')))} {across}"
    rates = (
        f"{figures.rate(reading.number(sustained.get('requests_per_s')))} requests/s, "
        f"{figures.rate(reading.number(sustained.get('output_tokens_per_s')))} tokens/s with {at}"
    )
    port = reading.whole(entry.get("port"))
    host = reading.line(entry.get("host"))
    told = [
        ("sustained", rates if sustained else ""),
        (
            f"per day at {figures.percent(factor)} of it",
            f"{figures.plain(requests)} requests, {figures.plain(tokens)} tokens" if day else "",
        ),
        ("slots", _slots_words(found)),
        ("entry", f"{reading.line(entry.get('kind'))} {host}{f':{port}' if port is not None else ''}".strip()),
        ("shape", _shape(reading.mapping(found.get("shape")))),
        ("tool", " ".join(filter(None, (reading.line(tool.get("name")), reading.line(tool.get("version")))))),
        ("vLLM", reading.line(runtime.get("vllm"))),
        ("seed", reading.line(found.get("seed"))),
    ]
    return [(name, value) for name, value in told if value]


def _shape(shape: Mapping[str, Any]) -> str:
    """What was asked, without what stands elsewhere on the page or is not set."""
    told = {key: value for key, value in shape.items() if key not in ("kind", "values", "seed") and value}
    pause = [figures.short(one) for one in map(reading.number, reading.items(told.get("pause_s"))) if one is not None]
    if len(pause) == 2:  # the shortest and the longest
        told["pause_s"] = f"{pause[0]} to {pause[1]}"
    return ", ".join(SHAPE.get(key, f"{key.replace('_', ' ')} {{}}").format(reading.line(value)) for key, value in told.items())


def _slots_words(found: Mapping[str, Any]) -> str:
    slots, instances = reading.whole(found.get("slots")), reading.whole(found.get("instances"))
    if slots is None:
        return ""
    return f"{slots} in {figures.count(instances, 'instance')}" if instances else str(slots)


def _percentiles(value: Any) -> dict[str, float | None]:
    found = reading.mapping(value)
    return {name: reading.number(found.get(name)) for name in PERCENTILES}


def _level(level: Mapping[str, Any], record: Mapping[str, Any]) -> Level:
    server = reading.mapping(level.get("server"))
    cards = reading.mappings(level.get("cards"))
    memory = [used for card in cards if (used := reading.number(card.get("memory_used_max_mib"))) is not None]
    use = [used for card in cards if (used := reading.number(card.get("utilization_median"))) is not None]
    given = [n for n in map(reading.whole, reading.mapping(level.get("by_backend")).values()) if n is not None]
    errors = reading.mapping(level.get("errors"))
    value = reading.number(level.get("value"))
    is_judged = value is not None and value == _judged(record)
    return Level(
        value=value,
        requests=reading.whole(level.get("requests")),
        completed=reading.whole(level.get("completed")),
        failed=reading.whole(level.get("failed")),
        requests_per_s=reading.number(level.get("requests_per_s")),
        output_per_s=reading.number(level.get("output_tokens_per_s")),
        ttft=_percentiles(level.get("ttft_ms")),
        itl=_percentiles(level.get("itl_ms")),
        e2e=_percentiles(level.get("e2e_ms")),
        errors=", ".join(f"{reading.line(amount)} x {reading.line(what)}" for what, amount in errors.items()),
        spread=_range(given) if len(given) > 1 else figures.UNKNOWN,
        running=reading.number(server.get("running_max")),
        waiting=reading.number(server.get("waiting_max")),
        kv=reading.number(server.get("kv_usage_max")),
        preemptions=reading.whole(server.get("preemptions")),
        use=f"{_range(use)} %" if use else figures.UNKNOWN,
        memory=max(memory) if memory else None,
        marks=_marks(value, record),
        beyond=_beyond(level, reading.mapping(record.get("limits")), is_judged),
        is_judged=is_judged,
    )


def _range(found: Sequence[float]) -> str:
    low, high = figures.plain(min(found)), figures.plain(max(found))
    return low if low == high else f"{low}-{high}"


def _marks(value: float | None, record: Mapping[str, Any]) -> list[str]:
    sustained = reading.number(reading.mapping(record.get("sustained")).get("value"))
    top = reading.number(record.get("tops_out_at"))
    return [
        words for words, there in (("sustained", sustained == value), ("tops out", top == value)) if there and value is not None
    ]


def _judged(record: Mapping[str, Any]) -> float | None:
    """The level that the limits are for: the one they name, else the sustained one; None where there are no limits."""
    limits = reading.mapping(record.get("limits"))
    if not any(reading.number(limit) is not None for limit in limits.values()):
        return None
    at = reading.number(limits.get("at"))
    return at if at else reading.number(reading.mapping(record.get("sustained")).get("value"))


def _beyond(level: Mapping[str, Any], limits: Mapping[str, Any], is_judged: bool) -> list[str]:
    """Names the figures that are beyond a limit. A low load has a low throughput: that is looked at only where it is judged."""
    failed, requests = reading.number(level.get("failed")), reading.number(level.get("requests"))
    rate, wanted = reading.number(level.get("requests_per_s")), reading.number(limits.get("requests_per_s"))
    found = [
        name
        for name, seen, limit in (
            ("e2e_p95", reading.mapping(level.get("e2e_ms")).get("p95"), limits.get("e2e_p95_ms")),
            ("ttft_p95", reading.mapping(level.get("ttft_ms")).get("p95"), limits.get("ttft_p95_ms")),
            ("failed", failed / requests if failed is not None and requests else None, limits.get("error_rate")),
        )
        if (value := reading.number(seen)) is not None and (most := reading.number(limit)) is not None and value > most
    ]
    return found + (["rate"] if is_judged and rate is not None and wanted is not None and rate < wanted else [])


def plots(record: Mapping[str, Any], levels: Sequence[Mapping[str, Any]], across: str, kind: str) -> list[Plot]:
    """Throughput and latencies over the levels; only those that have something to show."""
    limits = reading.mapping(record.get("limits"))
    slots = reading.number(record.get("slots")) if kind in ("concurrency", "users") else None
    top = reading.number(record.get("tops_out_at"))
    found = [
        _rate("Output tokens per second", "output_tokens_per_s", levels, across, None, slots, top),
        _rate("Requests per second", "requests_per_s", levels, across, limits.get("requests_per_s"), slots, top),
        _latency("Time to the first token", "ttft_ms", levels, across, limits.get("ttft_p95_ms"), slots),
        _latency("Time of a whole request", "e2e_ms", levels, across, limits.get("e2e_p95_ms"), slots),
    ]
    return [plot for plot in found if is_drawn(plot)]


def _points(levels: Sequence[Mapping[str, Any]], key: str, inner: str = "", scale: float = 1) -> list[tuple[float, float]]:
    found = [reading.mapping(level.get(key)).get(inner) if inner else level.get(key) for level in levels]
    pairs = [(reading.number(level.get("value")), reading.number(value)) for level, value in zip(levels, found)]
    # A plot of anything below 0 or beyond what a year has would be one of a damaged record.
    return sorted((x, y / scale) for x, y in pairs if x is not None and y is not None and 0 <= x < 1e9 and 0 <= y < 1e12)


def _rate(
    title: str,
    key: str,
    levels: Sequence[Mapping[str, Any]],
    across: str,
    limit: Any,
    slots: float | None,
    top: float | None,
) -> Plot:
    wanted = reading.number(limit)
    line = (wanted, f"at least {figures.short(wanted)}") if wanted is not None and 0 <= wanted < 1e12 else None
    mark = (top, "tops out") if top is not None else None
    return Plot(title, across, [Series("", "p95", _points(levels, key))], line, slots, mark)


def _latency(title: str, key: str, levels: Sequence[Mapping[str, Any]], across: str, limit: Any, slots: float | None) -> Plot:
    points = {name: _points(levels, key, name) for name in PERCENTILES}
    most = reading.number(limit)
    highest = max([y for line in points.values() for _, y in line] + ([most] if most is not None else []), default=0)
    scale, unit = (1000, "s") if highest > MILLISECONDS_UP_TO else (1, "ms")
    series = [Series(name, name, [(x, y / scale) for x, y in line]) for name, line in points.items() if line]
    line = (most / scale, f"P95 limit {figures.short(most / scale)} {unit}") if most is not None and 0 <= most < 1e12 else None
    return Plot(f"{title}, {unit}", across, series, line, slots)
