"""Which cards and which topology the inventory means: `all`, a number, a list; a preset. Pure functions."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

ALL = ["all"]
#: Names of topologies: (replicas, tensor_parallel_size).
PRESETS = {"tp2": (1, 2), "8xtp1": (8, 1)}
#: More cores or cards has no host; a longer number is an id that YAML has read as a number.
LARGEST_INDEX = 9999
ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
#: As nvidia-smi and the tools of DCUs write them.
STABLE_ID = re.compile(r"gpu-[0-9a-f][0-9a-f-]{7,63}|0x[0-9a-f]{4,32}")
QUOTES = "YAML reads it as a number: write ids and PCI addresses in quotes"
HOW = 'write all, a number of cards, or a list such as [0, 1] or ["GPU-..."]'


class Cards(NamedTuple):
    """`names`: `["all"]`, or indexes and stable ids as text, in order. `limit`: at most so many of them; None for no limit."""

    names: List[str]
    limit: Optional[int]


def address(text: str) -> str:
    """A PCI address as the survey has it (`0000:01:00.0`); empty for what is none."""
    found = ADDRESS.fullmatch(text.strip().lower())
    return f"{int(found.group(1) or '0', 16):04x}:{found.group(2)}" if found else ""


def cards(value: Any, cores: bool, where: str) -> Tuple[Cards, List[Dict[str, str]]]:
    """What `cards` of a service means. `cores`: a card is a CPU core, which has no other name than its index."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")] if "," in value else value.strip()
    count = number(value) if not isinstance(value, list) else None
    if count is not None:
        if count >= 1:
            return Cards(list(ALL), count), []
        return Cards([], None), [
            _wrong(where, f"{value}: a number of cards is at least 1", "for one card by its index write [0]")
        ]
    listed = value if isinstance(value, list) else [value]
    if listed == ALL:
        return Cards(list(ALL), None), []
    names, problems = [], []
    for item in listed:
        name, problem = _name(item, cores)
        if problem or name in names:
            problems.append(problem or f"{item} stands there twice")
        names.append(name)
    if not listed:
        problems.append("no card is named")
    return Cards(names, None), [_wrong(where, "; ".join(problems), HOW)] if problems else []


def _wrong(where: str, what: str, do: str) -> Dict[str, str]:
    return finding("IN-VALUE", f"{where}.cards", what, do)


def _name(item: Any, cores: bool) -> Tuple[str, str]:
    """(a card's name in one form, what is wrong with it)."""
    text = str(item).strip().lower()
    if isinstance(item, float) or (isinstance(item, int) and item > LARGEST_INDEX):
        return text, f"{item} is no index of a card. {QUOTES}"
    if text.isascii() and text.isdigit() and int(text) <= LARGEST_INDEX and not isinstance(item, bool):
        return str(int(text)), ""
    if cores:
        return text, f"{item} is no index of a CPU core"
    if address(text):
        return address(text), ""
    if STABLE_ID.fullmatch(text):
        return text, ""
    return text, f"{item} is neither an index, nor a uuid (GPU-...), a unique id (0x...) or a PCI address (0000:01:00.0)"


def with_preset(topology: Any, where: str) -> Tuple[Any, List[Dict[str, str]]]:
    """A topology as it was written, with the numbers of its preset; numbers that say something else are refused."""
    preset = topology.get("preset") if isinstance(topology, Mapping) else None
    if not isinstance(preset, str) or preset not in PRESETS:
        return topology, []
    meant = dict(zip(("replicas", "tensor_parallel_size"), PRESETS[preset]))
    found = [
        finding(
            "IN-VALUE",
            f"{where}.topology.{key}",
            f"the preset {preset} means {key} {wanted}, and {topology[key]} is written beside it",
            "remove the preset or the number",
        )
        for key, wanted in meant.items()
        if topology.get(key) is not None and number(topology[key]) != wanted
    ]
    return {**topology, **meant}, found
