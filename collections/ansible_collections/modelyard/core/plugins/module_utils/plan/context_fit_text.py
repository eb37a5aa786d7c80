"""What people read about the context that prompts need. Pure functions over the result of context_fit.judge."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import text
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import size

SHARES = ("p50", "p95", "p99", "max")
#: Lines that are named here; the JSON has more.
NAMED = 5


def report(found: Mapping[str, Any], host: str, file: str) -> str:
    """A short table, what was passed over, what the memory costs, and what to do."""
    counted = f"{found['prompts']} prompt(s) in {_units(found, found['lines'])} of {file}"
    lines = [f"Context of {found['subject']} on {host}: {counted}"]
    if found["prompts"]:
        rows: List[Sequence[Any]] = [("tokens", *SHARES)]
        rows += [("prompt", *(found["tokens"][share] for share in SHARES))]
        rows += [("with its answer", *(found["with_answer"][share] for share in SHARES))]
        lines += text.table(rows) + _counted(found)
    lines += _passed_over(found)
    lines += _memory(found["memory"], found["max_model_len"]["today"])
    return "\n".join([*lines, *(f"  -> {line}" for line in found["advice"])])


def _unit(found: Mapping[str, Any]) -> str:
    """What the file consists of: lines, or the entries of a JSON array."""
    return str(found.get("unit", "line"))


def _units(found: Mapping[str, Any], count: int) -> str:
    return f"{count} {'line(s)' if _unit(found) == 'line' else 'entries'}"


def _counted(found: Mapping[str, Any]) -> List[str]:
    silent = found["prompts"] - found["answers_stated"]
    lines = []
    if silent:
        where = f"where the {_unit(found)} does not say it ({silent} prompt(s))"
        lines.append(f"  {found['reserve']} tokens are kept for an answer {where}")
    limits = found["max_model_len"]
    if limits["today"]:
        source = "inventory" if limits["planned"] else "as the model was made"
        share = f"{100 * found['refused'] / found['prompts']:.1f} %"
        refused = f"{found['refused']} of {found['prompts']} refused ({share})"
        short = f", {found['short']} more get no room for the whole answer" if found["short"] else ""
        lines.append(f"  max_model_len {limits['today']} ({source}) today: {refused}{short}")
    lines.append("  longest: " + ", ".join(f"{_unit(found)} {one['line']} ({one['tokens']})" for one in found["longest"][:NAMED]))
    if found["with_pictures"]:
        lines.append(f"  {found['with_pictures']} prompt(s) hold pictures or the like; what they take is not in the figures")
    return lines


def _passed_over(found: Mapping[str, Any]) -> List[str]:
    damaged, lines = found["damaged"], []
    if damaged["lines"]:
        first = damaged["first"][:NAMED]
        named = ", ".join(f"{_unit(found)} {one['line']} ({one['why']})" for one in first)
        more = damaged["lines"] - len(first)
        lines.append(f"  {damaged['lines']} damaged passed over: {named}{f' and {more} more' if more > 0 else ''}")
    if found["skipped"]:
        lines.append(f"  {_units(found, found['skipped'])} hold no prompt: empty, a note of the log, a request that counted none")
    return lines


def _memory(memory: Mapping[str, Any], today: Any) -> List[str]:
    if not memory["kinds"]:
        return []
    kinds = ", ".join(f"{kind['layers']} {kind['name']}{_window(kind)}" for kind in memory["kinds"])
    ranks = f" on each of {memory['ranks']} ranks" if memory["ranks"] > 1 else ""
    lines = [f"  KV cache: {size(memory['token_bytes'])} a token{ranks}; layers: {kinds}"]
    lines += [f"  {gap}" for gap in memory["gaps"]]
    rows: List[Sequence[Any]] = [("max_model_len", "refused", "shorter", "a request takes", "fit at once")]
    for row in memory["lengths"]:
        name = f"{row['max_model_len']} (today)" if row["max_model_len"] == today else row["max_model_len"]
        fit = "?" if row["fit"] is None else row["fit"]
        rows.append((name, row["refused"], row["short"], size(row["request_bytes"]), fit))
    return lines + text.table(rows)


def _window(kind: Mapping[str, Any]) -> str:
    return f" ({kind['window']} tokens)" if kind["window"] else ""
