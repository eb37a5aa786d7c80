"""A run beside the last one of the same shape that passed: what changed in figures and deployment. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

Record = Mapping[str, Any]
#: Changes below this are noise of such a measurement, in percent.
NOISE = 1.0
MOST = 12
SUSTAINED = (("requests/s", "requests_per_s"), ("tokens/s", "output_tokens_per_s"))
LATENCIES = (("first token", "ttft_ms"), ("gap between tokens", "itl_ms"), ("whole answer", "e2e_ms"))


def comparable(new: Record, old: Record) -> bool:
    """Did both ask for the same, through the same kind of entry, and did the old one pass?"""
    same = new["shape"] == old.get("shape") and new["entry"]["kind"] == (old.get("entry") or {}).get("kind")
    return bool(same and old.get("passed") is True and old.get("sustained"))


def last_passed(new: Record, earlier: Sequence[Record]) -> Optional[Record]:
    """The newest comparable run. `earlier`: oldest first."""
    return next((old for old in reversed(earlier) if comparable(new, old)), None)


def compared(new: Record, old: Record) -> Dict[str, Any]:
    """{id, words} for the record."""
    words = []
    if new["sustained"]:
        words += [_change(f"throughput in {name}", old["sustained"].get(key), new["sustained"][key]) for name, key in SUSTAINED]
    before = {level["value"]: level for level in old["levels"]}
    common = [level for level in new["levels"] if level["value"] in before and level["completed"]]
    at = next((level for level in common if new["sustained"] and level["value"] == new["sustained"]["value"]), None)
    if at:
        for name, key in LATENCIES:
            was = before[at["value"]].get(key) or {}
            words.append(_change(f"P95 of the {name} at {at['kind']} {at['value']:g}", was.get("p95"), at[key]["p95"]))
    return {"id": str(old.get("id", "")), "words": [word for word in words if word] + changes(old, new)}


def _change(name: str, before: Any, after: Any) -> str:
    """`throughput in tokens/s -3 %`; empty where one of the two is not known."""
    if not before or after is None:
        return ""
    percent = (after / before - 1) * 100
    return f"{name} {percent:+.0f} %" if abs(percent) >= NOISE else f"{name} unchanged"


def changes(old: Record, new: Record) -> List[str]:
    """Versions and parameters that are not what they were, each with both values."""
    said = []
    if old.get("tool") != new["tool"]:
        said.append(f"load tool: {_tool(old)} -> {_tool(new)}")
    for kind in ("runtime", "parameters"):
        before, after = old.get(kind) or {}, new[kind]
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                said.append(f"{name}: {before.get(name, 'not set')} -> {after.get(name, 'not set')}")
    if not said and old.get("parameters_digest") != new["parameters_digest"]:
        said.append("the command line or the environment of an instance is another one")
    return said[:MOST] + ([f"and {len(said) - MOST} more changes"] if len(said) > MOST else [])


def _tool(record: Record) -> str:
    tool = record.get("tool") or {}
    return f"{tool.get('name', '?')} {tool.get('version', '?')}"
