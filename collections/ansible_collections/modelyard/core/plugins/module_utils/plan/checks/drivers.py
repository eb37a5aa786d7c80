"""Vendor tools and drivers: are they there, do they answer, do their versions fit each other?"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.versions import same

#: Errors of a tool as the readers name them, that are about the driver and not about one card.
MISMATCH, NOT_LOADED = "version_mismatch", "driver_not_loaded"
REBOOT = "After asking everybody who uses the host, an admin ends the users of the cards and reloads the driver, or reboots"


def findings(survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """For every backend that a service wants; of others that are there it is noted. Without services all that are there count."""
    wanted = {s["backend"] for s in services if not tables.backend(s["backend"]).get("cores_as_cards")}
    found: List[Dict[str, str]] = []
    for backend in sorted(wanted | set(survey["accelerators"])):
        seen = survey["accelerators"].get(backend)
        if seen is None:
            found.append(_no_trace(backend, survey))
            continue
        own = _tool(backend, seen, survey) + _versions(backend, seen, survey)
        if backend in wanted or (not services and not lookup.integrated(backend, survey)):
            found += own
        elif own and seen["on_bus"] and not lookup.integrated(backend, survey):
            what = f"no service wants its cards; {'; '.join(f['what'] for f in own)}"
            where = f"{survey['host']['name']}:{backend}"
            found.append(
                finding("PF-CARD-OTHER", where, what, "nothing for these services; tell the one who looks after the host")
            )
    return found


def _no_trace(backend: str, survey: Mapping[str, Any]) -> Dict[str, str]:
    entry = tables.backend(backend)
    what = f"there is no card of the backend {backend}: none on the bus, no driver, no {entry['tool']}"
    do = "correct the backend of the service, or look whether the cards are seated and switched on in the firmware"
    return finding("PL-BACKEND", survey["host"]["name"], what, do)


def _tool(backend: str, seen: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    entry, tool = tables.backend(backend), seen["tool"]
    where = f"{survey['host']['name']}:{tool['path'] or entry['tool']}"
    if tool["state"] == "missing":
        trace = (
            f"{len(seen['on_bus'])} card(s) of {backend} on the bus" if seen["on_bus"] else f"the driver of {backend} is loaded"
        )
        what = f"{trace}, but {entry['tool']} was not found"
        do = f"install the driver with its tools, or name the folder of {entry['tool']} in modelyard_tool_path"
        return [finding("PF-TOOL-MISSING", where, what, do)]
    if tool["state"] == "hangs":
        what = f"{entry['tool']} gave no answer within {entry['tool_limit_s']} s; that is how a sick card or driver shows"
        do = f"run once more (without persistence mode it may only be slow), then look into the kernel log. {REBOOT}"
        return [finding("PF-TOOL-HANGS", where, what, do)]
    if tool["state"] in ("failed", "unreadable") and not _errors(seen) & {MISMATCH, NOT_LOADED}:
        what = f"{entry['tool']} cannot be relied on; it said: {_line(tool['said'])}"
        return [finding("PF-TOOL-OUTPUT", where, what, f"run {entry['tool']} by hand as user {survey['host']['user']}")]
    return []


def _errors(seen: Mapping[str, Any]) -> Set[str]:
    return {error["kind"] for error in seen["errors"]}


def _line(text: str) -> str:
    words = " / ".join(line.strip() for line in text.splitlines() if line.strip())
    return words[:300] or "nothing"


def _versions(backend: str, seen: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    driver, errors = seen["driver"], _errors(seen)
    loaded, disk, library = driver["loaded"], driver["on_disk"], driver["library"]
    where = f"{survey['host']['name']}:{backend} driver"
    answers = seen["tool"]["state"] == "ok"
    bound = any(function["driver"] in tables.backend(backend)["modules"] for function in seen["on_bus"])
    silent = not loaded and not bound and bool(seen["on_bus"]) and not answers and not survey["platform"]["wsl"]
    if NOT_LOADED in errors or silent:
        there = f"version {disk} is on disk" if disk else "no module for this kernel was found on disk"
        do = "load it (modprobe, as root) and read the kernel log when that fails; after a kernel update it must be built again"
        return [finding("PF-DRIVER-NOT-LOADED", where, f"the kernel module is not loaded; {there}", do)]
    # A tool that answers disproves a mismatch: the library that was found may be one of several.
    if MISMATCH in errors or (not answers and not same(loaded, library)):
        what = f"the kernel runs {loaded or 'an unknown version'}, the library is {library or 'another one'}"
        do = f"an update came while the old module stayed loaded, so nothing new can start. {REBOOT}"
        return [finding("PF-DRIVER-MISMATCH", where, what, do)]
    if not same(loaded, disk):
        what = f"the kernel runs {loaded}, on disk is {disk}: the next reboot changes the driver"
        return [finding("PF-DRIVER-PENDING", where, what, "plan that reboot, or put the pinned version back and hold it")]
    return []
