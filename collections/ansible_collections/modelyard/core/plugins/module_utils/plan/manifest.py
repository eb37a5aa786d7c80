"""The manifest of a service: what was deployed, with every parameter, version and hash. Pure functions.

Schema 2. Parts: the parameters as planned; `instances` with their launch, cards and names; `baseline` of the cards; `versions`
and `files`, which the module manifest_write looks up on the host; `deployed`: who, when and from where. Two manifests are the
same when all but `deployed` is the same, so `deployed` tells of the deploy that changed something.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Tuple

SCHEMA = 2
#: What is written down of a planned service, as it is.
PARAMETERS = (
    *("name", "backend", "supervisor", "session", "topology", "listen", "gateway", "engine", "start", "logs", "stop"),
    *("model", "of", "kind", "ready_timeout_s", "shutdown_timeout_s", "acceptance", "secured", "visibility"),
)
OF_A_MODEL = ("id", "path", "recipe", "source", "merge", "fingerprint")
#: What a plan says about this one run, the estimate or the wish behind it, and not about what is deployed.
OF_THE_RUN = (
    *("action", "differences", "accepted", "advice", "left_out", "concerned", "eager_off"),
    *("metrics", "load", "structured", "stack", "memory"),
    *("memory_mib", "instance_memory_mib", "shm_mib", "cards", "asked_cards"),
)
OF_AN_INSTANCE = ("name", "index", "port", "session", "cards", "devices", "argv", "environment", "settings", "digest")
#: Actions of an instance that this run does not touch: what was written down of it before still holds.
UNTOUCHED = ("leave", "refused")
#: An instance that is taken away.
TAKEN = "stop"
OF_A_RUNTIME = ("name", "path", "ours", "vllm_release", "digest")
#: Not compared: it says which deploy this is, not what is deployed.
NOT_COMPARED = ("deployed",)


def manifest(service: Mapping[str, Any], plan: Mapping[str, Any], survey: Mapping[str, Any], project: str) -> Dict[str, Any]:
    """What the control node knows of it; of a service's key only that there is one (`secured`).

    `project`: the version of this project.
    """
    kept = [instance for instance in service["instances"] if instance.get("action") != TAKEN]
    instances = [{key: instance[key] for key in OF_AN_INSTANCE if key in instance} for instance in kept]
    uses = {name for instance in instances for device in instance.get("devices", ()) for name in _names(device)}
    uses |= {name for index in service["cards"] for name in _names(_card(service["backend"], index, survey))}
    accelerator = survey["accelerators"].get(service["backend"]) or {}
    return {
        "schema": SCHEMA,
        **{key: service[key] for key in PARAMETERS if key in service},
        "model": _model(service["model"]),
        "runtime": {key: service["runtime"][key] for key in OF_A_RUNTIME},
        "instances": instances,
        "untouched": [instance["index"] for instance in kept if instance.get("action") in UNTOUCHED],
        "baseline": {name: entry["memory_mib"] for name, entry in sorted(plan["baseline"].items()) if name in uses},
        "versions": {
            "modelyard": project,
            "kernel": survey["host"]["kernel"],
            "driver": str(accelerator.get("driver", {}).get("loaded", "")),
        },
    }


def _model(wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """Where it came from only when the inventory says so."""
    said = {"source": wanted["source"]["from"], "merge": wanted["merge"]["adapter"]}
    return {key: wanted[key] for key in OF_A_MODEL if said.get(key, True)}


def _card(backend: str, index: int, survey: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((card for card in survey["cards"].get(backend, []) if card["index"] == index), {})


def _names(card: Mapping[str, Any]) -> Tuple[str, ...]:
    return tuple(str(card[key]) for key in ("uuid", "bus_id") if card.get(key))


def merged(before: Any, wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """`wanted` without `untouched`: such instances are as they were written down before, and absent when they were not."""
    old = before.get("instances") if isinstance(before, dict) else None
    known = {instance["index"]: instance for instance in old if _is_instance(instance)} if isinstance(old, list) else {}
    left = wanted["untouched"]
    instances = [known.get(i["index"]) if i["index"] in left else i for i in wanted["instances"]]
    kept = {key: value for key, value in wanted.items() if key != "untouched"}
    return {**kept, "instances": [instance for instance in instances if instance]}


def compared(manifest: Mapping[str, Any], checking: bool = False) -> Dict[str, Any]:
    """The part that decides whether two are the same. `checking`: in check mode nothing was rendered, so files tell nothing."""
    left_out = (*NOT_COMPARED, *(("files",) if checking else ()))
    return {key: value for key, value in manifest.items() if key not in left_out}


def is_same(before: Any, after: Mapping[str, Any], checking: bool = False) -> bool:
    """Is what is deployed the same? `before`: what the file holds, None for none that is whole."""
    return isinstance(before, dict) and compared(before, checking) == compared(after, checking)


def text(manifest: Any, checking: bool = False) -> str:
    """As it is shown in a diff: without what is not compared; empty for None."""
    return json.dumps(compared(manifest, checking), indent=1, sort_keys=True) + "\n" if isinstance(manifest, dict) else ""


def problems(manifest: Any) -> List[str]:
    """Why what a file holds is no manifest that can be compared with anything; people may have edited it."""
    if not isinstance(manifest, dict):
        return ["it holds no JSON object"]
    if manifest.get("schema") != SCHEMA:
        return [f"its schema is {manifest.get('schema')!r}, not {SCHEMA}"]
    groups = ("runtime", "model", "versions", "files", "baseline", "deployed")
    wrong = [key for key in groups if not isinstance(manifest.get(key), dict)]
    wrong += [key for key in ("name", "backend", "supervisor") if not isinstance(manifest.get(key), str)]
    instances = manifest.get("instances")
    if not isinstance(instances, list) or not all(_is_instance(instance) for instance in instances):
        wrong.append("instances")
    return [f"it lacks {', '.join(wrong)}, or holds something else there"] if wrong else []


def _is_instance(instance: Any) -> bool:
    kinds = {"index": int, "argv": list, "environment": dict, "digest": str}
    if not isinstance(instance, dict) or not all(isinstance(instance.get(key), kind) for key, kind in kinds.items()):
        return False
    devices = instance.get("devices", [])
    whole = isinstance(devices, list) and all(_is_device(device) for device in devices)
    return whole and all(isinstance(word, str) for word in instance["argv"])


def _is_device(device: Any) -> bool:
    names = isinstance(device, dict) and all(isinstance(device.get(key, ""), str) for key in ("uuid", "bus_id"))
    return names and isinstance(device.get("index"), int)
