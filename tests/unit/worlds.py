"""Healthy worlds to plan for: intent and survey in the shapes of the action `intent` and the module `survey_host`."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import planner

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


NO_GATEWAY = {
    "kind": "none",
    "host": "0.0.0.0",
    "port": 8000,
    "admin_port": 0,
    "timeout_s": 300,
    "body_limit_mb": 64,
    "per_backend_limit": 0,
    "queue_size": 0,
    "queue_timeout_s": 60,
    "health_interval_s": 5.0,
    "hung_after_s": 120,
    "drain_s": 300,
    "keys_file": "",
    "log": {"limit_mb": 50, "keep": 3, "snippet": 200},
}


def model(**changes: Any) -> dict[str, Any]:
    """A model that lies where it is."""
    source = {"from": "", "at": "", "repo": "", "revision": "", "subfolder": "", "include": [], "exclude": [], "by": "host"}
    base = {"id": "tiny-qwen3", "path": MODEL, "recipe": "", "source": source, "merge": {"base": "", "adapter": ""}}
    return merged(base, changes)


def service(**changes: Any) -> dict[str, Any]:
    """A service as an intent has it: every default filled in."""
    base = {
        "name": "tiny-qwen3",
        "backend": "cpu",
        "model": model(),
        "topology": {"preset": "", "replicas": 1, "tensor_parallel_size": 2, "min_replicas": 0},
        "cards": ["all"],
        "card_count": None,
        "listen": {"host": "127.0.0.1", "base_port": 8000},
        "engine": {"max_model_len": 4096},
        "environment": {},
        "runtime": "",
        "runtime_path": RUNTIME,
        "vllm_release": "",
        "stack": {"torch": "", "cuda": ""},
        "supervisor": "plain",
        "start": {"stagger_s": 5.0, "wave": 1},
        "logs": {"cap_mib": 256, "keep": 20},
        "stop": {"drain_command": "", "drain_s": 30, "memory_s": 120},
        "ready_timeout_s": 900,
        "acceptance": {
            "serial_requests": 20,
            "top_logprobs": 5,
            "request_timeout_s": 120,
            "busy_wait_s": 60,
            "also": [],
            "schemas": [],
        },
        "load": {"limits": {"at": 0, "e2e_p95_ms": None, "ttft_p95_ms": None, "error_rate": 0.0, "requests_per_s": None}},
        "gateway": dict(NO_GATEWAY),
        "key_hash": "",
    }
    return merged(base, changes)


def intent(*services: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What the inventory wants of a host."""
    base = {
        "home": "/opt/modelyard",
        "runtimes_dir": "/opt/modelyard/runtimes",
        "python": "",
        "runtimes": [],
        "models": [],
        "models_made": "",
        "wheelhouse": "",
        "wheelhouse_from": {"path": "", "problem": "", "folders": {}},
        "vendor_wheels": "",
        "vendor_files": [],
        "restart": False,
        "cards_expected": {"count": None, "name": ""},
        "checks": {},
        "tool_path": [],
        "sysroot": "/",
        "show": True,
        "run": "control 4711 1",
        "only": {},
        "stack": {"driver": "", "flavour": "auto", "cuda_toolkit": "none", "dtk": "", "vllm": "", "torch": "", "cuda": ""},
        "today": "2026-11",
        "gateway_package": "0123456789abcdef",
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
        "config": {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 32768},
        "tensors": None,
        "damaged": {},
        "absent": {"count": 0, "first": []},
        "template": "{{ messages }}",
        "template_problem": "",
        "adapter": None,
        "staged": None,
        "staging": None,
        "changed": [],
    }
    return merged(base, changes)


def adapter(**changes: Any) -> dict[str, Any]:
    """A whole adapter of two modules, as peft writes it."""
    modules = {name: {"ranks": [8], "A": 28, "B": 28, "layers": [0, 27]} for name in ("q_proj", "v_proj")}
    config = {"base_model_name_or_path": "tiny", "peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"]}
    found = listing(config={}, template="", adapter={"config": config, "modules": modules, "other": [], "problem": ""})
    found["files"] = {"adapter_config.json": 700, "adapter_model.safetensors": 9000}
    return merged(found, changes)


def tensors(gib: float, name: str = "model.layers.*.mlp.up_proj.weight", **changes: Any) -> dict[str, Any]:
    """What headers say of so many GiB of weights in 16 bits, as survey.safetensors.summed has it."""
    count = int(gib * 2**30)
    base = {"name": name, "dtype": "BF16", "dims": 2, "count": 40, "numbers": count // 2, "bytes": count, "beyond": False}
    return {**base, **changes}


def survey(**changes: Any) -> dict[str, Any]:
    """A host with four cores, room for everything, the model, and nothing that runs."""
    base = {
        "host": {
            "name": "box",
            "user": "ops",
            "uid": 1000,
            "kernel": "6.1.0",
            "machine": "x86_64",
            "glibc": "2.36",
            "boot_id": "0e7c5296",
            "cores": [0, 1, 2, 3],
            "memory_total_mib": 64000,
            "memory_available_mib": 48000,
            "shm_free_mib": 32000,
        },
        "python": {"path": "/usr/bin/python3", "version": "3.11.7", "short": "3.11"},
        "pythons": {"/usr/bin/python3.11": "3.11"},
        "home_problem": "",
        "home_shared_with": "",
        "disk_path": "/opt/modelyard",
        "disk_free_mib": 100000,
        "cards": {"cpu": [{"index": 0}, {"index": 1}, {"index": 2}, {"index": 3}]},
        "accelerators": {},
        "processes": {},
        "zombies": [],
        "stuck": [],
        "shm": {"total_mib": 32100, "free_mib": 32000, "segments": []},
        "sessions": [],
        "units": [],
        "supervisors": {"sessions": []},
        "programs": {"g++": "/usr/bin/g++"},
        "listeners": [],
        "environment": {"proxies": [], "visibility": []},
        "stack": {"system": {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12 (bookworm)"}, "glibc": "2.36"},
        "limits": {
            "nofile": [1024, 524288],
            "nproc": [250000, 250000],
            "memlock": [65536, 65536],
            "core": [0, -1],
            "pids_max": None,
            "pids_current": None,
            "cgroup_memory_max_mib": None,
        },
        "disks": [],
        "numa": [{"node": 0, "cores": [0, 1, 2, 3], "memory_mib": 64000}],
        "platform": {"container": "", "virtual": "", "wsl": False, "pid1": "systemd", "pid1_reaps": True},
        "kernel_log": {"readable": True, "why": "", "events": [], "lines": []},
        "not_readable": [],
        "raw": [],
        "baseline": {},
        "lock": None,
        "runtimes": {RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": "0.32.0", "contents": {}}},
        "wheelhouse": {"path": "", "problem": "", "folders": {}},
        "vendor_wheels": {"path": "", "problem": "", "files": {}},
        "libraries": {"libnuma.so.1": [""]},
        "models": {MODEL: listing()},
        "services": {},
        "ports": {},
        "digest": "{}",
    }
    return merged(base, changes)


def card(index: int, /, **changes: Any) -> dict[str, Any]:
    """An idle RTX 4090 with 48 GB, whose minor number is its index."""
    base = {
        "index": index,
        "uuid": f"GPU-{index:08d}-aaaa-bbbb-cccc-dddddddddddd",
        "name": "NVIDIA GeForce RTX 4090",
        "bus_id": f"0000:{index + 1:02x}:00.0",
        "minor": index,
        "memory_total_mib": 49140,
        "memory_used_mib": 4,
        "utilization_pct": 0.0,
        "health": "ok",
        "compute_mode": "Default",
        "mig": False,
        "numa_node": 0,
        "driver_version": "580.95.05",
        "device_files": [device_file(f"/dev/nvidia{index}")],
        "processes": [],
        "holders": [],
    }
    return merged(base, changes)


def noted(index: int, bus_id: str, **changes: Any) -> dict[str, Any]:
    """What a deploy has written down of a card in cards.json."""
    return {"memory_mib": 4, "index": index, "bus_id": bus_id, "backend": "nvidia", **changes}


def device_file(path: str, **changes: Any) -> dict[str, Any]:
    """A device file that this user may open."""
    return merged({"path": path, "state": "ok", "owner": "root", "group": "root", "mode": "0666"}, changes)


def process(pid: int, **changes: Any) -> dict[str, Any]:
    """A living process of somebody else."""
    base = {
        "pid": pid,
        "start": 5000 + pid,
        "ppid": 1,
        "user": "eve",
        "uid": 1001,
        "state": "S",
        "comm": "python",
        "command": "python train.py",
        "threads": [{"tid": pid, "state": "S", "comm": "python"}],
        "thread_count": 1,
        "cgroup": "/user.slice",
        "unit": "",
        "container": "",
        "marker": "",
        "cwd": "/home/eve",
        "devices": [],
        "stack": None,
        "other_namespace": False,
    }
    return merged(base, changes)


def nvidia(*cards: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A survey of a host with NVIDIA cards: `cards`, or two idle ones; the rest as `survey`."""
    found = list(cards) or [card(0), card(1)]
    seen = {
        "tool": {"path": "/usr/bin/nvidia-smi", "state": "ok", "seconds": 0.3, "said": ""},
        "driver": {"loaded": "580.95.05", "on_disk": "580.95.05", "library": "580.95.05", "flavour": "open"},
        "on_bus": [
            {"bus_id": c["bus_id"], "vendor": "10de", "device": "2684", "class": "0300", "numa_node": 0, "driver": "nvidia"}
            for c in found
        ],
        "errors": [],
        "links": {},
        "process_list": "none",
        "shared_files": [device_file("/dev/nvidiactl"), device_file("/dev/nvidia-uvm")],
        "shared_holders": [],
        "unplaced_processes": [],
    }
    host = survey(cards={"nvidia": found}, accelerators={"nvidia": seen})
    return merged(host, changes)


def gpu_service(**changes: Any) -> dict[str, Any]:
    """A service over two NVIDIA cards that it names, from an environment that is there."""
    return service(**{"name": "qwen3-14b-32k", "backend": "nvidia", "cards": ["0", "1"], **changes})


def dcu(index: int, /, **changes: Any) -> dict[str, Any]:
    """An idle K100_AI; card0 of /dev/dri is the display of the board, as is common."""
    base = {
        "uuid": f"0x{index:016x}",
        "name": "K100_AI",
        "bus_id": f"0000:{index * 0x10 + 0x0F:02x}:00.0",
        "minor": index + 1,
        "memory_total_mib": 65520,
        "memory_used_mib": 2,
        "compute_mode": "",
        "driver_version": "6.2.26-V1.5.0",
        "device_files": [
            device_file(f"/dev/dri/card{index + 1}", group="video", mode="0660"),
            device_file(f"/dev/dri/renderD{index + 128}", group="render", mode="0660"),
        ],
    }
    return card(index, **{**base, **changes})


def hygon(*cards: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A survey of a host with Hygon DCUs: `cards`, or eight idle ones; the rest as `survey`."""
    found = list(cards) or [dcu(index) for index in range(8)]
    seen = {
        "tool": {"path": "/opt/hyhal/bin/hy-smi", "state": "ok", "seconds": 0.9, "said": ""},
        "driver": {"loaded": "6.2.26-V1.5.0", "on_disk": "6.2.26-V1.5.0", "library": "", "flavour": ""},
        "on_bus": [
            {"bus_id": c["bus_id"], "vendor": "1d94", "device": "6210", "class": "0b40", "numa_node": 0, "driver": "hydcu"}
            for c in found
        ],
        "errors": [],
        "links": {},
        "process_list": "none",
        "shared_files": [
            device_file("/dev/kfd", group="render", mode="0660"),
            device_file("/dev/mkfd", group="render", mode="0660"),
        ],
        "shared_holders": [],
        "unplaced_processes": [],
    }
    return merged(survey(cards={"hygon": found}, accelerators={"hygon": seen}), changes)


def with_dcus(seen: dict[str, Any]) -> dict[str, Any]:
    """The host `seen` with eight idle DCUs beside its other cards."""
    other = hygon()
    return merged(seen, {key: {"hygon": other[key]["hygon"]} for key in ("cards", "accelerators")})


def with_graphics(seen: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The host `seen` with the graphics unit of an AMD processor beside its cards, and no rocm-smi; `changes` to that unit."""
    unit = {"vendor": "1002", "class": "0300", "bus_id": "0000:c5:00.0", "device": "164e", "numa_node": 0, "driver": "amdgpu"}
    drawn = card(0, index=None, uuid="", name="", bus_id=unit["bus_id"], health="unknown", memory_used_mib=None)
    found = {
        "tool": {"path": "", "state": "missing", "seconds": 0.0, "said": "there is no rocm-smi"},
        "driver": {"loaded": "", "on_disk": "", "library": "", "flavour": ""},
        "on_bus": [unit],
        "errors": [],
        "links": {},
        "process_list": "unknown",
        "shared_files": [device_file("/dev/kfd", state="denied", group="render", mode="0660")],
        "shared_holders": [],
        "unplaced_processes": [],
    }
    return merged(seen, {"cards": {"amd": [merged(drawn, changes)]}, "accelerators": {"amd": found}})


def dcu_service(**changes: Any) -> dict[str, Any]:
    """Eight instances with a DCU each, which the service names, from an environment that is there."""
    base = {"name": "minicpm-v-4.5", "backend": "hygon", "topology": {"replicas": 8, "tensor_parallel_size": 1}}
    base["cards"] = [str(index) for index in range(8)]
    return service(**merged(base, changes))


def kept(*wanted: dict[str, Any], seen: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The survey `seen` with the services `wanted` running on it as they would be planned there."""
    plan = planner.plan(intent(*wanted), seen)
    assert plan["changes"] == [service["name"] for service in wanted], "the world to start from must be healthy"
    return {**deepcopy(seen), "services": running(plan, **changes)}


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
                "devices": deepcopy(instance["devices"]),
                "supervisor": planned["supervisor"],
                "session": instance["session"],
                "accepted": instance["index"] not in dead,
                "accepted_at": 1764400100.0 if instance["index"] not in dead else None,
                "launch": {
                    "argv": list(instance["argv"]),
                    "environment": dict(instance["environment"]),
                    "model": planned["model"]["fingerprint"],
                },
            }
            for instance in planned["instances"]
            if instance["action"] != "leave"
        ]
        found = {"instances": instances, "leftovers": [], "suspects": [], "accepted": True, "pids": [500]}
        seen[planned["name"]] = merged(found, changes)
    return seen
