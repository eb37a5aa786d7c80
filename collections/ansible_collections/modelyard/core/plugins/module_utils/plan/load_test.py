"""What a load test is to do: levels, entry and limits, out of a planned service and the role's inputs. Pure functions.

A shape is {kind, values, input_tokens, output_tokens, seed, ignore_eos, requests, seconds, pause_s}. Kinds: `concurrency` (so
many clients, each with one request after the other), `rate` (so many requests a second, whether they are answered or not),
`users` (as clients, with a pause between two requests). Two runs can be compared when their shapes are the same.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

CONCURRENCY, RATE, USERS = "concurrency", "rate", "users"
AUTO, VLLM, OWN = "auto", "vllm", "own"
GATEWAY, INSTANCE = "gateway", "instance"
#: Requests of a level where nothing is said: rounds of all clients, seconds of arrivals, and never fewer than LEAST.
ROUNDS, ARRIVALS_S, LEAST = 4, 30, 40
#: Seconds of a level of users where nothing is said: each of them pauses, so rounds say little.
USERS_S = 60
MOST = {CONCURRENCY: 4096, RATE: 10000, USERS: 10000}


#: The role's inputs by what they are; `-e` gives all of them as text.
KINDS: Dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("users", "input_tokens", "output_tokens", "requests", "seed", "keep"), int),
    **dict.fromkeys(("seconds", "level_limit_s", "request_limit_s"), float),
    **dict.fromkeys(("tool", "entry", "key_file"), str),
    **{key: (lambda value: str(value).lower() in ("true", "yes", "on", "1")) for key in ("ignore_eos", "anyway")},
    "concurrency": lambda value: [int(one) for one in _listed(value)],
    **{key: (lambda value: [float(one) for one in _listed(value)]) for key in ("rates", "pause_s")},
}


def options(given: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[str]]:
    """(the inputs as what they are, what is wrong with them). `8,16,32` is a list as well."""
    found, wrong = {}, []
    for key, kind in KINDS.items():
        try:
            found[key] = kind(given[key])
        except (TypeError, ValueError):
            wrong.append(f"load_test_{key} is {given[key]!r}, which is not what is wanted there")
    for key, known in (("tool", (AUTO, VLLM, OWN)), ("entry", (AUTO, GATEWAY, INSTANCE))):
        if key in found and found[key] not in known:
            wrong.append(f"load_test_{key} is {found[key]!r}: write one of {', '.join(known)}")
    return found, wrong


def _listed(value: Any) -> List[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    return [part for part in str(value).strip("[] ").replace(",", " ").split() if part]


def shape(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The shape that the role's inputs (without their prefix) ask for."""
    kind, values = CONCURRENCY, list(options["concurrency"])
    if options["users"]:
        kind, values = USERS, [options["users"]]
    elif options["rates"]:
        kind, values = RATE, list(options["rates"])
    numbers = sorted({float(value) if kind == RATE else int(value) for value in values})
    return {
        "kind": kind,
        "values": numbers,
        "input_tokens": int(options["input_tokens"]),
        "output_tokens": int(options["output_tokens"]),
        "seed": int(options["seed"]),
        "ignore_eos": bool(options["ignore_eos"]),
        "requests": int(options["requests"]),
        "seconds": float(options["seconds"]),
        "pause_s": [float(pause) for pause in options["pause_s"]] if kind == USERS else [],
    }


def levels(wanted: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The levels of a shape, smallest first: {kind, value, requests, seconds}; one of the last two is 0 and limits nothing."""
    found = []
    for value in wanted["values"]:
        requests, seconds = wanted["requests"], wanted["seconds"]
        if not requests and not seconds:
            seconds = USERS_S if wanted["kind"] == USERS else 0.0
            usual = {CONCURRENCY: ROUNDS * value, RATE: ARRIVALS_S * value, USERS: 0}[wanted["kind"]]
            requests = 0 if seconds else max(LEAST, round(usual))
        found.append({"kind": wanted["kind"], "value": value, "requests": requests, "seconds": 0.0 if requests else seconds})
    return found


def complaints(options: Mapping[str, Any], service: Mapping[str, Any]) -> List[str]:
    """What is wrong with the inputs, all at once; each names the input and what can be written."""
    found = []
    wanted = shape(options)
    kinds = {"concurrency": CONCURRENCY, "rates": RATE, "users": USERS}
    name = next(key for key, kind in kinds.items() if kind == wanted["kind"])
    if not wanted["values"]:
        found.append("load_test_concurrency is empty: write at least one level, for example [8, 16, 32]")
    if any(not 0 < value <= MOST[wanted["kind"]] for value in wanted["values"]):
        found.append(f"load_test_{name} holds a level that is not between 0 and {MOST[wanted['kind']]}")
    if options["rates"] and options["users"]:
        found.append("load_test_rates and load_test_users are both set: a run has one shape; leave one out")
    if options["requests"] and options["seconds"]:
        found.append("load_test_requests and load_test_seconds are both set: leave one out")
    for key in ("input_tokens", "output_tokens", "level_limit_s", "request_limit_s", "keep"):
        if options[key] < 1:
            found.append(f"load_test_{key} is {options[key]}: write at least 1")
    found += [f"load_test_{key} is negative" for key in ("requests", "seconds") if options[key] < 0]
    if wanted["kind"] == USERS and not (len(wanted["pause_s"]) == 2 and 0 <= wanted["pause_s"][0] <= wanted["pause_s"][1]):
        found.append("load_test_pause_s wants two numbers, the shortest and the longest pause: [1, 3]")
    if options["entry"] == GATEWAY and not service["gateway"]:
        found.append(f"load_test_entry is {GATEWAY}, and {service['name']} has no gateway")
    if options["tool"] == VLLM and needs_own(wanted):
        found.append(f"load_test_tool is {VLLM}, which knows neither users with pauses nor seconds: use {OWN} or {AUTO}")
    return found + _limits(service)


def _limits(service: Mapping[str, Any]) -> List[str]:
    found = []
    for key, value in service["load"]["limits"].items():
        if value is not None and (value < 0 or (key == "error_rate" and value > 1)):
            found.append(f"load.limits.{key} of {service['name']} is {value}, which cannot be")
    return found


def needs_own(wanted: Mapping[str, Any]) -> bool:
    """Is it a shape that `vllm bench serve` does not know?"""
    return wanted["kind"] == USERS or bool(wanted["seconds"]) or not wanted["ignore_eos"]


def request(
    service: Mapping[str, Any],
    options: Mapping[str, Any],
    only: Sequence[int],
    bench: Mapping[str, Any],
    cards: Mapping[str, Any],
    version: str,
) -> Dict[str, Any]:
    """What the module load_test gets. `only`: indexes of the instances that are meant, empty for all.

    `bench`: the table of `vllm bench serve` (tables.bench); `cards`: {entry, sysroot}, how its cards are looked at; `version`: of
    this project, which is that of its own generator.
    """
    wanted = shape(options)
    instances = [i for i in service["instances"] if i["action"] != "stop" and (not only or i["index"] in only)]
    through = bool(service["gateway"]) and not only if options["entry"] == AUTO else options["entry"] == GATEWAY
    return {
        "service": service["name"],
        "model": service["model"]["id"],
        "model_path": service["model"]["path"],
        "backend": service["backend"],
        "instances": [
            {"index": i["index"], "cards": i["cards"], "devices": i["devices"], "action": i["action"]} for i in instances
        ],
        "gateway": dict(service["gateway"]) if through else {},
        "runtime": service["runtime"]["path"],
        "release": service["runtime"]["vllm_release"],
        "version": version,
        "metrics": dict(service["metrics"]),
        # Empty: our own generator. A host that does not find the tool in its runtime empties it.
        "bench": {} if needs_own(wanted) or options["tool"] == OWN else dict(bench),
        "tool": options["tool"],
        "shape": wanted,
        "levels": levels(wanted),
        "limits": dict(service["load"]["limits"]),
        "level_limit_s": float(options["level_limit_s"]),
        "request_limit_s": float(options["request_limit_s"]),
        "key_file": str(options["key_file"]),
        "anyway": bool(options["anyway"]),
        "keep": int(options["keep"]),
        "cards": dict(cards),
    }


def entry(wanted: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> Tuple[Dict[str, Any], List[Tuple[str, int]]]:
    """(the record's `entry`, the addresses that requests go to). `instances`: [{index, host, port}] that run."""
    gateway = wanted["gateway"]
    if gateway:
        return {"kind": GATEWAY, "host": gateway["host"], "port": gateway["port"]}, [(gateway["host"], int(gateway["port"]))]
    addresses = [(str(one["host"]), int(one["port"])) for one in instances]
    return {"kind": INSTANCE, "host": addresses[0][0], "port": addresses[0][1]}, addresses
