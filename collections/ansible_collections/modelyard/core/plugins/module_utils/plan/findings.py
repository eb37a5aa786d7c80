"""Findings: what was found, where, and what the admin does next. The catalogue of their ids.

An id is fixed and never used for something else; each has a paragraph in docs/checks.md (a test compares the two).
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Tuple

REFUSE, WARN, NOTE = "refuse", "warn", "note"
ORDER = {REFUSE: 0, WARN: 1, NOTE: 2}

#: id -> severity. Inventory (IN), plan (PL), host (PF), recovery (RC), driver (DR), Hygon's driver and DTK (DT), diagnosis (DG).
CATALOGUE: Dict[str, str] = {
    # the inventory
    "IN-VARIABLE-UNKNOWN": REFUSE,
    "IN-KEY-UNKNOWN": REFUSE,
    "IN-VALUE": REFUSE,
    "IN-SECRET": REFUSE,
    "IN-NAME": REFUSE,
    "IN-NAME-TWICE": REFUSE,
    "IN-PORT-TWICE": REFUSE,
    # the plan
    "PL-ENGINE-KEY-UNKNOWN": REFUSE,
    "PL-ENGINE-KEY-REMOVED": REFUSE,
    "PL-ENGINE-KEY-LATER": REFUSE,
    "PL-ENGINE-KEY-REQUEST": REFUSE,
    "PL-ENGINE-KEY-IDLE": WARN,
    "PL-ENGINE-KEY-OWNED": REFUSE,
    "PL-ENGINE-VALUE": REFUSE,
    "PL-RUNTIME-UNKNOWN": REFUSE,
    "PL-RUNTIME-NONE": REFUSE,
    "PL-RELEASE-UNKNOWN": REFUSE,
    "PL-BACKEND": REFUSE,
    "PL-CARDS": REFUSE,
    "PL-CARDS-SHARED": WARN,
    "PL-REPLICAS-FEWER": WARN,
    "PL-TOPOLOGY": REFUSE,
    # reaching the host
    "PF-UNREACHABLE": REFUSE,
    "PF-PYTHON-OLD": REFUSE,
    "PF-SURVEY-FAILED": REFUSE,
    # vendor tools and drivers
    "PF-TOOL-MISSING": REFUSE,
    "PF-TOOL-HANGS": REFUSE,
    "PF-TOOL-OUTPUT": REFUSE,
    "PF-DRIVER-NOT-LOADED": REFUSE,
    "PF-DRIVER-MISMATCH": REFUSE,
    "PF-DRIVER-PENDING": WARN,
    # do card, driver, CUDA, torch, vLLM and Python fit each other (plan/stack)?
    "PF-STACK-GPU-DRIVER": REFUSE,
    "PF-STACK-GPU-DROPPED": REFUSE,
    "PF-STACK-FLAVOUR": REFUSE,
    "PF-STACK-CUDA-DRIVER": REFUSE,
    "PF-STACK-CUDA-PTX": WARN,
    "PF-STACK-CUDA-MIX": REFUSE,
    "PF-STACK-NO-KERNELS": REFUSE,
    "PF-STACK-CARD-FLOOR": REFUSE,
    "PF-STACK-CARD-UNKNOWN": NOTE,
    "PF-STACK-BUILD": REFUSE,
    "PF-STACK-PYTHON": REFUSE,
    "PF-STACK-GLIBC": REFUSE,
    "PF-STACK-PINS": WARN,
    "PF-STACK-TOOLKIT": WARN,
    "PF-STACK-COMPAT": REFUSE,
    "PF-STACK-FABRIC": REFUSE,
    "PF-STACK-DTK": REFUSE,
    "PF-STACK-DTK-ENV": WARN,
    "PF-STACK-ENDED": WARN,
    "PF-STACK-DRIFT": NOTE,
    # what the driver rests on
    "PF-STACK-NOUVEAU": REFUSE,
    "PF-STACK-VFIO": REFUSE,
    "PF-STACK-SECURE-BOOT": WARN,
    "PF-STACK-HEADERS": WARN,
    "PF-STACK-FOREIGN": WARN,
    "PF-STACK-MIXED": WARN,
    "PF-STACK-NEXT-KERNEL": WARN,
    "PF-STACK-UPDATES": WARN,
    "PF-STACK-PERSISTENCE": NOTE,
    # cards
    "PF-CARD-COUNT": REFUSE,
    "PF-CARD-GONE": REFUSE,
    "PF-CARD-NAME": REFUSE,
    "PF-CARD-ORDER": REFUSE,
    "PF-CARD-LOST": REFUSE,
    "PF-CARD-NEEDS-RESET": REFUSE,
    "PF-CARD-ERRORS": REFUSE,
    "PF-CARD-DEGRADED": WARN,
    "PF-CARD-UNKNOWN": WARN,
    "PF-CARD-MODE": REFUSE,
    "PF-CARD-OTHER": NOTE,
    "PF-CARD-LOG": WARN,
    "PF-DEVICE-DENIED": REFUSE,
    "PF-DEVICE-MISSING": REFUSE,
    "PF-CARD-TEST": REFUSE,
    "PF-ALL-REDUCE": REFUSE,
    # who uses the cards
    "PF-STRANGER": REFUSE,
    "PF-HOLDER": NOTE,
    "PF-CARD-IN-USE": NOTE,
    "PF-CARD-USERS-UNKNOWN": WARN,
    "PF-MEMORY-HELD": REFUSE,
    "PF-BUSY-WITHOUT-PROCESS": WARN,
    # processes
    "PF-LEFTOVER": REFUSE,
    "PF-SUSPECT": NOTE,
    "PF-ZOMBIE-HOLDS": REFUSE,
    "PF-ZOMBIE": NOTE,
    "PF-STUCK": REFUSE,
    "PF-STUCK-ELSEWHERE": WARN,
    "PF-NEEDS-ADMIN": REFUSE,
    "PF-ADMIN-DONE": NOTE,
    "PF-NAME-USED": REFUSE,
    "PF-NAME-SIMILAR": NOTE,
    "PF-PORT-BUSY": REFUSE,
    "PF-GATEWAY": REFUSE,
    "PF-OPEN-DOOR": WARN,
    "PF-LOOPBACK": NOTE,
    "PF-SUPERVISOR": REFUSE,
    "PF-LINGER": REFUSE,
    # the host
    "PF-HOME": REFUSE,
    "PF-HOME-SHARED": REFUSE,
    "PF-PYTHON": REFUSE,
    "PF-MODEL-MISSING": REFUSE,
    "PF-MODEL-UNREADABLE": REFUSE,
    "PF-MODEL-INCOMPLETE": REFUSE,
    "PF-MODEL-DAMAGED": REFUSE,
    "PF-MODEL-OTHER": REFUSE,
    "PF-MODEL-CHANGED": WARN,
    "PF-MODEL-CONFIG": REFUSE,
    "PF-MODEL-DOUBT": WARN,
    "PF-MODEL-TEMPLATE": WARN,
    "PF-MODEL-ADAPTER": REFUSE,
    "PF-MODEL-CONTEXT": REFUSE,
    "PF-MERGE-MEMORY": REFUSE,
    "PF-MEMORY": REFUSE,
    "PF-MEMORY-PLAN": REFUSE,
    "PF-MEMORY-FREE": REFUSE,
    "PF-MEMORY-TIGHT": WARN,
    "PF-DISK": REFUSE,
    "PF-DISK-LOW": WARN,
    "PF-SHM": REFUSE,
    "PF-SHM-STALE": WARN,
    "PF-LIMITS": WARN,
    "PF-PROXY-DEAD": WARN,
    "PF-VISIBILITY": WARN,
    "PF-INIT": NOTE,
    "PF-HOST-LOG": NOTE,
    "PF-PLATFORM": NOTE,
    "PF-NOT-READABLE": NOTE,
    "PF-GLIBC": REFUSE,
    "PF-LIBRARY": REFUSE,
    "PF-COMPILER": REFUSE,
    "PF-WHEELHOUSE": REFUSE,
    "PF-VENDOR-WHEELS": REFUSE,
    "PF-RUNTIME-BROKEN": REFUSE,
    "PF-RUNTIME-RELEASE": REFUSE,
    "PF-LOCK-HELD": REFUSE,
    "PF-RESTART-NEEDED": REFUSE,
    "PF-SERVICE-NOT-IN-INVENTORY": NOTE,
    # a recovery, after a person's intervention
    "RC-CONFIRM": REFUSE,
    "RC-RESET": REFUSE,
    "RC-RESET-FAILED": REFUSE,
    "RC-BASELINE": REFUSE,
    # a change of Hygon's driver or DTK
    "DT-WANTED": REFUSE,
    "DT-FILE": REFUSE,
    "DT-CHECKSUM": REFUSE,
    "DT-TARBALL": REFUSE,
    "DT-ROOT": REFUSE,
    "DT-ROOM": REFUSE,
    "DT-FOREIGN": REFUSE,
    "DT-IN-USE": REFUSE,
    "DT-TOOLS": REFUSE,
    "DT-FAILED": REFUSE,
    "DT-RELOAD": REFUSE,
    # a change of the driver, or of the CUDA toolkit
    "DR-FOREIGN": REFUSE,
    "DR-VERSION": REFUSE,
    "DR-ROOT": REFUSE,
    "DR-IN-USE": REFUSE,
    "DR-ROOM": REFUSE,
    "DR-REBOOT-PENDING": REFUSE,
    "DR-SECURE-BOOT": REFUSE,
    "DR-HEADERS": REFUSE,
    "DR-KERNEL": REFUSE,
    "DR-TRANSACTION": REFUSE,
    "DR-BROKEN": REFUSE,
    "DR-LOCK": REFUSE,
    "DR-FAILED": REFUSE,
    "DR-NEXT-KERNEL": REFUSE,
    "DR-CONFIRM": REFUSE,
    "DR-REBOOT": REFUSE,
    # a diagnosis, on a person's word
    "DG-CONFIRM": REFUSE,
    "DG-STATE": REFUSE,
}
#: Values of a switch besides the severities.
OFF = "off"
#: Findings without a switch: nothing could go on after them, or they have a switch of their own (modelyard_restart, a file).
WITHOUT_SWITCH = {
    "PF-UNREACHABLE",
    "PF-PYTHON-OLD",
    "PF-SURVEY-FAILED",
    "PF-HOME",
    "PF-HOME-SHARED",
    "PF-NEEDS-ADMIN",
    "PF-ADMIN-DONE",
    "PF-LOCK-HELD",
    "PF-RESTART-NEEDED",
}


def has_switch(id: str) -> bool:
    """Can modelyard_checks change this one? Those about the host can; a gap in inventory or plan cannot be wished away."""
    return id.startswith("PF-") and id not in WITHOUT_SWITCH


def finding(id: str, where: str, what: str, do: str) -> Dict[str, str]:
    """One finding as plain data; the severity comes from the catalogue."""
    return {"id": id, "severity": CATALOGUE[id], "where": where, "what": what, "do": do}


def ordered(findings: Iterable[Dict[str, str]]) -> List[Dict[str, str]]:
    """Refusals first, then warnings, then notes; otherwise as found."""
    return sorted(findings, key=lambda f: ORDER[f["severity"]])


def refusals(findings: Iterable[Dict[str, str]]) -> List[Dict[str, str]]:
    """Those that stop a deployment."""
    return [f for f in findings if f["severity"] == REFUSE]


def count(findings: Iterable[Dict[str, Any]]) -> str:
    """`2 refuse, 1 warn, 0 note`."""
    severities = [f["severity"] for f in findings]
    return ", ".join(f"{severities.count(s)} {s}" for s in ORDER)


def switched(findings: Iterable[Dict[str, str]], switches: Mapping[str, str]) -> List[Dict[str, str]]:
    """The findings with the severities that the admin set for their ids; those that are `off` are left out."""
    kept = []
    for item in findings:
        severity = switches.get(item["id"], item["severity"])
        if severity != OFF:
            kept.append({**item, "severity": severity})
    return kept


def noted(findings: Iterable[Dict[str, str]]) -> List[Dict[str, str]]:
    """Findings about what a run leaves alone: they refuse nothing."""
    return [{**item, "severity": NOTE} for item in findings]


def grouped(found: Iterable[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Findings that say the same of several places as one, with all places under `places`; refusals first."""
    groups: Dict[Tuple[str, ...], Dict[str, Any]] = {}
    for item in found:
        key = (item["severity"], item["id"], item["what"], item["do"])
        groups.setdefault(key, {**item, "places": []})["places"].append(item["where"])
    return sorted(groups.values(), key=lambda g: ORDER[g["severity"]])
