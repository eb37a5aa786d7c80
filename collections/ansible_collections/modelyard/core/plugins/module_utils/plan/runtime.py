"""Which runtime a service gets: one of ours by its lock, or an environment that is on the host already. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id


def _runtimes_for(backend: str, where: str) -> str:
    """What an admin can set `runtime` to."""
    names = [name for name in tables.runtime_names() if getattr(tables.runtime(name), "variant", "") == backend]
    return f"set {where}.runtime to {' or '.join(names)}" if names else f"name an environment with {where}.runtime_path"


def choose(
    wanted: Mapping[str, Any],
    backend: Mapping[str, Any],
    intent: Mapping[str, Any],
    survey: Mapping[str, Any],
    where: str,
) -> Tuple[Dict[str, Any], List[Dict[str, str]]]:
    """(name, path, release and size of the runtime, findings)."""
    name = wanted["runtime"] or backend["runtime"]
    known = tables.runtime(name) if name else None
    findings: List[Dict[str, str]] = []
    if wanted["runtime"] and known is None:
        known = tables.runtime(backend["runtime"]) if backend["runtime"] else None
        what = f"there is no runtime {name}"
        findings.append(finding("PL-RUNTIME-UNKNOWN", f"{where}.runtime", what, _runtimes_for(wanted["backend"], where)))
    elif known is not None and known.variant != wanted["backend"]:
        what = f"the runtime {name} is for the backend {known.variant}, not for {wanted['backend']}"
        findings.append(finding("PL-RUNTIME-UNKNOWN", f"{where}.runtime", what, _runtimes_for(wanted["backend"], where)))
    elif known is None and not wanted["runtime_path"]:
        what = f"this version makes no runtime for the backend {wanted['backend']}"
        do = f"name a Python environment with vLLM {backend['vllm_release']} that is on the host with {where}.runtime_path"
        findings.append(finding("PL-RUNTIME-NONE", f"{where}.runtime", what, do))
    if known is None:
        known = tables.Runtime("", "", "", backend["vllm_release"], (), (), None, (), 0)
    python = survey["python"]
    made = f"{intent['runtimes_dir']}/{runtime_id(known.name, known.digest, python['version'])}" if known.name else ""
    path = wanted["runtime_path"] or made
    seen = survey["runtimes"].get(path) or {}
    if seen.get("error"):
        # A half-made one of ours is made again; one that is whole, or somebody else's, is not touched.
        if seen.get("complete") or wanted["runtime_path"]:
            findings.append(
                finding(
                    "PF-RUNTIME-BROKEN",
                    f"{survey['host']['name']}:{path}",
                    f"this runtime cannot import vllm: {seen['error']}",
                    "name another one with runtime_path"
                    if wanted["runtime_path"]
                    else "something changed it after it was made: remove that folder, and the next deploy makes it again",
                )
            )
    elif wanted["runtime_path"] and not seen.get("exists"):
        findings.append(
            finding(
                "PF-RUNTIME-BROKEN",
                f"{survey['host']['name']}:{path}",
                "there is no Python environment with vllm in this folder",
                f"correct {where}.runtime_path" + (" or leave it out" if backend["runtime"] else ""),
            )
        )
    found = str(seen.get("vllm", ""))
    if wanted["runtime_path"] and found and found.partition("+")[0] != known.vllm_release:
        findings.append(
            finding(
                "PF-RUNTIME-RELEASE",
                f"{survey['host']['name']}:{path}",
                f"it holds vLLM {found}; the options of {wanted['name']} were planned for {known.vllm_release}",
                f"use an environment with vLLM {known.vllm_release}"
                + (" or leave runtime_path out" if backend["runtime"] else ""),
            )
        )
    if known.name and not wanted["runtime_path"] and not seen.get("complete") and python["short"] not in known.pythons:
        findings.append(
            finding(
                "PF-PYTHON",
                f"{survey['host']['name']}:{python['path']}",
                f"it is Python {python['version']}; the runtime {known.name} exists for {', '.join(known.pythons)}",
                "set modelyard_python to a right one on this host",
            )
        )
    return (
        {
            "name": known.name,
            "path": path,
            "ours": not wanted["runtime_path"],
            "vllm_release": known.vllm_release,
            "present": bool(seen.get("complete") or wanted["runtime_path"] or not known.name),
            "digest": known.digest,
            "disk_mib": known.disk_mib,
        },
        findings,
    )
