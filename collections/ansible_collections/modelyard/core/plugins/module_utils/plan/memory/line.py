"""The memory plan of a service in one line, for every plan that people read. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import size


def memory_line(found: Mapping[str, Any]) -> str:
    """One line: the verdict with its figures, those of the card with the least room."""
    row = tightest(found["rows"])
    if not row:
        return "no card: nothing can be said"
    if not found["weights"]["rank"]:
        return "not known before the weights are there"
    each = f"{size(found['weights']['rank'])} weights"
    kv = f"{size(row['cache'])} KV cache" if row["cache"] is not None else "KV cache not known"
    of = f" of {size(row['total'])} a card" if row["total"] else ""
    marked = " (estimated)" if row["total"] and not row["surely"] else ""
    return f"{found['verdict']}: {each}, {kv}{of}{_requests(row, found)}{marked}"


def _requests(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if row["fit"] is None or not found["tokens"]:
        return ""
    if row["fit"]:
        return f", {row['fit']} request(s) of {found['tokens']} tokens at once"
    return f", not one request of {found['tokens']} tokens" + (f", at most {row['longest']}" if row["longest"] else "")


def tightest(rows: Sequence[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """The row with the least room; where something surely does not fit, that one."""
    return min(rows, key=lambda row: (not row["surely"], row["cache"] is None, row["cache"] or 0), default=None)
