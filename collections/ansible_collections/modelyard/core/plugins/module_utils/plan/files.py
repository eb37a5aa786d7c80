"""What a deploy writes into the folders of services, as data: from the plan to service.json, instance.json, units, client.env.

Pure: the plan has decided everything, this only says where it is written.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import unit
from ansible_collections.modelyard.core.plugins.module_utils.process.identity import INSTANCE_MARKER, MARKER

#: An instance with one of these actions keeps the files that it was started with.
UNTOUCHED = ("refused", "leave", "stop")
#: Instances with these actions are there before anything is restarted.
WAITED = ("start", "keep")
#: Such an instance gets its files when its turn has come: one that is never reached must not come back with them after a crash.
ROLLED = "restart"
SYSTEMD = ("systemd", "systemd_user")
COMMANDS = ("start", "stop", "status")
#: For those who call a service from the host it runs on: they get no card and few threads, whatever the service has.
CLIENT = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}


class Host(NamedTuple):
    """Where the files go. `user`: whom the home belongs to; `python`: the interpreter that the scripts call first."""

    home: str
    runtimes_dir: str
    sysroot: str
    tool_path: Sequence[str]
    user: str
    python: str
    version: str
    stop_margin_s: float
    backends: Mapping[str, Any]


def request(service: Mapping[str, Any], instance: Mapping[str, Any]) -> Dict[str, Any]:
    """instance.json: what is to be started, and what a later survey compares with."""
    return {
        "schema": 1,
        "service": service["name"],
        "index": int(instance["index"]),
        "name": instance["name"],
        "host": service["listen"]["host"],
        "port": int(instance["port"]),
        "digest": instance["digest"],
        "runtime": service["runtime"]["path"],
        "backend": service["backend"],
        "supervisor": service["supervisor"],
        "session": instance["session"],
        "shutdown_timeout_s": float(service["shutdown_timeout_s"]),
        "devices": [dict(device) for device in instance["devices"]],
        "logs": dict(service["logs"]),
        "marker": {MARKER: service["name"], INSTANCE_MARKER: str(instance["index"])},
        **({"entry": True} if "of" in service else {}),  # a gateway: its keeper holds the port
        "launch": {
            "argv": list(instance["argv"]),
            "environment": dict(instance["environment"]),
            "model": service["model"]["fingerprint"],
            **({"settings": dict(instance["settings"])} if "settings" in instance else {}),
        },
    }


def stop(service: Mapping[str, Any], margin_s: float) -> Dict[str, Any]:
    """How this service is stopped."""
    return {"grace_s": float(service["shutdown_timeout_s"]) + margin_s, **service["stop"]}


def service_file(service: Mapping[str, Any], host: Host) -> Dict[str, Any]:
    """service.json."""
    known = {name: dict(entry) for name, entry in host.backends.items() if name == service["backend"]}
    return {
        "schema": 1,
        "service": service["name"],
        "home": host.home,
        "sysroot": host.sysroot,
        "tool_path": list(host.tool_path),
        "python": host.python,
        "backend": service["backend"],
        "backends": known,
        "runtimes_dir": host.runtimes_dir,
        "instances": [int(i["index"]) for i in service["instances"] if i["action"] != "stop"],
        "start": dict(service["start"]),
        "eager_off": list(service["eager_off"]),
        "stop": stop(service, host.stop_margin_s),
        "listen": dict(service["listen"]),
        "model_id": service["model"]["id"],
        "secured": bool(service["secured"]),
        "ready_timeout_s": int(service["ready_timeout_s"]),
        "version": host.version,
    }


def client_env(service: Mapping[str, Any], folder: str) -> Dict[str, Any]:
    """What a client of the service needs to know: {names and values, comment}."""
    address = service["listen"]["host"]
    shown = "127.0.0.1" if address in ("", "0.0.0.0", "::") else address
    shown = f"[{shown}]" if ":" in shown else shown
    urls = [f"http://{shown}:{i['port']}/v1" for i in service["instances"] if i["action"] != "stop"]
    if service.get("gateway"):
        urls = [f"http://127.0.0.1:{service['gateway']['port']}/v1"]
    values = {"OPENAI_BASE_URL": urls[0] if urls else "", "MODELYARD_BASE_URLS": " ".join(urls)}
    values["MODELYARD_MODEL"] = service["model"]["id"]
    if service["secured"]:
        values["MODELYARD_API_KEY_FILE"] = f"{folder}/api_key"
    return {**values, **CLIENT}


def scripts(service: Mapping[str, Any]) -> Dict[str, List[Dict[str, str]]]:
    """{wanted: [{name, command}], stale: [...]}: the names differ, so that it is seen whether there are several instances."""
    several = int(service["topology"]["replicas"]) > 1
    one = [{"name": f"{command}.sh", "command": command} for command in COMMANDS]
    many = [{"name": f"{command}_cluster.sh", "command": command} for command in COMMANDS]
    return {"wanted": many if several else one, "stale": one if several else many}


def of_service(service: Mapping[str, Any], host: Host) -> Dict[str, Any]:
    """All files of one service, and by instance; instances that this run does not touch are left out."""
    folder = f"{host.home}/services/{service['name']}"
    listed = []
    for instance in service["instances"]:
        done = instance["action"]
        if done in UNTOUCHED:
            continue
        wanted, place = request(service, instance), f"{folder}/instance-{instance['index']}"
        entry = {"name": instance["name"], "index": int(instance["index"]), "dir": place, "request": wanted, "unit": ""}
        entry.update(plan=dict(instance), action=done, unit_text="")
        if service["supervisor"] in SYSTEMD:
            text = unit.text(wanted, stop(service, host.stop_margin_s), place, host.python, host.user)
            entry.update(unit=unit.name(wanted["session"]), unit_text=text)
        listed.append(entry)
    made = {
        "name": service["name"],
        "dir": folder,
        "secured": bool(service["secured"]),
        "runtime": service["runtime"]["path"],
        "service_file": service_file(service, host),
        "client_env": client_env(service, folder),
        "scripts": scripts(service),
        "instances": listed,
        "started": _named(listed, "start"),
        "rolled": [_named(batch, ROLLED) for batch in _batches([e for e in listed if e["action"] == ROLLED])],
        "waited": [entry["index"] for entry in listed if entry["action"] in WAITED],
        "removed": [int(i["index"]) for i in service["instances"] if i["action"] == "stop"],
    }
    by_index = {entry["index"]: entry for entry in listed}
    for one in (one for batch in made["rolled"] for one in batch):
        one["texts"] = _of_instance(_own(made), by_index[one["index"]])
    return {**made, "texts": texts(made)}


def _named(listed: Sequence[Mapping[str, Any]], action: str) -> List[Dict[str, Any]]:
    """Those with an action, as the modules that start them want them."""
    return [{"name": e["name"], "index": e["index"], "digest": e["request"]["digest"]} for e in listed if e["action"] == action]


def _batches(listed: Sequence[Dict[str, Any]]) -> List[List[Dict[str, Any]]]:
    """One instance each, as a rule. Those that get a port or a card that another of them still has are stopped with that one."""
    batches: List[List[Dict[str, Any]]] = []
    for entry in listed:
        tied = [b for b in batches if any(_in_the_way(entry, other) or _in_the_way(other, entry) for other in b)]
        batches = [b for b in batches if b not in tied] + [[e for b in tied for e in b] + [entry]]
    return batches


def _in_the_way(holder: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    held, wanted = holder["plan"]["held"], other["request"]
    cards = ({d.get("uuid") or d.get("bus_id") or d["index"] for d in found["devices"]} for found in (held, wanted))
    return held["port"] == wanted["port"] or bool(set.intersection(*cards))


def texts(made: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The files of a service as the action write_files takes them; each template sees `service_item`."""
    folder, own = made["dir"], _own(made)
    values: Dict[str, Any] = {"service_item": own}
    found: List[Dict[str, Any]] = [
        {"path": f"{folder}/service.json", "mode": "0644", "content": _json(made["service_file"])},
        {"path": f"{folder}/client.env", "mode": "0644", "template": "client.env.j2", "vars": values, "shell": True},
    ]
    for script in made["scripts"]["wanted"]:
        values = {"service_item": [own, script]}
        path = f"{folder}/{script['name']}"
        found.append({"path": path, "mode": "0755", "template": "by_hand.sh.j2", "vars": values, "shell": True})
    found += [{"path": f"{folder}/{script['name']}", "state": "absent"} for script in made["scripts"]["stale"]]
    found.append({"path": f"{folder}/modelyard.pyz", "mode": "0755", "program": "by_hand"})
    if not made["secured"]:
        found.append({"path": f"{folder}/api_key", "state": "absent", "secret": True})
    return found + [text for entry in made["instances"] if entry["action"] != ROLLED for text in _of_instance(own, entry)]


def _own(made: Mapping[str, Any]) -> Dict[str, Any]:
    """Only what templates need: Ansible walks through all of it for each file."""
    python = made["service_file"]["python"]
    return {**{key: made[key] for key in ("name", "dir", "runtime", "secured", "client_env")}, "service_file": {"python": python}}


def _of_instance(own: Mapping[str, Any], instance: Mapping[str, Any]) -> List[Dict[str, Any]]:
    place, values = instance["dir"], {"service_item": [own, instance]}
    found: List[Dict[str, Any]] = [
        {"path": f"{place}/launch.sh", "mode": "0755", "template": "launch.sh.j2", "vars": values, "shell": True},
        {"path": f"{place}/env", "mode": "0644", "template": "env.j2", "vars": values, "shell": True},
        {"path": f"{place}/instance.json", "mode": "0644", "content": _json(instance["request"])},
    ]
    if instance["unit"]:
        found.append({"path": f"{place}/{instance['unit']}", "mode": "0644", "content": instance["unit_text"]})
    return found


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=4, sort_keys=True) + "\n"
