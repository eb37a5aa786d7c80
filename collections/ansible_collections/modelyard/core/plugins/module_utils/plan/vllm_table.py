"""What is known of one vLLM version, out of what is known of all of them (data/vllm/, data/vendor_builds.yml). Pure functions."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

KINDS = ("switch", "flag", "value", "list", "repeat")
GONE = "gone"


class Build(NamedTuple):
    """What a version of vLLM is: the upstream release whose options hold, and what its maker changed."""

    release: str
    backend: str  # what it was built for; empty where the version does not tell
    vendor: str  # empty for upstream's own builds
    options: Mapping[str, str]
    facts: Mapping[str, Any]


def order(release: str) -> Tuple[int, ...]:
    """For sorting: 0.8.5 < 0.8.5.post1 < 0.9.0 < 0.9.0.1."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", release))


def table(
    version: str,
    build: Optional[Build],
    histories: Mapping[str, Any],
    facts: Mapping[str, Any],
    metrics: Mapping[str, Mapping[str, str]],
) -> Dict[str, Any]:
    """The table of one version. Those of all: options.yml, facts.yml, metrics.yml; without a `build` nothing is known.

    release      what people are shown; forks in full
    known        False: nothing below holds anything
    options      names by kind
    owned, removed ({since, do}), later ({since, do}), request_fields ({ignored, do})
                 keys that are refused under `engine`, with what to write instead
    idle         keys that are accepted and do nothing: {since, do}
    values       values that this release does not take: {words, since, do}
    defaults     options to write out where the inventory does not set them
    metrics      names at /metrics: running, waiting, kv_usage, preemptions, generation_tokens, prompt_tokens, finished
    shutdown_least_s, visibility_by_id
    structured   the field of a request that holds an answer to a JSON Schema
    """
    if build is None:
        keys = ("removed", "later", "request_fields", "idle", "values", "defaults", "metrics")
        nothing: Dict[str, Any] = {key: {} for key in keys}
        nothing.update(release=version, known=False, options={kind: [] for kind in KINDS}, owned=facts["owned"])
        return {**nothing, "shutdown_least_s": 0.0, "visibility_by_id": False, "structured": ""}
    now = order(build.release)
    kinds = {name: str(_at(history, now, GONE)) for name, history in histories.items()}
    kinds.update(build.options)
    found = {name: _removed(name, now, kinds, histories, facts) for name in {**histories, **facts["successors"]}}
    removed = {name: gone for name, gone in found.items() if gone}
    there = {name: kind for name, kind in kinds.items() if kind != GONE and name not in removed}
    return {
        "release": version if build.vendor else build.release,
        "known": True,
        "options": {kind: sorted(name for name, its in there.items() if its == kind) for kind in KINDS},
        "owned": facts["owned"],
        "removed": removed,
        "later": {
            name: {"since": next(iter(history)), "do": facts["predecessors"].get(name, "")}
            for name, history in histories.items()
            if name not in there and order(next(iter(history))) > now
        },
        "request_fields": {
            name: {"ignored": "ignored" in known and order(known["ignored"]) <= now, "do": known["do"]}
            for name, known in facts["request_fields"].items()
        },
        "idle": {
            name: {"since": known["idle"], "do": known["do"]}
            for name, known in facts["successors"].items()
            if name in there and "idle" in known and order(known["idle"]) <= now
        },
        "values": {name: known for name, known in facts["values"].items() if name in there and order(known["since"]) > now},
        "defaults": _defaults(now, there, facts["defaults"], build.facts.get("defaults", {})),
        "metrics": {name: str(_at(history, now, "")) for name, history in metrics.items()},
        "structured": str(build.facts.get("structured", _at(facts["structured"], now, ""))),
        "shutdown_least_s": float(_at(facts["shutdown_least_s"], now, 0)),
        "visibility_by_id": bool(build.facts.get("visibility_by_id", _at(facts["visibility_by_id"], now, False))),
    }


def bench_table(release: str, known: Mapping[str, Any]) -> Dict[str, Any]:
    """What holds of `vllm bench serve` in a release: {source, api, options, where_there, figures}, out of bench.yml."""
    return {**known, "api": str(_at(known["api"], order(release), ""))}


def _removed(
    name: str, now: Tuple[int, ...], kinds: Mapping[str, str], histories: Mapping[str, Any], facts: Mapping[str, Any]
) -> Optional[Dict[str, str]]:
    """Since when an option is gone or refused, and what to write instead; None for one that is there, or not there yet."""
    known, history = facts["successors"].get(name, {}), histories.get(name, {})
    refused = str(known.get("refused", ""))
    if refused and order(refused) <= now:
        since = refused
    elif kinds.get(name, GONE) == GONE and not (history and order(next(iter(history))) > now):
        since = next((release for release, kind in history.items() if kind == GONE), "")
    else:
        return None
    return {"since": since, "do": str(known.get("do", "leave it out"))}


def _defaults(now: Tuple[int, ...], there: Mapping[str, str], known: Mapping[str, Any], own: Mapping[str, Any]) -> Dict[str, Any]:
    """Defaults to write out in a release; `own` are those of a fork, where null takes one away."""
    held = {
        name: item["value"]
        for name, item in known.items()
        if order(item.get("from", "0")) <= now and ("to" not in item or now <= order(item["to"]))
    }
    return {name: value for name, value in {**held, **own}.items() if name in there and value is not None}


def _at(history: Mapping[str, Any], now: Tuple[int, ...], before: Any) -> Any:
    """What holds in a release, from {release: what holds from there on}; `before` where nothing was said yet."""
    held: List[Any] = [value for since, value in history.items() if order(since) <= now]
    return held[-1] if held else before
