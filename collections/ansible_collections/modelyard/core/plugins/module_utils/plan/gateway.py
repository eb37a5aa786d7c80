"""The gateway of a service as a plan: one entry in front of its instances. Pure functions.

A gateway is kept like a service of its own that is called NAME.gateway and has one instance, so starting, keeping, recognising
and stopping it are what they are for engines.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.gateway import place
from ansible_collections.modelyard.core.plugins.module_utils.plan import actions, choice, launch
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.flat import flat
from ansible_collections.modelyard.core.plugins.module_utils.process.identity import INSTANCE_MARKER, MARKER

NONE, OURS = "none", "modelyard"
SUFFIX = place.SUFFIX
#: Name of the configuration by kind; HAProxy and nginx are kept by a process of ours, which reads proxy.json.
CONFIG = {OURS: "gateway.json", "haproxy": "haproxy.cfg", "nginx": "nginx.conf"}
PACKAGE, PROXY, SPEC = "modelyard_gateway.zip", "proxy.json", place.SPEC_FILE
name = place.name
TOKEN = "run/admin_token"
LOOPBACK = "127.0.0.1"
#: A stop waits so much longer than the gateway's own time for running requests.
STOP_MARGIN_S = 15.0
READY_S = 60
MEMORY_MIB = 200
#: What an admin has no reason to change.
FIXED = {
    "connect_timeout_s": 5,
    "header_timeout_s": 30,
    "idle_timeout_s": 75,
    "eject": {"server_errors": 3, "for_s": 10},
    "backend_key_file": "",
}
HEALTH = {"timeout_s": 2, "failures": 3}
ERROR_BYTES = 8192


def session(service: str) -> str:
    """Name of its session or unit."""
    return f"{service}-gateway"


def wanted(service: Mapping[str, Any]) -> bool:
    """Has this service of the intent a gateway?"""
    return bool(service["gateway"]["kind"] != NONE)


def ports(service: Mapping[str, Any]) -> List[int]:
    """Ports of its gateway: the entry, then that of the admin; none without a gateway."""
    if not wanted(service):
        return []
    entry = int(service["gateway"]["port"])
    return [entry, int(service["gateway"]["admin_port"]) or entry + 1]


def settings(service: Mapping[str, Any]) -> Dict[str, Any]:
    """What is written down of a service's gateway: all that the inventory says, with the ports that follow; {} for none."""
    if not wanted(service):
        return {}
    entry, admin = ports(service)
    return {**service["gateway"], "name": name(service["name"]), "port": entry, "admin_port": admin}


def plan(
    asked: Mapping[str, Any], service: Mapping[str, Any], intent: Mapping[str, Any], survey: Mapping[str, Any]
) -> Tuple[Dict[str, Any], List[Dict[str, str]]]:
    """(the gateway in the form of a planned service, findings). `asked`: the service of the intent; `service`: as planned."""
    own, title = settings(asked), name(asked["name"])
    folder = f"{intent['home']}/services/{title}/instance-0"
    spec = _spec(asked, service, own, folder, survey)
    words = [spec["python"], "-m", "modelyard_gateway"]
    words += ["--config", spec["config"]] if own["kind"] == OURS else []
    if own["kind"] != OURS:
        words[2:] = ["modelyard_gateway.proxy", f"{folder}/{PROXY}"]
    environment = {"PYTHONPATH": spec["package_dir"], MARKER: title, INSTANCE_MARKER: "0", "PYTHONUNBUFFERED": "1"}
    said = {**flat({key: own[key] for key in own if key != "name"}), "program": intent["gateway_package"][:12]}
    instance = {
        "name": f"{title}/0",
        "index": 0,
        "port": own["port"],
        "session": session(asked["name"]),
        "cards": [],
        "devices": [],
        "argv": words,
        "environment": environment,
        "settings": said,
        "digest": launch.digest(words, {**environment, **said}, "", ""),
    }
    # A run that is about single instances is not about their gateway.
    only = {title: []} if intent["only"].get(asked["name"]) == [] else intent["only"]
    about = {**intent, "only": only}
    wish = {**asked, "name": title, "topology": {"replicas": 1, "tensor_parallel_size": 1, "min_replicas": 0}}
    seen = survey["services"].get(title)
    decided = actions.decide(wish, [instance], choice.Choice(wish), seen, about, "")
    found = [{**item, "where": f"modelyard_services[{asked['name']}].gateway"} for item in decided.findings]
    planned = {
        **{key: service[key] for key in ("backend", "supervisor", "runtime", "concerned", "logs")},
        "model": {**service["model"], "fingerprint": ""},
        "name": title,
        "of": asked["name"],
        "kind": own["kind"],
        "session": session(asked["name"]),
        "topology": wish["topology"],
        "listen": {"host": own["host"], "base_port": own["port"]},
        "start": {"stagger_s": 0.0, "wave": 1},
        "stop": {"drain_command": "", "drain_s": 0, "memory_s": 0, "linger_s": own["drain_s"] + STOP_MARGIN_S},
        "ready_timeout_s": READY_S,
        "shutdown_timeout_s": float(own["drain_s"]),
        "secured": False,
        "eager_off": [],
        "instances": decided.instances,
        "action": actions.of_service(decided.instances),
        "differences": decided.differences,
        "memory_mib": MEMORY_MIB,
        "instance_memory_mib": MEMORY_MIB,
        "shm_mib": 0,
        "cards": [],
        "asked_cards": [],
        "gateway": spec,
    }
    return planned, found + _missing(own, survey, f"modelyard_services[{asked['name']}].gateway.kind")


def _spec(
    asked: Mapping[str, Any], service: Mapping[str, Any], own: Mapping[str, Any], folder: str, survey: Mapping[str, Any]
) -> Dict[str, Any]:
    """What the templates of roles/gateway and module_utils/gateway/control.py work with."""
    served = [i for i in service["instances"] if i["action"] != actions.STOP]
    kind = own["kind"]
    return {
        **FIXED,
        **{key: own[key] for key in ("kind", "host", "port", "admin_port", "timeout_s", "body_limit_mb", "per_backend_limit")},
        **{key: own[key] for key in ("queue_size", "queue_timeout_s", "hung_after_s", "keys_file", "drain_s")},
        "service": asked["name"],
        # Where the engines' key guards the service: they ask for it below /v1 only.
        "v1_only": bool(service["secured"]) and not own["keys_file"],
        "admin_host": LOOPBACK,
        # On a shared host everybody can reach the loopback: without it any user could take instances out.
        "admin_token_file": f"{folder}/{TOKEN}",
        "backends": [
            {"index": i["index"], "name": i["name"], "host": _reachable(asked), "port": i["port"], "drained": False}
            for i in served
        ],
        "health": {"interval_s": own["health_interval_s"], **HEALTH},
        "log": {**own["log"], "error_bytes": ERROR_BYTES},
        "user": survey["host"]["user"],
        "program": survey["programs"].get(kind, ""),
        "python": f"{service['runtime']['path']}/bin/python",
        "package_dir": f"{folder}/{PACKAGE}",
        "config": f"{folder}/{CONFIG[kind]}",
        "run_dir": f"{folder}/run",
        "log_dir": f"{folder}/logs",
    }


def _reachable(asked: Mapping[str, Any]) -> str:
    """The address at which the gateway finds the instances of its own host."""
    host = str(asked["listen"]["host"])
    return LOOPBACK if host in ("", "0.0.0.0", "::", "localhost") else host


def _missing(own: Mapping[str, Any], survey: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    if own["kind"] == OURS or survey["programs"].get(own["kind"]):
        return []
    what = f"{own['kind']} is not installed on {survey['host']['name']}"
    do = f"install the package {own['kind']} there and leave its own service switched off, or choose the kind {OURS}"
    return [finding("PF-GATEWAY", where, what, do)]
