"""Reading the inventory's wish: unknown names with the nearest right one, and what a type check cannot see. Pure functions."""

from __future__ import annotations

import difflib
import re
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import CATALOGUE, OFF, ORDER, finding, has_switch

KEY = re.compile(r"[!-~]+")


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean max_model_len?` or, when nothing is near, an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def unknown_variables(names: Iterable[str], known: Iterable[str], prefix: str) -> List[Dict[str, str]]:
    """Variables with the project's prefix that nothing reads."""
    known = set(known)
    return [
        finding(
            "IN-VARIABLE-UNKNOWN",
            name,
            f"the variable {name} is not read by anything{nearest(name, known)}",
            "correct its name or remove it; ansible-inventory --host HOST shows where it comes from",
        )
        for name in sorted(names)
        if name.startswith(prefix) and name not in known
    ]


def misspelt_variables(names: Iterable[str], known: Iterable[str], prefixes: Tuple[str, ...]) -> List[Dict[str, str]]:
    """Variables that look like an input of a role and are none: `teardown_servcie` must not stop every service.

    Other variables of an inventory may begin like a role's name, so only a near miss is refused.
    """
    known = set(known)
    found = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.85)
        if name.startswith(prefixes) and name not in known and near:
            what = f"the variable {name} is not read by anything; did you mean {near[0]}?"
            found.append(finding("IN-VARIABLE-UNKNOWN", name, what, "correct its name or rename your own variable"))
    return found


def unknown_services(names: Iterable[str], known: List[str], where: str) -> List[Dict[str, str]]:
    """Names that belong to no service of the host."""
    return [
        finding(
            "IN-KEY-UNKNOWN",
            f"{where}.{name}",
            f"there is no service {name}{nearest(name, known)}",
            f"services of this host: {', '.join(known) or 'none'}",
        )
        for name in names
        if name not in known
    ]


def unusable_paths(paths: Mapping[str, Any], where: str, tilde: bool = False) -> List[Dict[str, str]]:
    """Paths on a host that are not absolute: engines and tasks have other working directories than the one who writes them."""
    return [
        finding(
            "IN-VALUE",
            f"{where}{key}",
            f"{path!r} is not an absolute path, or holds a $",
            f"write it from / on{' or ~' if tilde else ''}",
        )
        for key, path in paths.items()
        if path and (not str(path).startswith(("/", "~") if tilde else "/") or "$" in str(path))
    ]


def unknown_keys(value: Any, spec: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """Keys that the argument spec does not know, at every depth; `spec` is one option's entry."""
    options = spec.get("options")
    if not options:
        return []
    found: List[Dict[str, str]] = []
    if isinstance(value, list):
        for number, item in enumerate(value):
            name = item.get("name", item.get("id", number)) if isinstance(item, Mapping) else number
            found += unknown_keys(item, spec, f"{where}[{name}]")
        return found
    if not isinstance(value, Mapping):
        return []
    for key in value:
        if key in options:
            found += unknown_keys(value[key], options[key], f"{where}.{key}")
        else:
            found.append(
                finding(
                    "IN-KEY-UNKNOWN",
                    f"{where}.{key}",
                    f"{key} is not a key that is known there{nearest(str(key), options)}",
                    f"known there: {', '.join(sorted(options))}",
                )
            )
    return found


def instance_ports(service: Mapping[str, Any]) -> List[int]:
    """The port of each instance: base_port and the ones after it."""
    base = int(service["listen"]["base_port"])
    return [base + i for i in range(int(service["topology"]["replicas"]))]


def switches(given: Mapping[Any, Any]) -> Tuple[Dict[str, str], List[Dict[str, str]]]:
    """Severity or `off` by id of a finding, and what is wrong with them. YAML reads a bare `off` as false."""
    sound: Dict[str, str] = {}
    found = []
    for id, value in given.items():
        place, word = f"modelyard_checks.{id}", OFF if value is False else str(value)
        if id not in CATALOGUE:
            what = f"there is no check {id}{nearest(str(id), CATALOGUE)}"
            found.append(finding("IN-KEY-UNKNOWN", place, what, "docs/checks.md has them all"))
        elif not has_switch(id):
            what = f"{id} has no switch: nothing could go on after it, or it has one of its own"
            found.append(finding("IN-VALUE", place, what, "remove it"))
        elif word not in (*ORDER, OFF):
            found.append(finding("IN-VALUE", place, f"{value!r} is no severity", f"write {', '.join(ORDER)} or {OFF}"))
        else:
            sound[id] = word
    return sound, found


def key_findings(keys: Mapping[str, Any]) -> List[Dict[str, str]]:
    """API keys that cannot protect anything. Their text is never part of a message."""
    return [
        finding(
            "IN-VALUE",
            f"modelyard_api_keys.{service}",
            "the key is empty, no text, or has characters that no HTTP header can carry",
            "write one line of printable ASCII without blanks, or remove the entry for a service without a key",
        )
        for service, key in keys.items()
        if not (isinstance(key, str) and KEY.fullmatch(key))
    ]


def session(service: Mapping[str, Any], index: int) -> str:
    """Name of the session or unit of an instance: the service's own, with a number where there are several instances."""
    name = str(service["name"])
    return name if int(service["topology"]["replicas"]) == 1 else f"{name}-{index}"
