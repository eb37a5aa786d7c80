"""What differs in versions and parameters between two runs, from the manifests in their records. Pure functions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import shortened

from modelyard.report import figures, reading

ABSENT = "(not set)"
#: Group on the page -> parts of a manifest. Not compared: who deployed when, and what follows from other parts (files, digests).
GROUPS: Mapping[str, tuple[str, ...]] = {
    "versions": ("versions", "runtime"),
    "model": ("model",),
    "parameters": (
        *("backend", "engine", "topology", "listen", "gateway", "start", "stop", "logs", "acceptance", "supervisor"),
        *("ready_timeout_s", "shutdown_timeout_s", "secured", "visibility"),
    ),
}
LAUNCH = "instances"
SERVICES = "services"
ORDER = (SERVICES, *GROUPS, LAUNCH)
#: Words of a command line that stand before its options, and the part of the manifest that tells of them already.
POSITIONS = (("program", "runtime.path"), ("command", ""), ("model", "path"))
#: The largest number of lines that a page shows.
MOST = 200


@dataclass
class Change:
    """One value that differs, and every place where it differs in this way."""

    group: str
    key: str
    before: str
    after: str
    where: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Changes:
    """`lines`: in groups, at most MOST; `more`: how many are left out; `unknown`: places that could not be compared."""

    lines: list[Change]
    more: int
    unknown: list[str]

    @property
    def groups(self) -> list[tuple[str, list[Change]]]:
        """The lines of each group."""
        names = dict.fromkeys(change.group for change in self.lines)
        return [(name, [change for change in self.lines if change.group == name]) for name in names]


def between(previous: Any, run: Any) -> Changes:
    """Compare the services that both know, by host and name. Services that only one of them has are lines of their own."""
    before, after = _services(previous), _services(run)
    silent = {host for host, entry in _hosts(run) if not reading.items(entry.get("services"))}
    found: dict[tuple[str, str, str, str], Change] = {}
    unknown = []
    for place in sorted({*before, *after}):
        host, name = place
        if place not in after:
            if host in silent:
                unknown.append(f"{host} {name}")
            else:
                _add(found, (SERVICES, "service", "there", "not there"), f"{host} {name}")
        elif place not in before:
            _add(found, (SERVICES, "service", "not there", "there"), f"{host} {name}")
        elif not (before[place] and after[place]):
            unknown.append(f"{host} {name}")
        else:
            for line, indexes in _service(before[place], after[place]):
                _add(found, line, f"{host} {name}{'/' + figures.numbers(indexes) if indexes else ''}")
    lines = sorted(found.values(), key=lambda change: (ORDER.index(change.group), change.key))
    return Changes(lines[:MOST], max(0, len(lines) - MOST), unknown)


def _add(found: dict[tuple[str, str, str, str], Change], line: tuple[str, str, str, str], place: str) -> None:
    found.setdefault(line, Change(*line)).where.append(place)


def _hosts(run: Any) -> list[tuple[str, dict[str, Any]]]:
    hosts = reading.mapping(reading.mapping(run).get("hosts"))
    return [(reading.line(name), reading.mapping(entry)) for name, entry in hosts.items()]


def _services(run: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """(host, service) -> manifest, empty where none is known."""
    return {
        (host, reading.line(service.get("name"))): reading.mapping(service.get("manifest"))
        for host, entry in _hosts(run)
        for service in reading.mappings(entry.get("services"))
    }


def _service(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[tuple[str, str, str, str], list[int]]]:
    """(group, key, before, after) with the instances concerned, none for the whole service."""
    found: list[tuple[tuple[str, str, str, str], list[int]]] = []
    for group, parts in GROUPS.items():
        found += [(line, []) for line in _differences(group, _parts(group, parts, before), _parts(group, parts, after))]
    told = {line[1] for line, _ in found}
    by_line: dict[tuple[str, str, str, str], list[int]] = {}
    mine, theirs = _instances(before), _instances(after)
    for index in sorted({*mine, *theirs}):
        if index not in mine or index not in theirs:
            there = ("there", "not there") if index in mine else ("not there", "there")
            by_line.setdefault((LAUNCH, "instance", *there), []).append(index)
            continue
        for line in _differences(LAUNCH, _launch(mine[index]), _launch(theirs[index])):
            if not _is_told(line[1], told):
                by_line.setdefault(line, []).append(index)
    both = sorted({*mine} & {*theirs})
    return found + [(line, [] if indexes == both and len(both) == 1 else indexes) for line, indexes in by_line.items()]


def _parts(group: str, parts: Sequence[str], manifest: Mapping[str, Any]) -> dict[str, str]:
    """All values of these parts. A part with the name of its group needs no name before its keys."""
    return {key: value for part in parts for key, value in _flat("" if part == group else part, manifest.get(part))}


def _differences(group: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    keys = sorted({*old, *new})
    return [(group, key, old.get(key, ABSENT), new.get(key, ABSENT)) for key in keys if old.get(key) != new.get(key)]


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """`engine.max_num_seqs` -> `4`. Empty values are no settings."""
    if isinstance(value, dict):
        for name, inner in reading.mapping(value).items():
            yield from _flat(f"{key}.{name}" if key else name, inner)
    elif value not in (None, "", [], ()):
        yield reading.line(key), reading.line(value if isinstance(value, str) else json.dumps(value, default=str))


def _instances(manifest: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    found = reading.mappings(manifest.get("instances"))
    return {index: one for one in found if (index := reading.whole(one.get("index"))) is not None}


def _launch(instance: Mapping[str, Any]) -> dict[str, str]:
    """How one instance is started: options, environment, port and cards."""
    devices = [reading.line(one.get("uuid") or one.get("bus_id")) for one in reading.mappings(instance.get("devices"))]
    words = [reading.line(word) for word in reading.items(instance.get("argv"))]
    found = {key: reading.line(value) for key, value in shortened.options(words).items()}
    for key, value in (
        ("environment", reading.mapping(instance.get("environment"))),
        ("port", instance.get("port")),
        ("cards", instance.get("cards")),
        ("devices", [name for name in devices if name]),
    ):
        found.update(_flat(key, value))
    return found


def _is_told(key: str, told: set[str]) -> bool:
    """Does an option only say again what a parameter says? `--max-num-seqs` after `engine.max_num_seqs`."""
    if dict(POSITIONS).get(key) in told:
        return True
    name = key.removeprefix("--").replace("-", "_")
    return key.startswith("--") and any(name in one.split(".") for one in told)
