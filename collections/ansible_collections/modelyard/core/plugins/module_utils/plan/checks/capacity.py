"""Main memory, disk and shared memory of the host against all that the plan would add to it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

DISK_SPARE_MIB = 1024
MEMORY_SPARE_MIB = 1024  # the first request compiles kernels
#: Less than this in segments that nobody holds is not worth a word.
STALE_MIB = 64


def findings(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """Instances that run already are not counted again."""
    fresh = [(s, len(lookup.starting(s, survey))) for s in services]
    fresh = [(service, count) for service, count in fresh if count]
    return [*_memory(fresh, survey), *_disk(services, survey), *_shm(fresh, survey)]


def _memory(fresh: Sequence[Tuple[Mapping[str, Any], int]], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    """`fresh`: services with the number of instances that are to be started and do not run."""
    host = survey["host"]
    need = sum(service["instance_memory_mib"] * count for service, count in fresh)
    limit = survey["limits"]["cgroup_memory_max_mib"]
    free = host["memory_available_mib"] if limit is None else min(host["memory_available_mib"], limit)
    if not need or need + MEMORY_SPARE_MIB <= free:
        return []
    bound = f" (the control group allows {limit})" if limit is not None and limit < host["memory_available_mib"] else ""
    what = (
        f"about {need} MiB of main memory are needed for {', '.join(service['name'] for service, _ in fresh)}, "
        f"{free} MiB are free of {host['memory_total_mib']}{bound}"
    )
    return [finding("PF-MEMORY", host["name"], what, "free memory, lower kv_cache_memory_bytes, or start fewer ranks")]


def _disk(services: Sequence[Mapping[str, Any]], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    missing = {s["runtime"]["path"]: s["runtime"]["disk_mib"] for s in services if not s["runtime"]["present"]}
    disk = sum(missing.values())
    if not disk or survey["disk_free_mib"] is None or disk + DISK_SPARE_MIB <= survey["disk_free_mib"]:
        return []
    where = f"{survey['host']['name']}:{survey['disk_path']}"
    what = f"making the runtime needs about {disk} MiB, {survey['disk_free_mib']} MiB are free"
    return [finding("PF-DISK", where, what, "free space there, or set modelyard_runtimes_dir to a larger disk")]


def _shm(fresh: Sequence[Tuple[Mapping[str, Any], int]], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    where = f"{survey['host']['name']}:/dev/shm"
    stale = [s for s in survey["shm"]["segments"] if s["holders"] == []]
    unknown = [s for s in survey["shm"]["segments"] if s["holders"] is None]
    amount = sum(s["mib"] for s in stale)
    need = sum(service["shm_mib"] * count for service, count in fresh)
    found = []
    if need > survey["host"]["shm_free_mib"]:
        free = survey["host"]["shm_free_mib"]
        what = f"{free} MiB are free, the engine's processes need at least {need} MiB to talk to each other"
        found.append(finding("PF-SHM", where, what, "remove stale segments that nobody holds, or mount /dev/shm larger"))
    if amount >= STALE_MIB:
        owners = ", ".join(sorted({s["user"] for s in stale}))
        examples = ", ".join(s["name"] for s in stale[:3])
        what = f"{len(stale)} segments of engines ({amount:.0f} MiB, of {owners}) that no process holds, for example {examples}"
        if unknown:
            what += f"; of {len(unknown)} more it cannot be told who holds them"
        do = "their owner removes them; teardown.yml removes those of a service of this project"
        found.append(finding("PF-SHM-STALE", where, what, do))
    return found
