"""A run record as the page and the words need it: every field there, of its kind, and in order. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from modelyard.report import answers, figures, reading
from modelyard.report.answers import Answer


@dataclass(frozen=True)
class Step:
    """One rung on one instance. `restart`: is one of use; None when the record does not say."""

    id: str
    instance: int
    verdict: Answer
    seconds: float | None
    detail: str
    cause: str
    next: str
    restart: bool | None


@dataclass(frozen=True)
class Card:
    """One card as it was seen in the run. Memory in MiB, use as a share, temperature in degrees Celsius."""

    index: str
    name: str
    used: float | None
    total: float | None
    temperature: float | None
    use: float | None


@dataclass(frozen=True)
class Service:
    """One service on one host. `instances`: those that were asked, of so many `deployed`; `facts`: (name, value) of these."""

    name: str
    answer: Answer
    steps: Sequence[Step]
    instances: Sequence[int]
    deployed: int
    evidence: str
    cards: Sequence[Card]
    facts: Sequence[tuple[str, str]]

    @property
    def passed(self) -> int:
        """Instances of which no step was anything but passed or skipped."""
        other = {step.instance for step in self.steps if step.verdict.id not in ("pass", "skipped")}
        return len(set(self.instances) - other)


@dataclass(frozen=True)
class Host:
    """One host. `problem`: why it was not judged."""

    name: str
    answer: Answer
    problem: str
    services: Sequence[Service]


@dataclass(frozen=True)
class Run:
    """One run. Times in seconds since 1970."""

    id: str
    began: float | None
    ended: float | None
    inventory: str
    limit: str
    trigger: str
    answer: Answer
    before: Answer | None
    changed_since: str
    words: Sequence[str]
    hosts: Sequence[Host]
    artifacts: Sequence[tuple[str, str]]

    @property
    def services(self) -> list[Service]:
        """Those of all hosts."""
        return [service for host in self.hosts for service in host.services]


def run(record: Any) -> Run:
    """Read a record. What is missing or of another kind counts as not known."""
    found = reading.mapping(record)
    hosts = [_host(name, reading.mapping(host)) for name, host in reading.mapping(found.get("hosts")).items()]
    began = reading.number(found.get("began"))
    name = reading.line(found.get("id"))
    return Run(
        id=name,
        began=began if began is not None else reading.stamp(name),
        ended=reading.number(found.get("ended")),
        inventory=reading.line(found.get("inventory")),
        limit=reading.line(found.get("limit")),
        trigger=reading.line(found.get("trigger")),
        answer=answers.answer(found.get("answer")),
        before=answers.answer(found["before"]) if isinstance(found.get("before"), str) else None,
        changed_since=reading.line(found.get("changed_since")),
        words=[words for words in map(reading.line, reading.items(found.get("words"))) if words],
        hosts=sorted(hosts, key=lambda host: (answers.rank(host.answer), _natural(host.name))),
        artifacts=[(kind, reading.line(path)) for kind, path in reading.mapping(found.get("artifacts")).items() if path],
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Order in which server2 comes before server10."""
    words = "".join(char if char.isdecimal() and char.isascii() else f"\0{char}\0" for char in name).split("\0")
    return [(int(word[:18]), "") if word.isdecimal() and word.isascii() else (0, word) for word in words if word]


def _host(name: str, found: Mapping[str, Any]) -> Host:
    services = [_service(service) for service in reading.mappings(found.get("services"))]
    return Host(
        name=reading.line(name),
        answer=answers.answer(found.get("answer")),
        problem=reading.text(found.get("problem")),
        services=sorted(services, key=lambda service: (answers.rank(service.answer), _natural(service.name))),
    )


def _service(found: Mapping[str, Any]) -> Service:
    steps = [_step(step) for step in reading.mappings(found.get("steps"))]
    manifest = reading.mapping(found.get("manifest"))
    return Service(
        name=reading.line(found.get("name")) or "(no name)",
        answer=answers.answer(found.get("answer")),
        steps=steps,
        instances=sorted({step.instance for step in steps}),
        deployed=len(reading.mappings(manifest.get("instances"))),
        evidence=reading.line(found.get("evidence")),
        cards=_cards(found.get("cards")),
        facts=facts(manifest),
    )


def _step(found: Mapping[str, Any]) -> Step:
    restart = found.get("restart")
    return Step(
        id=reading.line(found.get("id")) or "(no name)",
        instance=reading.whole(found.get("instance")) or 0,
        verdict=answers.verdict(found.get("verdict"), found.get("passed")),
        seconds=reading.number(found.get("seconds")),
        detail=reading.text(found.get("detail")),
        cause=reading.line(found.get("cause")),
        next=reading.text(found.get("next")),
        restart=restart if isinstance(restart, bool) else None,
    )


def _cards(found: Any) -> list[Card]:
    """All of a service; none when nothing is known of any: cores of a CPU have neither memory nor use of their own."""
    cards = [_card(card) for card in reading.mappings(found)]
    known = any(value is not None for card in cards for value in (card.used, card.total, card.temperature, card.use))
    return cards if known else []


def _card(found: Mapping[str, Any]) -> Card:
    use = reading.number(found.get("utilization"))
    return Card(
        index=reading.line(found.get("index")) or "?",
        name=reading.line(found.get("name")),
        used=reading.number(found.get("memory_used_mib")),
        total=reading.number(found.get("memory_total_mib")),
        temperature=reading.number(found.get("temperature_c")),
        use=None if use is None else use / 100,
    )


def facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was deployed, in a few words each; what a manifest does not say is left out."""
    model, topology, versions, deployed = (
        reading.mapping(manifest.get(key)) for key in ("model", "topology", "versions", "deployed")
    )
    ports = [port for one in reading.mappings(manifest.get("instances")) if (port := reading.whole(one.get("port"))) is not None]
    replicas, size = (reading.line(topology.get(key)) for key in ("replicas", "tensor_parallel_size"))
    when, by = reading.line(deployed.get("at")), reading.line(deployed.get("by"))
    found = [
        ("model", reading.line(model.get("id"))),
        ("topology", f"{replicas} x TP {size}" if replicas and size else ""),
        ("vLLM", reading.line(versions.get("vllm"))),
        ("torch", reading.line(versions.get("torch"))),
        ("driver", reading.line(versions.get("driver"))),
        ("ports", figures.numbers(ports)),
        ("supervisor", reading.line(manifest.get("supervisor"))),
        ("deployed", " by ".join(filter(None, (_minute(when), by))) if when else ""),
    ]
    return [(name, value) for name, value in found if value]


def _minute(when: str) -> str:
    """`2026-11-20 08:31 UTC` of the time in a manifest."""
    return f"{when[:16].replace('T', ' ')} UTC" if when.endswith("Z") else when
