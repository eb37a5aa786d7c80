"""The file modelyard.yml: how long history is kept, and who is told. Everything that is wrong with it is said at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

NAME = "modelyard.yml"
NUMBER = (int, float)
#: Key -> (types, default, smallest value of a number).
KEYS: dict[str, tuple[tuple[type, ...], Any, float]] = {
    "keep_runs": ((int,), 100, 2),
    "keep_days": (NUMBER, 90, 1),
    "limit_s": (NUMBER, 3600, 60),
    "busy_told_after_s": (NUMBER, 7200, 0),
    "unreachable_told_after_s": (NUMBER, 0, 0),
    "tell_limit_s": (NUMBER, 60, 1),
    "tell": ((list,), [], 0),
}
COMMON: dict[str, tuple[tuple[type, ...], Any, float]] = {
    "kind": ((str,), "", 0),
    "name": ((str,), "", 0),
    "timeout_s": (NUMBER, 15, 1),
}
#: The ways to tell somebody, with their own keys.
KINDS: dict[str, dict[str, tuple[tuple[type, ...], Any, float]]] = {
    "webhook": {
        "url": ((str,), "", 0),
        "url_file": ((str,), "", 0),
        "token_file": ((str,), "", 0),
        "ca_file": ((str,), "", 0),
    },
    "mail": {"to": ((list,), [], 0), "from": ((str,), "", 0), "command": ((list,), ["/usr/sbin/sendmail", "-t", "-i"], 0)},
    "command": {"command": ((list,), [], 0)},
}


class Wrong(Exception):
    """The file cannot be used; a line for everything that is wrong."""


class Config(NamedTuple):
    """The settings with all defaults. `tell`: a dictionary for each way, with every key of its kind."""

    keep_runs: int
    keep_days: float
    limit_s: float
    busy_told_after_s: float
    unreachable_told_after_s: float
    tell_limit_s: float
    tell: list[dict[str, Any]]


def read(path: Path | None, root: Path) -> Config:
    """The configuration from `path`, else from modelyard.yml of the checkout, else the defaults. Raises Wrong."""
    usual = root / NAME
    place = path or (usual if usual.exists() else None)
    if place is None:
        return of({}, "")
    try:
        data = yaml.safe_load(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise Wrong(f"{place} cannot be read: {exc}") from exc
    except yaml.YAMLError as exc:
        raise Wrong(f"{place} is no YAML: {' '.join(str(exc).split())}") from exc
    return of({} if data is None else data, str(place))


def of(data: Any, where: str) -> Config:
    """From plain data. Raises Wrong with everything that is wrong."""
    if not isinstance(data, Mapping):
        raise Wrong(f"{where}: it holds {type(data).__name__}, and keys with values are wanted: {', '.join(KEYS)}")
    wrong, values = _checked(data, KEYS, where)
    ways = []
    for number, entry in enumerate(values["tell"]):
        place = f"{where}: tell[{number}]"
        if not isinstance(entry, Mapping):
            wrong.append(f"{place} is {type(entry).__name__}; write it as `- kind: webhook` with its keys below")
            continue
        kind = str(entry.get("kind", ""))
        if kind not in KINDS:
            wrong.append(f"{place}.kind is {kind!r}{nearest(kind, KINDS)}; known: {', '.join(KINDS)}")
            continue
        own, way = _checked(entry, {**COMMON, **KINDS[kind]}, place)
        wrong += own or _needs(way, place)
        ways.append({**way, "name": way["name"] or f"{kind} {number}"})
    names = [way["name"] for way in ways]
    wrong += [f"{where}: two entries of tell are named {name}" for name in sorted({n for n in names if names.count(n) > 1})]
    if wrong:
        raise Wrong("\n".join(wrong))
    return Config(**{**values, "tell": ways})


def _checked(
    data: Mapping[Any, Any], spec: Mapping[str, tuple[tuple[type, ...], Any, float]], where: str
) -> tuple[list[str], dict[str, Any]]:
    wrong = []
    for key in data:
        if key not in spec:
            wrong.append(f"{where}: there is no key {key}{nearest(str(key), spec)}; known: {', '.join(spec)}")
    values = {}
    for key, (types, default, least) in spec.items():
        value = data.get(key)
        values[key] = default if value is None else value
        if not isinstance(values[key], types) or isinstance(values[key], bool):
            wrong.append(f"{where}: {key} is {values[key]!r}, and a value like {default!r} is wanted")
            values[key] = default
        elif isinstance(values[key], NUMBER) and not least <= values[key] < float("inf"):
            wrong.append(f"{where}: {key} is {values[key]}, and at least {least:g} is wanted")
    return wrong, values


def _needs(way: Mapping[str, Any], where: str) -> list[str]:
    """What a way lacks, beyond the types of its values."""
    found = []
    if way["kind"] == "webhook":
        if bool(way["url"]) == bool(way["url_file"]):
            found.append(f"{where}: exactly one of url and url_file (a file that holds the address) is wanted")
        elif way["url"] and not way["url"].startswith(("https://", "http://")):
            found.append(f"{where}: url must begin with https:// (or http://, which is readable on the way)")
    for key in [key for key in ("to", "command") if key in way]:
        if not (way[key] and all(isinstance(word, str) and word for word in way[key])):
            example = "admin@example.org" if key == "to" else "/usr/bin/true"
            found.append(f"{where}: {key} must be a list of words, for example [{example}]")
        elif key == "to" and any(c in word for word in way["to"] for c in "\r\n,"):
            found.append(f"{where}: each address of to is an entry of its own, without commas and line ends")
    if any(c in way.get("from", "") for c in "\r\n"):
        found.append(f"{where}: from has a line end in it")
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean keep_days?)`, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
