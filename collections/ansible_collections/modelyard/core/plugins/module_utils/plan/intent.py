"""Reading the inventory's wish: unknown names with the nearest right one, and what a type check cannot see. Pure functions."""

from __future__ import annotations

import difflib
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import CATALOGUE, OFF, ORDER, finding, has_switch

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KEY = re.compile(r"[!-~]+")
#: Variables that the project sets itself (identity of processes, and which cards an engine may see).
OURS = {
    "MODELYARD_SERVICE",
    "SPT_NOENV",
    "VLLM_CPU_OMP_THREADS_BIND",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
}
SECRET = re.compile(r"(?i)(api_?key|token|secret|password|passwd|credential)")
PASSWORD_IN_ADDRESS = re.compile(r"://[^/\s]*:[^/\s]*@")
TOO_GENERAL = {"vllm", "engine", "server", "service", "llm", "model"}


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
            name = item.get("name", number) if isinstance(item, Mapping) else number
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


def number(value: Any) -> Optional[int]:
    """A whole number that may be written as text, as `-e` does; None for anything else (auto, 32k)."""
    return int(value) if str(value).lstrip("-").isdecimal() and not isinstance(value, bool) else None


def instance_ports(service: Mapping[str, Any]) -> List[int]:
    """The port of each instance: base_port and the ones after it."""
    base = int(service["listen"]["base_port"])
    return [base + i for i in range(int(service["topology"]["replicas"]))]


def _environment(values: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """Names that a shell cannot set, that the project sets itself, and secrets: the file env is readable for everybody."""
    found = []
    for name in values:
        place = f"{where}.environment.{name}"
        if not VARIABLE.fullmatch(str(name)):
            found.append(finding("IN-VALUE", place, f"{name!r} is no name of a variable", "use letters, digits and _"))
        elif name in OURS:
            found.append(finding("IN-VALUE", place, f"{name} is set by the project; processes are known by it", "leave it out"))
        elif SECRET.search(str(name)) or PASSWORD_IN_ADDRESS.search(str(values[name])):
            what = f"{name} looks like a secret, and the environment file shows in diffs and manifests"
            found.append(
                finding("IN-SECRET", place, what, "for the API key use modelyard_api_keys; others are not supported yet")
            )
    return found


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


def meaning(services: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """What types cannot tell: names that say nothing, names and ports used twice, numbers out of range."""
    found: List[Dict[str, str]] = []
    names: Dict[str, int] = {}
    ports: Dict[int, str] = {}
    for service in services:
        name = service["name"]
        where = f"modelyard_services[{name}]"
        names[name] = names.get(name, 0) + 1
        if not NAME.fullmatch(name) or name in TOO_GENERAL:
            found.append(
                finding(
                    "IN-NAME",
                    f"{where}.name",
                    f"{name!r} is no name for a service: it names folders and sessions and should say what runs",
                    "use small letters, digits, dots and hyphens, for example qwen3-14b-32k",
                )
            )
        paths = {"model.path": service["model"]["path"], "runtime_path": service["runtime_path"]}
        found += unusable_paths(paths, f"{where}.")
        bad = [c for c in service["cards"] if c != "all" and not (str(c).isascii() and str(c).isdigit())]
        bad += [c for c in service["cards"] if service["cards"].count(c) > 1]
        if bad or ("all" in service["cards"] and len(service["cards"]) > 1):
            what = f"{', '.join(map(str, service['cards']))}: cards are either all, or indexes, each once"
            found.append(finding("IN-VALUE", f"{where}.cards", what, "write all, or a list such as [0, 1]"))
        found += _environment(service["environment"], where)
        for key in ("replicas", "tensor_parallel_size"):
            if service["topology"][key] < 1:
                found.append(
                    finding(
                        "IN-VALUE",
                        f"{where}.topology.{key}",
                        f"{service['topology'][key]} is below 1",
                        "set at least 1",
                    )
                )
        for port in instance_ports(service):
            if not 1 <= port <= 65535:
                found.append(
                    finding(
                        "IN-VALUE",
                        f"{where}.listen.base_port",
                        f"there is no port {port}",
                        "choose ports from 1 to 65535",
                    )
                )
            elif port in ports:
                found.append(
                    finding(
                        "IN-PORT-TWICE",
                        f"{where}.listen.base_port",
                        f"port {port} is wanted by {ports[port]} and by {name}",
                        "give each service a base_port of its own, with one port per replica after it",
                    )
                )
            else:
                ports[port] = name
    for name, times in names.items():
        if times > 1:
            found.append(
                finding(
                    "IN-NAME-TWICE",
                    "modelyard_services",
                    f"{times} services are called {name}",
                    "give each service of a host its own name",
                )
            )
    return found
