"""Which CUDA toolkit is asked for on a host. On the control node only."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import versions

NVIDIA = "nvidia"
SYSTEM = "system"
#: NVIDIA calls the package alike for the Debian and the RHEL family.
PACKAGE = "cuda-toolkit-{}"


def choose(state: str, intent: Mapping[str, Any], survey: Mapping[str, Any], judged: Mapping[str, Any]) -> Dict[str, Any]:
    """{skip, findings, version, names}. `skip`: in words why nothing is to be done. `judged`: the host's verdict.

    `pip` needs nothing here: a compiler of an environment comes from its lock, and is judged with it.
    """
    host: Mapping[str, Any] = survey.get("stack") or {}
    answer = {"skip": "", "findings": [], "version": "", "names": []}
    kind = str((intent.get("stack") or {}).get("cuda_toolkit") or "none")
    if state == "judged" or kind != SYSTEM:
        return {**answer, "skip": "only judged" if state == "judged" else f"modelyard_stack.cuda_toolkit is {kind}"}
    wanted = sorted({versions.minor(one["cuda"]) for one in judged["sets"] if one["backend"] == NVIDIA} - {""})
    if len(wanted) != 1:
        what = (
            f"its services want several: {', '.join(wanted)}" if wanted else "no service and no modelyard_stack.cuda says which"
        )
        do = "name one with modelyard_stack.cuda; a service of another CUDA takes its compiler from its environment (pip)"
        where = f"{survey['host']['name']}:modelyard_stack.cuda_toolkit"
        return {**answer, "findings": [finding("DR-VERSION", where, f"a CUDA toolkit is to be installed, and {what}", do)]}
    version = wanted[0]
    if versions.minor(str(host.get("cuda_toolkit") or "")) == version:
        return {**answer, "version": version, "skip": f"toolkit {host['cuda_toolkit']} is there"}
    return {**answer, "version": version, "names": [[PACKAGE.format(version.replace(".", "-"))]]}
