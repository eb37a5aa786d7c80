"""The verdict on what fits what (plan/stack) as findings: one id for each rule, at the host or at the service's environment."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import CATALOGUE, ORDER, finding, noted

Findings = List[Dict[str, str]]
#: Rule -> id of the finding.
IDS = {
    "gpu-needs-driver": "PF-STACK-GPU-DRIVER",
    "gpu-dropped": "PF-STACK-GPU-DROPPED",
    "module-flavour": "PF-STACK-FLAVOUR",
    "wheel-needs-driver-hard": "PF-STACK-CUDA-DRIVER",
    "wheel-needs-driver-soft": "PF-STACK-CUDA-PTX",
    "vllm-torch-same-cuda": "PF-STACK-CUDA-MIX",
    "wheel-has-arch": "PF-STACK-NO-KERNELS",
    "vllm-needs-card": "PF-STACK-CARD-FLOOR",
    "dcu-runs-vllm": "PF-STACK-CARD-FLOOR",
    "card-unknown": "PF-STACK-CARD-UNKNOWN",
    "build-for-backend": "PF-STACK-BUILD",
    "wheel-of-vendor": "PF-STACK-BUILD",
    "vllm-needs-python": "PF-STACK-PYTHON",
    "wheel-python": "PF-STACK-PYTHON",
    "wheel-needs-glibc": "PF-STACK-GLIBC",
    "vllm-needs-transformers": "PF-STACK-PINS",
    "vllm-pins-torch": "PF-STACK-PINS",
    "torch-needs-nccl": "PF-STACK-PINS",
    "toolkit-same-cuda": "PF-STACK-TOOLKIT",
    "forward-compat-not-for-geforce": "PF-STACK-COMPAT",
    "fabric-manager-exact": "PF-STACK-FABRIC",
    "fabric-manager": "PF-STACK-FABRIC",
    "dtk-needs-driver": "PF-STACK-DTK",
    "wheel-needs-dtk": "PF-STACK-DTK",
    "dtk-environment": "PF-STACK-DTK-ENV",
    "branch-ended": "PF-STACK-ENDED",
    "driver-drift": "PF-STACK-DRIFT",
    "nouveau": "PF-STACK-NOUVEAU",
    "vfio-bound": "PF-STACK-VFIO",
    "secure-boot": "PF-STACK-SECURE-BOOT",
    "no-headers": "PF-STACK-HEADERS",
    "foreign-driver": "PF-STACK-FOREIGN",
    "mixed-packages": "PF-STACK-MIXED",
    "next-kernel": "PF-STACK-NEXT-KERNEL",
    "updates": "PF-STACK-UPDATES",
    "persistence": "PF-STACK-PERSISTENCE",
}


def findings(verdict: Mapping[str, Any], survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> Findings:
    """`verdict`: of plan/stack/verdict.py. What runs as wanted has shown that it works: of it everything is only noted."""
    running = {s["name"] for s in services if not lookup.starting(s, survey)}
    host = survey["host"]["name"]
    found: Findings = []
    for one in verdict["sets"]:
        place = f"{host}:{one['environment'] or one['service'] or one['backend']}"
        own = [_finding(reason, place, one["right"]) for reason in one["reasons"]]
        found += noted(own) if one["service"] in running else own
    own = [_finding(reason, f"{host}:nvidia driver", []) for reason in verdict["reasons"]]
    found += noted(own) if services and len(running) == len(services) else own
    return _once(found)


def _finding(reason: Mapping[str, str], place: str, right: Sequence[Mapping[str, Any]]) -> Dict[str, str]:
    words = [("an admin: " if one["needs_root"] else "without root: ") + one["words"] for one in right]
    more = f". Nearest right set: {'; '.join(words)}" if words and reason["severity"] == "refuse" else ""
    id = IDS[reason["rule"]]
    # A rule may be surer or less sure than its id: an inference only warns.
    weaker = max(CATALOGUE[id], reason["severity"], key=lambda severity: ORDER[severity])
    severity = reason["severity"] if id == "PF-STACK-HEADERS" else weaker
    return {**finding(id, place, reason["what"], reason["do"] + more), "severity": severity}


def _once(found: Findings) -> Findings:
    """What is true of the host stands there once, whatever the number of services that it concerns."""
    kept: Dict[Any, Dict[str, str]] = {}
    for item in found:
        key = (item["id"], item["what"])
        if key not in kept or ORDER[item["severity"]] < ORDER[kept[key]["severity"]]:
            kept[key] = item
    return list(kept.values())
