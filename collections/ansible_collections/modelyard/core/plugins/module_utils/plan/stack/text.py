"""What people read of verdicts: one table over all hosts, each finding once, and what to install. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import text
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import grouped
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import verdict

#: Beginnings of the ids that belong to a verdict on a stack; a preflight has the rest.
IDS = (
    "PF-STACK-",
    "PF-DRIVER-",
    "PF-TOOL-",
    "PF-RUNTIME-",
    "PL-RUNTIME-",
    "PL-BACKEND",
    "PF-UNREACHABLE",
    "PF-PYTHON",
    "PF-SURVEY",
    "IN-",
)
NOT_KNOWN = "unknown"


def concerns(id: str) -> bool:
    """Does a finding belong to the verdict?"""
    return id.startswith(IDS)


def report(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """`hosts`: {name: {verdict (None where it did not come to one), findings}} in order."""
    rows: List[Sequence[Any]] = [("host", "system", "cards", "driver", "service", "vLLM", "torch", "verdict")]
    for name, host in hosts.items():
        rows += _rows(name, host["verdict"])
    named = {name: host["verdict"]["action"] if host["verdict"] else NOT_KNOWN for name, host in hosts.items()}
    words = [*verdict.STRENGTH, NOT_KNOWN]
    counted = ", ".join(f"{list(named.values()).count(word)} {word}" for word in words if word in named.values())
    lines = [f"Stack of {len(hosts)} host(s): {counted}", *text.table(rows)]
    every = [item for host in hosts.values() for item in host["findings"]]
    for item in grouped(every):
        places = item["places"]
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        lines += text.findings([{**item, "where": ", ".join(places[:3]) + more}])
    for name, host in hosts.items():
        lines += _right(name, host["verdict"]) if host["verdict"] else []
    return "\n".join(lines)


def _rows(name: str, seen: Any) -> List[Sequence[Any]]:
    if not seen:
        return [(name, "-", "-", "-", "-", "-", "-", NOT_KNOWN)]
    system = seen["system"].get("name") or "-"
    rows: List[Sequence[Any]] = []
    for one in seen["sets"] or [dict.fromkeys(("cards", "driver", "flavour", "service", "vllm", "torch", "cuda"), "")]:
        driver = " ".join(word for word in (one["driver"], one["flavour"]) if word) or "-"
        state = f", {seen['state']}" if seen["state"] and one.get("backend") == "nvidia" else ""
        if one["driver"] != one.get("loaded", one["driver"]):
            state = f" wanted, {one['loaded'] or 'none'} loaded"
        torch = f"{one['torch']} (CUDA {one['cuda']})" if one["torch"] and one["cuda"] else one["torch"]
        action = one.get("action", seen["action"])
        # What the host itself says can be worse than what any of its sets does.
        worst = max(action, seen["action"], key=verdict.STRENGTH.index) if seen["action"] == verdict.REFUSED else action
        rows.append(
            (name, system, one["cards"] or "-", driver + state, one["service"] or "-", one["vllm"] or "-", torch or "-", worst)
        )
    return rows


def _right(name: str, seen: Mapping[str, Any]) -> List[str]:
    """What to install on a host, once for all of its sets."""
    lines: List[str] = []
    shown: Dict[str, None] = {}
    for one in seen["sets"]:
        for entry in one["right"]:
            who = "an admin" if entry["needs_root"] else "without root"
            words = f"  right  {name}, {who}: {entry['words']}"
            if words in shown:
                continue
            shown[words] = None
            lines.append(words)
            packages = entry["packages"]
            if packages:
                signed = ", modules signed by the distribution" if packages["signed"] else ""
                lines.append(f"         packages of {packages['source']}{signed}: {', '.join(packages['names'])}")
                lines.append(f"         kept by: {packages['pin']}")
    return [*lines, *(f"  before {name}: {line}" for line in seen["before"])]
