"""Healthy worlds to plan for: intent and survey in the shapes of the action `intent` and the module `survey_host`."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "collections/ansible_collections/modelyard/core/plugins"
MODEL = "/srv/models/tiny-qwen3"
RUNTIME = "/opt/vllm"  # given by runtime_path, so that paths in expectations can be written out


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of `base` with `changes`; groups of keys are merged, everything else is replaced."""
    result = deepcopy(base)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict) and key not in ("engine", "environment"):
            result[key] = merged(result[key], value)
        else:
            result[key] = deepcopy(value)
    return result


def service(**changes: Any) -> dict[str, Any]:
    """A service as an intent has it: every default filled in."""
    base = {
        "name": "tiny-qwen3",
        "backend": "cpu",
        "model": {"id": "tiny-qwen3", "path": MODEL, "recipe": ""},
        "topology": {"replicas": 1, "tensor_parallel_size": 2},
        "cards": ["all"],
        "listen": {"host": "127.0.0.1", "base_port": 8000},
        "engine": {"max_model_len": 4096},
        "environment": {},
        "runtime": "",
        "runtime_path": RUNTIME,
        "supervisor": "plain",
        "ready_timeout_s": 900,
        "acceptance": {"serial_requests": 20, "top_logprobs": 5, "request_timeout_s": 120},
        "key_hash": "",
    }
    return merged(base, changes)


def intent(*services: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What the inventory wants of a host."""
    base = {
        "home": "/opt/modelyard",
        "runtimes_dir": "/opt/modelyard/runtimes",
        "python": "",
        "restart": False,
        "run": "control 4711 1",
        "services": list(services) or [service()],
    }
    return merged(base, changes)


def listing(**changes: Any) -> dict[str, Any]:
    """A whole model folder: 100 MiB of weights in one file."""
    base = {
        "path": MODEL,
        "exists": True,
        "problem": "",
        "files": {
            "config.json": 700,
            "model.safetensors": 104857600,
            "tokenizer.json": 20000,
            "tokenizer_config.json": 300,
        },
        "shards": [],
        "config": {"max_position_embeddings": 32768},
    }
    return merged(base, changes)


def survey(**changes: Any) -> dict[str, Any]:
    """A host with four cores, room for everything, the model, and nothing that runs."""
    base = {
        "host": {
            "name": "box",
            "user": "ops",
            "uid": 1000,
            "kernel": "6.1.0",
            "machine": "x86_64",
            "cores": [0, 1, 2, 3],
            "memory_total_mib": 64000,
            "memory_available_mib": 48000,
            "shm_free_mib": 32000,
        },
        "python": {"path": "/usr/bin/python3", "version": "3.11.7", "short": "3.11"},
        "home_problem": "",
        "home_shared_with": "",
        "disk_path": "/opt/modelyard",
        "disk_free_mib": 100000,
        "card_kind": "CPU core",
        "cards": [{"index": 0}, {"index": 1}, {"index": 2}, {"index": 3}],
        "lock": None,
        "runtimes": {RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": "0.32.0"}},
        "models": {MODEL: listing()},
        "services": {},
        "ports": {},
        "digest": "{}",
    }
    return merged(base, changes)


def running(plan: dict[str, Any], dead: tuple[int, ...] = (), **changes: Any) -> dict[str, Any]:
    """Survey entries of services that run exactly as `plan` wanted them; instances in `dead` have ended."""
    seen = {}
    for planned in plan["services"]:
        instances = [
            {
                "index": instance["index"],
                "alive": instance["index"] not in dead,
                "ready": instance["index"] not in dead,
                "port": instance["port"],
                "leader": {"pid": 500 + instance["index"], "start": 9000},
                "started_at": 1764400000.0,
                "ended": None,
                "log": f"/opt/modelyard/services/{planned['name']}/instance-{instance['index']}/logs/a.log",
                "digest": instance["digest"],
                "launch": {
                    "argv": list(instance["argv"]),
                    "environment": dict(instance["environment"]),
                    "model": planned["model"]["fingerprint"],
                },
            }
            for instance in planned["instances"]
        ]
        found = {"instances": instances, "leftovers": [], "suspects": [], "accepted": True, "pids": [500]}
        seen[planned["name"]] = merged(found, changes)
    return seen
