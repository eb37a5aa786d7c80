"""Hashes of what is there against the manifest. What is found wrong is written into it: later looks know it for nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Iterable, List

from ansible_collections.modelyard.core.plugins.module_utils.process.staging import place


def check(root: Path, names: Iterable[str], budget_s: float) -> Dict[str, Any]:
    """{checked, damaged, known}: names that were hashed in this call, what of them is wrong, and all that the manifest knows."""
    until = time.monotonic() + budget_s
    manifest = place.read(root)
    files = place.files_of(manifest)
    damaged = dict(manifest.get("damaged") or {})
    checked: List[str] = []
    for name in names:
        if checked and time.monotonic() >= until:
            break
        checked.append(name)
        known, path = files[name], root / name
        try:
            sha256 = place.hashes(path)[0]
        except OSError as exc:
            damaged[name] = f"it cannot be read: {exc.strerror or exc}"
            continue
        if sha256 == known["sha256"]:
            damaged.pop(name, None)
            files[name] = place.entry(path, sha256)
        else:
            damaged[name] = f"its SHA-256 begins with {sha256[:12]}, that of what was staged with {known['sha256'][:12]}"
    if checked:
        place.write(root, manifest["source"], files, damaged)
    return {"checked": checked, "damaged": {name: damaged[name] for name in checked if name in damaged}}


def known(root: Path) -> List[str]:
    """Names that the manifest knows; none without one."""
    return sorted(place.files_of(place.read(root)))


def record(root: Path, source: Dict[str, Any]) -> Dict[str, Any]:
    """Make the manifest of a folder that was made here (a merge) or that is there whole: every file is hashed once."""
    files = {name: place.entry(root / name, place.hashes(root / name)[0]) for name in place.sizes(root)}
    place.write(root, source, files, {})
    return files
