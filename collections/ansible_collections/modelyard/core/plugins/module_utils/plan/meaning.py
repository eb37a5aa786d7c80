"""What types cannot tell of the services of a host: names that say nothing, names and ports used twice, numbers out of range."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge import json_schema
from ansible_collections.modelyard.core.plugins.module_utils.plan import gateway, meaning_models
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import instance_ports, session, unusable_paths
from ansible_collections.modelyard.core.plugins.module_utils.process.identity import INSTANCE_MARKER, MARKER

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Variables that the project sets itself (identity of processes, and which cards an engine may see).
OURS = {
    MARKER,
    INSTANCE_MARKER,
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
OWN_PORTS = (
    "give each service a base_port of its own, with one port per replica after it: for example 8002 behind a gateway on 8000, "
    "which has its status on 8001"
)
TOO_GENERAL = {"vllm", "engine", "server", "service", "llm", "model"}
#: Smallest and largest sound value of the numbers in a service.
BOUNDS: Dict[Tuple[str, str], Tuple[float, float]] = {
    ("topology", "replicas"): (1, 512),
    ("topology", "tensor_parallel_size"): (1, 512),
    ("topology", "min_replicas"): (0, 512),
    ("start", "stagger_s"): (0, 3600),
    ("start", "wave"): (1, 512),
    ("logs", "cap_mib"): (1, 2**20),
    ("logs", "keep"): (2, 10000),
    ("stop", "drain_s"): (0, 86400),
    ("stop", "memory_s"): (0, 86400),
    ("acceptance", "serial_requests"): (0, 10000),
    ("acceptance", "top_logprobs"): (1, 1000),
    ("acceptance", "request_timeout_s"): (1, 86400),
    ("acceptance", "busy_wait_s"): (0, 86400),
    ("gateway", "timeout_s"): (1, 86400),
    ("gateway", "body_limit_mb"): (1, 100000),
    ("gateway", "per_backend_limit"): (0, 10**6),
    ("gateway", "queue_size"): (0, 10**6),
    ("gateway", "queue_timeout_s"): (1, 86400),
    ("gateway", "health_interval_s"): (0.1, 3600),
    ("gateway", "hung_after_s"): (0, 86400),
    ("gateway", "drain_s"): (0, 86400),
}


def findings(services: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """All of them at once. `services`: as the intent has them, types checked and defaults filled in."""
    found: List[Dict[str, str]] = []
    for service in services:
        where = f"modelyard_services[{service['name']}]"
        found += _name(service["name"], where)
        paths = {"model.path": service["model"]["path"], "runtime_path": service["runtime_path"]}
        found += unusable_paths(paths, f"{where}.")
        found += meaning_models.findings(service["model"], f"{where}.model")
        found += _environment(service["environment"], where)
        found += _numbers(service, where)
        found += _gateway(service["gateway"], where)
        found += _schemas(service["acceptance"]["schemas"], f"{where}.acceptance.schemas")
    countable = [s for s in services if s["topology"]["replicas"] <= BOUNDS["topology", "replicas"][1]]
    return [*found, *_ports(countable), *_twice(services, countable)]


def _name(name: str, where: str) -> List[Dict[str, str]]:
    if name.endswith(gateway.SUFFIX):
        what = f"{name!r} would be taken for the gateway of {name[: -len(gateway.SUFFIX)]}"
        return [finding("IN-NAME", f"{where}.name", what, "choose another ending")]
    if NAME.fullmatch(name) and name not in TOO_GENERAL:
        return []
    what = f"{name!r} is no name for a service: it names folders and sessions and should say what runs"
    do = "use small letters, digits, dots and hyphens, for example qwen3-14b-32k"
    return [finding("IN-NAME", f"{where}.name", what, do)]


def _numbers(service: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    found = []
    for (group, key), (smallest, largest) in BOUNDS.items():
        value = service[group][key]
        if value < smallest:
            found.append(
                finding("IN-VALUE", f"{where}.{group}.{key}", f"{value} is below {smallest}", f"set at least {smallest}")
            )
        elif not value <= largest:  # also what is no number at all
            found.append(finding("IN-VALUE", f"{where}.{group}.{key}", f"{value} is above {largest}", f"set at most {largest}"))
    least, replicas = service["topology"]["min_replicas"], service["topology"]["replicas"]
    if replicas >= 1 and least > replicas:
        what = f"{least} is more than the {replicas} replica(s) of the service"
        found.append(finding("IN-VALUE", f"{where}.topology.min_replicas", what, f"set at most {replicas}, or raise replicas"))
    return found


def _gateway(wanted: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    found = unusable_paths({"keys_file": wanted["keys_file"]}, f"{where}.gateway.")
    if wanted["keys_file"] and wanted["kind"] not in (gateway.NONE, gateway.OURS):
        what = f"{wanted['kind']} does not check API keys; it passes them through to the engines"
        found.append(finding("IN-VALUE", f"{where}.gateway.keys_file", what, f"leave it out, or choose the kind {gateway.OURS}"))
    if wanted["queue_size"] and not wanted["per_backend_limit"]:
        what = "nothing would ever wait, because per_backend_limit is 0 (no limit)"
        found.append(finding("IN-VALUE", f"{where}.gateway.queue_size", what, "set per_backend_limit, or leave queue_size out"))
    return found


def _schemas(wanted: List[Mapping[str, Any]], where: str) -> List[Dict[str, str]]:
    """Schemas that the acceptance could not check a reply against, and limits in which no reply fits."""
    found = []
    names = [one["name"] for one in wanted]
    for one in wanted:
        place = f"{where}[{one['name']}]"
        try:
            wrong = json_schema.problems(json.loads(json.dumps(one["schema"])))
        except (TypeError, ValueError) as exc:
            wrong = [f"it is no JSON: {exc}"]
        found += [finding("IN-VALUE", f"{place}.schema", line, "docs/acceptance.md has what a schema may hold") for line in wrong]
        if not one["name"] or names.count(one["name"]) > 1:
            found.append(finding("IN-VALUE", place, "the name is empty, or used twice", "give each schema a name of its own"))
        if one["max_tokens"] < 1:
            found.append(finding("IN-VALUE", f"{place}.max_tokens", f"{one['max_tokens']} is below 1", "set at least 1"))
    return found


def _ports(services: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """Ports that do not exist, and ports that are wanted twice: by engines, and then by the gateways in front of them."""
    wanted = [
        (port, service["name"], f"[{service['name']}].listen.base_port")
        for service in services
        for port in instance_ports(service)
    ]
    for service in services:
        entries = zip(gateway.ports(service), ("port", "admin_port"))
        wanted += [(port, f"the gateway of {service['name']}", f"[{service['name']}].gateway.{key}") for port, key in entries]
    found: List[Dict[str, str]] = []
    owners: Dict[int, str] = {}
    for port, who, key in wanted:
        if not 1 <= port <= 65535:
            found.append(
                finding("IN-VALUE", f"modelyard_services{key}", f"there is no port {port}", "choose ports from 1 to 65535")
            )
        elif port in owners:
            what = f"port {port} is wanted by {owners[port]} and by {who}"
            found.append(finding("IN-PORT-TWICE", f"modelyard_services{key}", what, OWN_PORTS))
        owners.setdefault(port, who)
    return found


def _twice(services: List[Dict[str, Any]], countable: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """Names of services, and of their sessions and units: `a` with two instances has a session `a-0`, like a service `a-0`."""
    names = [service["name"] for service in services]
    found = [
        finding(
            "IN-NAME-TWICE",
            "modelyard_services",
            f"{names.count(name)} services are called {name}",
            "give each service of a host its own name",
        )
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    owners: Dict[str, str] = {}
    for service in countable:
        titles = [session(service, index) for index in range(int(service["topology"]["replicas"]))]
        for title in [*titles, *([gateway.session(service["name"])] if gateway.wanted(service) else [])]:
            other = owners.setdefault(title, service["name"])
            if other != service["name"]:
                what = f"the session {title} is wanted by {other} and by {service['name']}"
                do = "rename one of the services: instances of a service are called NAME-0, NAME-1 and so on"
                found.append(finding("IN-NAME-TWICE", "modelyard_services", what, do))
    return found


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
