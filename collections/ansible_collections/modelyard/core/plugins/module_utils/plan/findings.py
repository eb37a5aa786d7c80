"""Findings: what was found, where, and what the admin does next. The catalogue of their ids.

An id is fixed and never used for something else; each has a paragraph in docs/checks.md (a test compares the two).
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List

REFUSE, WARN, NOTE = "refuse", "warn", "note"
ORDER = {REFUSE: 0, WARN: 1, NOTE: 2}

#: id -> severity. Inventory (IN), plan (PL), host (PF).
CATALOGUE: Dict[str, str] = {
    "IN-VARIABLE-UNKNOWN": REFUSE,
    "IN-KEY-UNKNOWN": REFUSE,
    "IN-VALUE": REFUSE,
    "IN-SECRET": REFUSE,
    "IN-NAME": REFUSE,
    "IN-NAME-TWICE": REFUSE,
    "IN-PORT-TWICE": REFUSE,
    "PL-ENGINE-KEY-UNKNOWN": REFUSE,
    "PL-ENGINE-KEY-REMOVED": REFUSE,
    "PL-ENGINE-KEY-OWNED": REFUSE,
    "PL-ENGINE-VALUE": REFUSE,
    "PL-RUNTIME-UNKNOWN": REFUSE,
    "PL-CARDS": REFUSE,
    "PL-CARDS-SHARED": WARN,
    "PF-HOME": REFUSE,
    "PF-HOME-SHARED": REFUSE,
    "PF-PYTHON": REFUSE,
    "PF-PYTHON-OLD": REFUSE,
    "PF-PORT-BUSY": REFUSE,
    "PF-MODEL-MISSING": REFUSE,
    "PF-MODEL-UNREADABLE": REFUSE,
    "PF-MODEL-INCOMPLETE": REFUSE,
    "PF-MODEL-CONTEXT": REFUSE,
    "PF-MEMORY": REFUSE,
    "PF-DISK": REFUSE,
    "PF-SHM": REFUSE,
    "PF-RUNTIME-BROKEN": REFUSE,
    "PF-RUNTIME-RELEASE": REFUSE,
    "PF-LEFTOVER": REFUSE,
    "PF-SUSPECT": NOTE,
    "PF-LOCK-HELD": REFUSE,
    "PF-RESTART-NEEDED": REFUSE,
    "PF-SERVICE-NOT-IN-INVENTORY": NOTE,
}


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
