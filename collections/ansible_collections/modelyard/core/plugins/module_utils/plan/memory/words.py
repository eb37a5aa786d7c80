"""The whole memory plan as people read it. Pure."""

from __future__ import annotations

import textwrap
from typing import Any, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.memory.line import memory_line
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import size
from ansible_collections.modelyard.core.plugins.module_utils.plan.text import WIDTH, table


def report(services: Sequence[Mapping[str, Any]], host: str) -> str:
    """The whole memory plan of a host. `services`: as planned."""
    lines = [f"Memory plan for {host}"] if services else [f"Memory plan for {host}: no services"]
    for service in services:
        name, found = service["name"], service["memory"]
        lines += [f"{name}: {memory_line(found)}", *_cards(found), *_cache(found)]
        lines += [f"  not in the figures: {gap}" for gap in found["gaps"]]
        lines += [f"  advice: {line}" for line in service["advice"]]
        lines += [f"  -> {line}" for line in found["change"]]
    return "\n".join(line for one in lines for line in _folded(one))


def _folded(line: str) -> List[str]:
    """Long sentences are broken; rows of tables are not."""
    sentence = line.lstrip().startswith(("not in", "advice", "->", "weights", "KV", "estimated"))
    if not sentence or len(line) <= WIDTH:
        return [line]
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * 5, break_long_words=False, break_on_hyphens=False)


def _cards(found: Mapping[str, Any]) -> List[str]:
    rows: List[Sequence[Any]] = [
        (
            "instance",
            "card",
            "total",
            "others",
            "asked",
            "weights",
            "activations*",
            "graphs*",
            "context*",
            "KV cache",
            "requests",
            "",
        )
    ]
    for row in found["rows"]:
        told = row["estimated"] if row["total"] else {}
        graphs = size(told.get("graphs")) + ("" if found["graphs_inside"] or not told else " on top")
        rows.append(
            (
                row["instance"],
                "-" if row["card"] is None else row["card"],
                *(size(row[key]) if row["total"] else "-" for key in ("total", "others", "asked")),
                size(row["weights"]) if row["weights"] else "?",
                *((size(told["activation"]), graphs, size(told["context"])) if told else ("-", "-", "-")),
                size(row["cache"]) + ("*" if row["total"] else ""),
                "?" if row["fit"] is None else row["fit"],
                row["verdict"] + (", surely" if row["surely"] and row["lacks"] else ""),
            )
        )
    lines = table(rows)
    if any(row["total"] for row in found["rows"]):
        lines.append("  * estimated before a start: a start shows the true figures, which can differ by a gigabyte and more")
    return lines


def _cache(found: Mapping[str, Any]) -> List[str]:
    kv, weights = found["kv"], found["weights"]
    source = {"headers": "headers of the files", "sizes": "sizes of the files", "nothing": "no files"}[weights["source"]]
    lines = [
        f"  weights: {size(weights['disk'])} on disk, {size(weights['rank'])} on each of {found['ranks']} rank(s) ({source})"
    ]
    if kv["token_bytes"] is None:
        return [*lines, "  KV cache: config.json does not tell its size"]
    kinds = ", ".join(_kind(kind) for kind in kv["kinds"])
    one = f"; a request of {found['tokens']} tokens takes {size(kv['request_bytes'])}" if kv["request_bytes"] else ""
    block = f"blocks of {kv['block_tokens']} tokens ({size(kv['block_bytes'])})"
    lines.append(f"  KV cache: {size(kv['token_bytes'])} a token and rank; {block}; layers: {kinds}{one}")
    set_as = f"{found['batched']} tokens a batch, {found['seqs']} requests at once"
    return [*lines, f"  estimated with: {set_as}"]


def _kind(kind: Mapping[str, Any]) -> str:
    more = f" ({kind['window']} tokens)" if kind["window"] else f" ({size(kind['state_bytes'])})" if kind["state_bytes"] else ""
    return f"{kind['layers']} {kind['name']}{more}"
