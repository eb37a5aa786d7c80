"""The extra variable `only`: which instances a run is about. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import nearest

HOW = "write only=NAME:INDEX or only=NAME, several with commas between them: only=qwen3-14b-32k,minicpm-v-4.5:3"

#: Service -> indexes of its instances; an empty list means all of them. An empty mapping: the run is about everything.
Only = Dict[str, List[int]]


def read(value: Any, services: Sequence[Mapping[str, Any]]) -> Tuple[Only, List[Dict[str, str]]]:
    """What `only` means, and what is wrong with it. A name that is not there never means everything."""
    if value is None or value == "":
        return {}, []
    words = value if isinstance(value, list) else str(value).split(",")
    known = {str(s["name"]): int(s["topology"]["replicas"]) for s in services}
    wanted: Only = {}
    whole = set()
    found = [] if words else [finding("IN-VALUE", "only", "no instance is named", HOW)]
    for word in (str(w).strip() for w in words):
        name, colon, index = word.partition(":")
        if not name or (colon and not (index.isascii() and index.isdigit())):
            found.append(finding("IN-VALUE", "only", f"{word!r} names no instance", HOW))
        elif name not in known:
            what = f"there is no service {name}{nearest(name, known)}"
            found.append(finding("IN-KEY-UNKNOWN", f"only.{name}", what, f"services of this host: {', '.join(known) or 'none'}"))
        elif colon and int(index) >= known[name]:
            what = f"{name} has no instance {int(index)}; it has {'0' if known[name] == 1 else f'0 to {known[name] - 1}'}"
            do = f"name one that is there; what runs beyond is stopped by deploy.yml -e only={name} -e modelyard_restart=true"
            found.append(finding("IN-VALUE", "only", what, do))
        else:
            wanted.setdefault(name, [])
            if not colon:
                whole.add(name)
            elif int(index) not in wanted[name]:
                wanted[name].append(int(index))
    return {name: [] if name in whole else sorted(indexes) for name, indexes in wanted.items()}, found


def concerns(only: Mapping[str, Sequence[int]], service: str, index: int = -1) -> bool:
    """Is the run about this instance? Without an index: about any of the service."""
    if not only:
        return True
    return service in only and (index < 0 or not only[service] or index in only[service])
