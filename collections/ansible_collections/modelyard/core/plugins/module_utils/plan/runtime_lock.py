"""Which of the runtimes that can be made a service wants: the one that it names, its backend's own, or that of the host's DTK."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables, vendor
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order

Findings = List[Dict[str, str]]


def names(backend: str) -> List[str]:
    """Runtimes with vLLM that can be made for a backend."""
    return [name for name in tables.runtime_names() if getattr(tables.runtime(name), "variant", "") == backend]


def candidates(wanted: Mapping[str, Any]) -> List[str]:
    """What a service may get, for a survey that is to see which of them are there: by name, or for whatever DTK the host has."""
    named = wanted["runtime"] or tables.backend(wanted["backend"])["runtime"]
    return [named] if named else [name for name in names(wanted["backend"]) if getattr(tables.runtime(name), "dtk", "")]


def choose(wanted: Mapping[str, Any], files: Sequence[str], dtk: str, where: str) -> Tuple[Optional[tables.Runtime], Findings]:
    """The runtime of a service that does not name an environment of its own; None where there is none for it.

    `files`: modelyard_vendor_files; `dtk`: release of the host's, empty for none.
    """
    backend = tables.backend(wanted["backend"])
    own = tables.runtime(backend["runtime"]) if backend["runtime"] else None
    if wanted["runtime"]:
        known = vendor.chosen(tables.runtime(wanted["runtime"]), files)
        if known is None:
            return own, [_unknown(f"there is no runtime {wanted['runtime']}", wanted, where)]
        if known.variant != wanted["backend"]:
            kind = f"is for the backend {known.variant}, not for {wanted['backend']}" if known.variant else "holds no vLLM"
            return known, [_unknown(f"the runtime {known.name} {kind}", wanted, where)]
        return known, []
    if own or wanted["runtime_path"]:
        return own, []
    built = [one for name in candidates(wanted) for one in [vendor.chosen(tables.runtime(name), files)] if one]
    fitting = [one for one in built if vendor.of_dtk(one, dtk) and release_fits(one, str(wanted["vllm_release"]))]
    if fitting:  # the exact DTK before one that says less, and the newest vLLM of those
        return max(fitting, key=lambda one: (one.dtk == dtk, order(one.vllm_release.partition("+")[0]), one.name)), []
    return None, [_none(wanted, backend, built, dtk, where)]


def release_fits(known: tables.Runtime, pinned: str) -> bool:
    """Is this the release that the inventory pins? Of a vendor's build its upstream release is enough."""
    return pinned in ("", known.vllm_release) or (bool(known.vendor) and pinned == known.vllm_release.partition("+")[0])


def _unknown(what: str, wanted: Mapping[str, Any], where: str) -> Dict[str, str]:
    made = names(wanted["backend"])
    do = f"set {where}.runtime to {' or '.join(made)}" if made else f"name an environment with {where}.runtime_path"
    return finding("PL-RUNTIME-UNKNOWN", f"{where}.runtime", what, do)


def _none(
    wanted: Mapping[str, Any], backend: Mapping[str, Any], built: Sequence[tables.Runtime], dtk: str, where: str
) -> Dict[str, str]:
    what = f"no runtime is chosen for the backend {wanted['backend']}"
    release = wanted.get("vllm_release") or backend["vllm_release"]
    do = f"name a Python environment with vLLM {release} that is on the host with {where}.runtime_path"
    made = names(wanted["backend"])
    do += f", or set {where}.runtime to {' or '.join(made)}" if made else ""
    if built:
        has = f"this host has DTK {dtk}" if dtk else "no DTK was found in /opt/dtk"
        kinds = " and ".join(f"vLLM {one.vllm_release} for DTK {one.dtk}" for one in built)
        what += f": {has}, and files of the vendor are known for {kinds}"
    return finding("PL-RUNTIME-NONE", f"{where}.runtime", what, do)
