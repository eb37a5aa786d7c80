"""Which driver is asked for on a host, and by which packages: out of inventory, verdict and tables. On the control node only."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known, seen, states, verdict
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.known import Tables

#: JUDGED changes nothing. INSTALLED makes one that works and keeps it. PINNED replaces one that works by the inventory's.
JUDGED, INSTALLED, PINNED = "judged", "installed", "pinned"
NVIDIA = "nvidia"
#: Id of a source -> what the survey calls its packages.
ORIGIN = {"canonical": "distribution", "nvidia": "nvidia"}


def choose(
    asked: Tuple[str, str], intent: Mapping[str, Any], survey: Mapping[str, Any], judged: Mapping[str, Any], tables: Tables
) -> Dict[str, Any]:
    """{skip, findings, version, flavour, names, signed, source}. `skip`: in words why nothing is to be done.

    `asked`: (state, id of a source; empty for the one that is there, else the preferred one). `judged`: the host's verdict.
    """
    state, source = asked
    accelerator: Mapping[str, Any] = survey["accelerators"].get(NVIDIA) or {}
    host: Mapping[str, Any] = survey.get("stack") or {}
    loaded = str((accelerator.get("driver") or {}).get("loaded", ""))
    answer = {"skip": "", "findings": [], "version": loaded, "flavour": "", "names": [], "signed": True, "source": ""}
    wish: Mapping[str, Any] = intent.get("stack") or {}
    wanted = str(wish.get("driver") or "")
    if state == JUDGED or not accelerator.get("on_bus"):
        return {**answer, "skip": "only judged" if state == JUDGED else "there is no NVIDIA card on the bus"}
    works = judged["action"] == verdict.KEEP and bool(loaded)
    keeps = works and (state == INSTALLED or not wanted or states.is_pinned(loaded, wanted))
    foreign = _foreign(judged["state"], host, survey)
    if foreign:
        found = [] if keeps else [finding("DR-FOREIGN", survey["host"]["name"], *foreign)]
        return {**answer, "skip": f"{foreign[0]}; it is left alone", "findings": found}
    if keeps:
        return answer
    place = f"{survey['host']['name']}:modelyard_stack.driver"
    if "." not in wanted:
        newest = str(known.branch(tables, wanted or tables["drivers"]["recommended"]["branch"]).get("last_seen") or "")
        what = f"{wanted!r} is a branch" if wanted else "no version is named"
        do = f"write the exact version{f', for example {newest}' if newest else ''}: what is installed must not depend on the day"
        return {**answer, "findings": [finding("DR-VERSION", place, f"{what}, and a driver is to be {state}", do)]}
    card = next(iter(seen.cards(NVIDIA, survey, tables)), known.Card())
    flavour = seen.flavour(wish, card, wanted, tables)
    packages = known.packages(tables, host, flavour, wanted, source or _there(host))
    packages = packages or (known.packages(tables, host, flavour, wanted) if not source else None)
    if packages is None:
        system = (host.get("system") or {}).get("name") or "this system"
        what = f"no table says how the packages of driver {wanted} ({flavour} modules) are called on {system}"
        return {**answer, "findings": [finding("DR-VERSION", place, what, "an admin installs it; then it is judged and kept")]}
    other = _origins(host) - {ORIGIN[packages["id"]]}
    if other and not source:
        whose = " and of ".join(sorted(map(_whose, other)))
        what = f"the driver's packages are of {whose}; {wanted} is to come from {packages['source']}"
        do = f"name it to change over: nvidia_driver_source: {packages['id']}; or write a version that their source has"
        return {**answer, "findings": [finding("DR-FOREIGN", survey["host"]["name"], what, do)]}
    names, found = [[name] for name in packages["names"]], []
    if host.get("switches"):
        names.append(packages["fabric_manager"])
    if not packages["signed"]:
        more, found = _headers(host, survey)
        names += more
    return {
        **answer,
        **{k: packages[k] for k in ("signed", "source")},
        "version": wanted,
        "flavour": flavour,
        "names": names,
        "findings": found,
    }


def _foreign(state: str, host: Mapping[str, Any], survey: Mapping[str, Any]) -> Tuple[str, ...]:
    """(what, what to do) where somebody else owns the driver; empty where nobody does."""
    inside = survey["platform"]["container"] or survey["platform"]["wsl"]
    if inside:
        return (
            f"this is inside of {inside if isinstance(inside, str) else 'WSL'}: the driver is the outer machine's",
            "change it there",
        )
    if state == states.RUNFILE:
        return (
            f"the driver came with NVIDIA's .run installer ({host['installer']})",
            f"an admin runs {host['installer']} first, then reboots; packages over it would be the classic wreck",
        )
    if state == states.CONTAINER:
        return "the driver belongs to a container (/run/nvidia/driver)", "ask those who run the cluster"
    if host.get("vendor_image"):
        return f"this is a vendor's system image ({host['vendor_image']})", "update its driver with the vendor's own tools"
    return ()


def _there(host: Mapping[str, Any]) -> str:
    """The source of the driver's packages that are installed: mixing two is a wreck. Empty for none, and for several."""
    origins = _origins(host)
    is_ubuntu = (host.get("system") or {}).get("id") == "ubuntu"
    return {"nvidia": "nvidia", "distribution": "canonical" if is_ubuntu else ""}[origins.pop()] if len(origins) == 1 else ""


def _origins(host: Mapping[str, Any]) -> Set[str]:
    """Where the installed packages of the driver come from. Tools beside it, as dkms, are the distribution's anywhere."""
    found = (host.get("packages") or {}).get("found", ())
    return {package["origin"] for package in found if package["origin"] and "nvidia" in package["name"]}


def _whose(origin: str) -> str:
    return "NVIDIA's repository" if origin == "nvidia" else "the distribution"


def _headers(host: Mapping[str, Any], survey: Mapping[str, Any]) -> Tuple[List[List[str]], List[Dict[str, str]]]:
    """Headers of the running kernel, for modules that are built on the host: (packages, findings)."""
    running: Mapping[str, Any] = next((kernel for kernel in host.get("kernels", ()) if kernel["running"]), {})
    if not running or running["headers"]:
        return [], []
    if (host.get("packages") or {}).get("manager") == "dpkg":
        return [[f"linux-headers-{running['release']}"]], []
    what = f"the modules are built on this host, and the headers of the running kernel {running['release']} are not there"
    do = f"dnf install kernel-devel-{running['release']}; not a newer kernel instead. Nothing was changed"
    return [], [finding("DR-HEADERS", survey["host"]["name"], what, do)]


def same_machine(survey: Mapping[str, Any], here: str) -> List[Dict[str, str]]:
    """A run does not reboot the machine that it runs on. `here`: the control node's boot id; containers share their machine's."""
    if survey["host"]["boot_id"] != here:
        return []
    what = "this run itself works on that machine, and would end in the middle"
    do = "reboot it by hand, then play playbooks/stack.yml again. Nothing was rebooted"
    return [finding("DR-FOREIGN", survey["host"]["name"], what, do)]
