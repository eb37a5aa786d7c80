"""Hosts to judge the stacks of: an Ubuntu server with two RTX 4090 whose driver is well kept, and what can be wrong with it."""

from __future__ import annotations

from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from unit import worlds

Findings = list[dict[str, str]]
UBUNTU = {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"}
KERNEL = {"release": "6.8.0-88-generic", "running": True, "next": True, "headers": True, "module": "580.95.05"}
UTILS = {"name": "nvidia-utils-580-server", "version": "580.95.05-0ubuntu0.24.04.2", "origin": "distribution", "held": True}


def package(name, version="580.95.05-0ubuntu0.24.04.2", **changes):
    return {**UTILS, "name": name, "version": version, **changes}


def host(*packages, **changes):
    """survey.stack of an Ubuntu server whose driver is well kept."""
    base = {
        "system": UBUNTU,
        "glibc": "2.39",
        "kernels": [KERNEL],
        "secure_boot": False,
        "nouveau": {"loaded": False, "blacklisted": True},
        "packages": {"manager": "dpkg", "why": "", "found": list(packages) or [UTILS]},
        "installer": "",
        "containerised": False,
        "vendor_image": "",
        "switches": 0,
        "fabric_manager": "",
        "fabric_manager_runs": False,
        "persistenced": True,
        "updates": {"service": "", "blacklist": []},
        "reboot_required": False,
        "boot_free_mib": 2000,
        "compat": [],
        "cuda_toolkit": "",
        "dtk": {"path": "", "version": "", "beside": {}, "environment": {}, "problem": ""},
    }
    return {**base, **changes}


def gpus(*packages, driver=None, seen=None, **changes):
    """Two RTX 4090 on that server; `driver` and `seen` change what is known of the driver and of the backend."""
    survey = worlds.nvidia(accelerators={"nvidia": {"driver": driver or {}, **(seen or {})}})
    survey["stack"] = host(*packages, **changes)
    return survey


NO_DRIVER = {"loaded": "", "on_disk": "", "library": "", "flavour": ""}
SILENT = {"tool": {"path": "", "state": "missing", "seconds": 0.0, "said": "none"}}


def judged(survey, *services, **wish):
    intent = worlds.intent(*services, stack=wish)
    intent["services"] = list(services)
    plan = planner.plan(intent, survey)
    return plan["stack"], [(f["severity"], f["id"]) for f in plan["findings"] if f["id"].startswith("PF-STACK")]


def contents(**changes):
    base = {
        "python": "3.12.3",
        "packages": {"torch": "2.13.0+cu130", "vllm": "0.32.0", "transformers": "5.19.0"},
        "cuda": "13.0",
        "hip": "",
        "variant": "cuda",
        "archs": ["7.5", "8.0", "8.6", "9.0", "10.0", "12.0"],
        "glibc": "2.28",
    }
    return worlds.merged(base, changes)


def with_environment(survey, **changes):
    survey["runtimes"] = {
        worlds.RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": "0.32.0", "contents": contents(**changes)}
    }
    return survey
