"""Which runtime a service gets: one of ours by its lock, or an environment that is on the host already. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, runtime_lock, tables, vendor, wheelhouse
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import nearest
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id
from ansible_collections.modelyard.core.plugins.module_utils.survey import dtk, libraries

LOADER_PATH = "LD_LIBRARY_PATH"


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
    release_of_dtk = _dtk(survey)
    known, findings = runtime_lock.choose(wanted, intent["vendor_files"], release_of_dtk, where)
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
            **_entry(made_from, path, bool(seen.get("complete") or wanted["runtime_path"] or not known), intent, survey),
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
        known = vendor.chosen(tables.runtime(name), intent["vendor_files"])
        if known is None:
            what = f"there is no runtime {name}{nearest(name, tables.runtime_names())}"
            findings.append(
                finding("PL-RUNTIME-UNKNOWN", "modelyard_runtimes", what, f"known are {', '.join(tables.runtime_names())}")
            )
            continue
        path = _path(known, intent, survey)
        complete = bool((survey["runtimes"].get(path) or {}).get("complete"))
        findings += [] if complete else _makable(known, intent, survey)
        entries.append(_entry(known, path, complete, intent, survey))
    return entries, findings


def _dtk(survey: Mapping[str, Any]) -> str:
    """The release of the DTK that programs of this host use; empty for none."""
    return str((survey["stack"].get("dtk") or {}).get("version", ""))


def _path(known: tables.Runtime, intent: Mapping[str, Any], survey: Mapping[str, Any]) -> str:
    return f"{intent['runtimes_dir']}/{runtime_id(known.name, known.digest, survey['python']['version'])}"


def _entry(
    known: Optional[tables.Runtime], path: str, present: bool, intent: Mapping[str, Any], survey: Mapping[str, Any]
) -> Dict[str, Any]:
    """What a plan says of a runtime, whoever wants it. `wheels`: name of the wheelhouse's folder for it. `vendor`: files."""
    python = survey["python"]["short"]
    folder = wheelhouse.folder(known.name, python) if known else ""
    flat = f"{intent['wheelhouse']}/{folder}" if intent["wheelhouse"] else ""
    loose = {} if flat else survey["vendor_wheels"]
    return {
        "name": known.name if known else "",
        "path": path,
        "present": present,
        "digest": known.digest if known else "",
        "disk_mib": known.disk_mib if known else 0,
        "wheels": folder,
        "vendor": vendor.places(known, python, flat or intent["vendor_wheels"], loose) if known else [],
        "environment": launch.of_toolkit(known.variant, survey, path) if known else {},
    }


def _makable(known: tables.Runtime, intent: Mapping[str, Any], survey: Mapping[str, Any]) -> List[Dict[str, str]]:
    """What would stop the making of a runtime on this host."""
    host, python, found = survey["host"], survey["python"], []
    if python["short"] not in known.pythons:
        what = f"it is Python {python['version']}; the runtime {known.name} exists for {', '.join(known.pythons)}"
        right = [path for path, version in sorted(survey["pythons"].items()) if version in known.pythons]
        do = (
            f"set modelyard_python to {' or '.join(right)}" if right else "install a right one, and name it with modelyard_python"
        )
        found.append(finding("PF-PYTHON", f"{host['name']}:{python['path']}", what, do))
        if not known.vendor:
            return found
    if wheelhouse.older(host["glibc"], known.glibc):
        what = f"the wheels of {known.name} need glibc {known.glibc}, and this host has {host['glibc']}"
        do = f"use a runtime with older wheels ({_older_ones(known, host['glibc'])}), or a host with a newer distribution"
        found.append(finding("PF-GLIBC", host["name"], what, do))
    if known.dtk and not _dtk(survey):
        what = (
            f"there is none, and the files that {known.name} is made of are built for DTK {known.dtk}: nothing imports without it"
        )
        do = "an admin installs it: modelyard_stack.dtk and playbooks/stack.yml (docs/stack.md)"
        found.append(finding("PF-VENDOR-WHEELS", f"{host['name']}:/opt/dtk", what, do))
    # With a wrong Python the vendor's files are named for a right one.
    short = python["short"] if python["short"] in known.pythons else known.pythons[0]
    if intent["wheelhouse"]:
        found += wheelhouse.judge(known._asdict() | {"digest": known.digest}, short, host, _wheels(intent, survey))
    elif known.vendor:
        found += vendor.judge(known, short, host["name"], survey["vendor_wheels"])
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
        if known and not wanted["runtime_path"] and not runtime_lock.release_fits(known, pinned):
            what = f"the runtime {known.name} holds vLLM {release}; vllm_release of {wanted['name']} is {pinned}"
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
