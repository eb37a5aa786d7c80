"""Is the compiler there that PyTorch calls while an engine runs? Only CPUs want one of the host."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

#: With it nothing is compiled at run time, if the model is not either (enforce_eager).
WITHOUT = "TORCH_COMPILE_DISABLE"


def findings(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """For services with something to start. An engine without one starts in eager mode, and dies of its first logprobs."""
    found = []
    for service in services:
        compiler = str(tables.backend(service["backend"]).get("compiler", ""))
        if not compiler or survey["programs"].get(compiler) or not lookup.starting(service, survey):
            continue
        environment: Mapping[str, str] = service["instances"][0]["environment"]
        eager = service["engine"].get("enforce_eager") is True
        if environment.get("CXX") or (environment.get(WITHOUT) == "1" and eager):
            continue
        when = "with the first request for logprobs" if eager else "at its start"
        what = (
            f"there is no {compiler}, which PyTorch calls on this kind of cards: the engine of {service['name']} would die {when}"
        )
        do = f"an admin installs {compiler}. Without root: engine.enforce_eager: true and environment: {{{WITHOUT}: '1'}}"
        found.append(finding("PF-COMPILER", survey["host"]["name"], what, do))
    return found
