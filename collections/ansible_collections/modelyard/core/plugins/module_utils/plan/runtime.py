"""Which runtime a service gets: one of ours by its lock, or an environment that is on the host already. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables, wheelhouse
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import nearest
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id
from ansible_collections.modelyard.core.plugins.module_utils.survey import dtk, libraries

LOADER_PATH = "LD_LIBRARY_PATH"


def _runtimes_for(backend: str, where: str) -> str:
    """What an admin can set `runtime` to."""
    names = _names(backend)
    return f"set {where}.runtime to {' or '.join(names)}" if names else f"name an environment with {where}.runtime_path"


def _names(backend: str) -> List[str]:
    """Runtimes with vLLM that can be made for a backend."""
    return [name for name in tables.runtime_names() if getattr(tables.runtime(name), "variant", "") == backend]


def choose(
    wanted: Mapping[str, Any],
    backend: Mapping[str, Any],
    intent: Mapping[str, Any],
    survey: Mapping[str, Any],
    where: str,
) -> Tuple[Dict[str, Any], List[Dict[str, str]]]:
    """(name, path, release and size of the runtime, findings).

    `vllm_release` is what tables.vllm() takes; the release of an environment is the one that the survey found in it. `vllm_found`
    is that text as it was found, `vllm_table` the upstream release whose options hold; empty where there is none.
    """
    known, findings = _lock(wanted, backend, where)
    release_of_dtk = str((survey["stack"].get("dtk") or {}).get("version", ""))
    own_path = dtk.filled(wanted["runtime_path"], release_of_dtk)
    path = own_path or (_path(known, intent, survey) if known else "")
    seen = survey["runtimes"].get(path) or {}
    place = f"{survey['host']['name']}:{path}"
    findings += _state(wanted, backend, seen, place, where)
    found = str(seen.get("vllm", "")) if wanted["runtime_path"] else ""
    release, own = _release(wanted, backend, known, found, place, where)
    findings += own
    made_from = None if wanted["runtime_path"] else known  # somebody else's environment is of no lock of ours
    if made_from:
        findings += [] if seen.get("complete") else _makable(made_from, intent, survey)
        findings += _libraries(made_from, library_folders(wanted), survey, where)
    build = tables.build(release)
    return (
        {
            **_entry(made_from, path, bool(seen.get("complete") or wanted["runtime_path"] or not known), survey),
            "ours": not wanted["runtime_path"],
            "vllm_release": release,
            "vllm_found": found,
            "vllm_table": build.release if build else "",
        },
        findings,
    )


def further(
    names: Sequence[str], intent: Mapping[str, Any], survey: Mapping[str, Any]
) -> Tuple[List[Dict[str, Any]], List[Dict[str, str]]]:
    """(runtimes that are wanted beside those of the services, findings)."""
    entries, findings = [], []
    for name in names:
        known = tables.runtime(name)
        if known is None:
            what = f"there is no runtime {name}{nearest(name, tables.runtime_names())}"
            findings.append(
                finding("PL-RUNTIME-UNKNOWN", "modelyard_runtimes", what, f"known are {', '.join(tables.runtime_names())}")
            )
            continue
        path = _path(known, intent, survey)
        complete = bool((survey["runtimes"].get(path) or {}).get("complete"))
        findings += [] if complete else _makable(known, intent, survey)
        entries.append(_entry(known, path, complete, survey))
    return entries, findings


def _path(known: tables.Runtime, intent: Mapping[str, Any], survey: Mapping[str, Any]) -> str:
    return f"{intent['runtimes_dir']}/{runtime_id(known.name, known.digest, survey['python']['version'])}"


def _entry(known: Optional[tables.Runtime], path: str, present: bool, survey: Mapping[str, Any]) -> Dict[str, Any]:
    """What a plan says of a runtime, whoever wants it. `wheels`: name of the wheelhouse's folder for it."""
    return {
        "name": known.name if known else "",
        "path": path,
        "present": present,
        "digest": known.digest if known else "",
        "disk_mib": known.disk_mib if known else 0,
        "wheels": wheelhouse.folder(known.name, survey["python"]["short"]) if known else "",
    }


def _makable(known: tables.Runtime, intent: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    """What would stop the making of a runtime on this host."""
    host, python, found = survey["host"], survey["python"], []
    if python["short"] not in known.pythons:
        what = f"it is Python {python['version']}; the runtime {known.name} exists for {', '.join(known.pythons)}"
        do = "set modelyard_python to a right one on this host"
        return [finding("PF-PYTHON", f"{host['name']}:{python['path']}", what, do)]
    if wheelhouse.older(host["glibc"], known.glibc):
        what = f"the wheels of {known.name} need glibc {known.glibc}, and this host has {host['glibc']}"
        do = f"use a runtime with older wheels ({_older_ones(known, host['glibc'])}), or a host with a newer distribution"
        found.append(finding("PF-GLIBC", host["name"], what, do))
    if intent["wheelhouse"]:
        found += wheelhouse.judge(known._asdict() | {"digest": known.digest}, python["short"], host, _wheels(intent, survey))
    return found


def library_folders(wanted: Mapping[str, Any]) -> List[str]:
    """Where a service lets its programs search for libraries first."""
    return [folder for folder in str(wanted["environment"].get(LOADER_PATH, "")).split(":") if folder]


def _libraries(known: tables.Runtime, folders: Sequence[str], survey: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """Libraries of the host that its wheels load: without them an import only warns, and the engine dies at its start."""
    found = []
    for name, packages in known.libraries.items():
        if not {libraries.SYSTEM, *folders} & set(survey["libraries"].get(name, ())):
            what = f"the wheels of {known.name} load {name}, which this host does not have"
            do = f"an admin installs {packages}. Without root: bring the file, and name its folder in {where}.environment"
            found.append(finding("PF-LIBRARY", survey["host"]["name"], what, f"{do}: {{{LOADER_PATH}: FOLDER}}"))
    return found


def _older_ones(known: tables.Runtime, glibc: str) -> str:
    others = [tables.runtime(name) for name in tables.runtime_names()]
    fit = [one.name for one in others if one and one.variant == known.variant and not wheelhouse.older(glibc, one.glibc)]
    return ", ".join(fit) or "none is known"


def _wheels(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Dict[str, Any]:
    """The wheelhouses of the host, and those that it gets from the control node where it has none of that name."""
    here, source = survey["wheelhouse"], intent["wheelhouse_from"]
    if not source["path"]:
        return dict(here)
    # A folder that is not there yet is made by the copy.
    problem = source["problem"] and f"{source['path']} on the control node: {source['problem']}"
    # One that is not whole, or of an older lock, is made anew by the copy.
    kept = {name: made for name, made in here["folders"].items() if _is_of(made, source["folders"].get(name))}
    return {"path": here["path"], "problem": problem, "folders": {**source["folders"], **kept}}


def _is_of(made: Mapping[str, Any], offered: Optional[Mapping[str, Any]]) -> bool:
    """Is a wheelhouse of the host the one that would be copied, and whole? Without one to copy it stands for itself."""
    return offered is None or (not made["problem"] and made.get("digest") == offered.get("digest"))


def _lock(
    wanted: Mapping[str, Any], backend: Mapping[str, Any], where: str
) -> Tuple[Optional[tables.Runtime], List[Dict[str, str]]]:
    """The runtime by its lock; None where the backend has none."""
    own = tables.runtime(backend["runtime"]) if backend["runtime"] else None
    known = tables.runtime(wanted["runtime"]) if wanted["runtime"] else own
    if wanted["runtime"] and known is None:
        what = f"there is no runtime {wanted['runtime']}"
        do = _runtimes_for(wanted["backend"], where)
        return own, [finding("PL-RUNTIME-UNKNOWN", f"{where}.runtime", what, do)]
    if known is not None and known.variant != wanted["backend"]:
        kind = f"is for the backend {known.variant}, not for {wanted['backend']}" if known.variant else "holds no vLLM"
        what = f"the runtime {known.name} {kind}"
        return known, [finding("PL-RUNTIME-UNKNOWN", f"{where}.runtime", what, _runtimes_for(wanted["backend"], where))]
    if known is None and not wanted["runtime_path"]:
        what = f"no runtime is chosen for the backend {wanted['backend']}"
        release = wanted.get("vllm_release") or backend["vllm_release"]
        do = f"name a Python environment with vLLM {release} that is on the host with {where}.runtime_path"
        made = _names(wanted["backend"])
        do += f", or set {where}.runtime to {' or '.join(made)}" if made else ""
        return None, [finding("PL-RUNTIME-NONE", f"{where}.runtime", what, do)]
    return known, []


def _state(
    wanted: Mapping[str, Any], backend: Mapping[str, Any], seen: Mapping[str, Any], place: str, where: str
) -> List[Dict[str, str]]:
    """Is the environment there, and whole?"""
    if seen.get("error"):
        # A half-made one of ours is made again; one that is whole, or somebody else's, is not touched.
        if not seen.get("complete") and not wanted["runtime_path"]:
            return []
        do = (
            "name another one with runtime_path"
            if wanted["runtime_path"]
            else "something changed it after it was made: remove that folder, and the next deploy makes it again"
        )
        return [finding("PF-RUNTIME-BROKEN", place, f"this runtime cannot import vllm: {seen['error']}", do)]
    if wanted["runtime_path"] and not seen.get("exists"):
        what = "there is no Python environment with vllm in this folder"
        do = f"correct {where}.runtime_path" + (" or leave it out" if backend["runtime"] else "")
        return [finding("PF-RUNTIME-BROKEN", place, what, do)]
    return []


def _release(
    wanted: Mapping[str, Any],
    backend: Mapping[str, Any],
    known: Optional[tables.Runtime],
    found: str,
    place: str,
    where: str,
) -> Tuple[str, List[Dict[str, str]]]:
    """The release to plan for, as tables.vllm() takes it: what was found, else what is pinned, else what the backend has."""
    pinned = str(wanted.get("vllm_release", ""))
    if not found:
        release = known.vllm_release if known and not wanted["runtime_path"] else pinned or backend["vllm_release"]
        if pinned and pinned != release:
            what = f"the runtime {known.name if known else ''} holds vLLM {release}; vllm_release of {wanted['name']} is {pinned}"
            do = "leave vllm_release out, or name a runtime or an environment of that release"
            return release, [finding("PF-RUNTIME-RELEASE", f"{where}.vllm_release", what, do)]
        if tables.build(release) is None:
            return release, [_unknown(release, f"{where}.vllm_release", "write one of them")]
        return release, []
    build = tables.build(found)
    base, _, local = found.partition("+")
    if build is None and pinned == base and tables.build(base):
        return base, []  # the admin says that this build takes the options of that release
    if build is None and tables.build(base):
        what = f"it holds vLLM {found}; no build of vLLM {base} is known that calls itself {local}"
        do = f"set {where}.vllm_release to {base} if it takes the options of that release, or use a build that is known"
        return found, [finding("PL-RELEASE-UNKNOWN", place, what, do)]
    if build is None:
        return found, [_unknown(found, place, "use an environment with one of them")]
    findings = []
    release = found if build.vendor else build.release
    if build.backend and build.backend != wanted["backend"]:
        what = f"it holds vLLM {found}, built for the backend {build.backend}, not for {wanted['backend']}"
        findings.append(finding("PL-RUNTIME-UNKNOWN", place, what, f"name another environment with {where}.runtime_path"))
    if pinned and pinned not in (found, build.release):
        what = f"it holds vLLM {found}; vllm_release of {wanted['name']} is {pinned}"
        do = f"use an environment with vLLM {pinned}, or correct vllm_release"
        findings.append(finding("PF-RUNTIME-RELEASE", place, what, do))
    return release, findings


def _unknown(release: str, place: str, do: str) -> Dict[str, str]:
    near, known = " and ".join(tables.near_releases(release)), tables.releases()
    what = f"the options of vLLM {release} are not known; known are releases from {known[0]} to {known[-1]}, nearest {near}"
    return finding("PL-RELEASE-UNKNOWN", place, what, f"{do}; CONTRIBUTING.md says how a release is added")
