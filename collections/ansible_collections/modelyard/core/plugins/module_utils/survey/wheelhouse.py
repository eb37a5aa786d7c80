"""Folders of wheels on a host: what each says of itself in wheelhouse.json, and are its files the ones that it names?

Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any, Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.process import layout

MANIFEST = "wheelhouse.json"
CHUNK = 1 << 20
#: Folders of wheels as a vendor hands them out: so far down, and no more files than this.
DEPTH, MANY = 3, 2000


def look(path: str) -> Dict[str, Any]:
    """{path, problem, folders: {name: its wheelhouse.json without the hashes, and what is missing}}.

    Compares sizes; it hashes nothing, because these are gigabytes.
    """
    found: Dict[str, Any] = {"path": path, "problem": "", "folders": {}}
    if not path:
        return found
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    except OSError as exc:
        found["problem"] = f"it cannot be looked into: {exc.strerror or exc}"
        return found
    for name in names:
        made = layout.read_json(Path(path) / name / MANIFEST)
        if made is None:
            continue
        files = made.pop("files", {})
        differ = _sizes(Path(path) / name, files)
        denied = [file for file in files if file not in differ and not os.access(f"{path}/{name}/{file}", os.R_OK)]
        problem = _words(differ) or (f"this user may not read {len(denied)} of its files: {denied[0]}" if denied else "")
        found["folders"][name] = {**made, "wheels": len(files), "problem": problem}
    return found


def loose(path: str) -> Dict[str, Any]:
    """Wheels that lie in a folder and a few below it: {path, problem, files: {place below the folder: what is wrong with it}}.

    Of each only the end is read: an archive that was not copied whole has none.
    """
    found: Dict[str, Any] = {"path": path, "problem": "", "files": {}}
    if not path:
        return found
    if not os.path.isdir(path):
        return {**found, "problem": "there is no such folder that this user may look into"}
    for folder, below, names in os.walk(path):
        if os.path.relpath(folder, path).count(os.sep) >= DEPTH:
            below.clear()
        for name in names:
            place = f"{folder}/{name}"
            if name.endswith(".whl") and len(found["files"]) < MANY:
                found["files"][os.path.relpath(place, path)] = _whole(place)
    return found


def _whole(place: str) -> str:
    """Empty for a whole archive. What is no plain file is not opened: a pipe of somebody's would never end."""
    if not os.access(place, os.R_OK):
        return "this user may not read it"
    if not Path(place).is_file():
        return "it is no file"
    return "" if zipfile.is_zipfile(place) else "it is not whole: its end is missing"


def damaged(folder: str) -> List[str]:
    """Names of wheels that are not what wheelhouse.json says, by their SHA-256; reads all of them. It must be there."""
    made = layout.read_json(Path(folder) / MANIFEST)
    if made is None:
        return [MANIFEST]
    return wrong(Path(folder), made.get("files", {}))


def wrong(folder: Path, files: Dict[str, Any]) -> List[str]:
    """Names of files that are missing or not what they should be; what has the right size is read."""
    found = _sizes(folder, files)
    return found + [name for name, fact in files.items() if name not in found and sha256(folder / name) != fact["sha256"]]


def _sizes(folder: Path, files: Dict[str, Any]) -> List[str]:
    """Names of files that are missing or have another size."""
    found = []
    for name, fact in files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError:
            size = -1
        if size != fact["size"]:
            found.append(name)
    return found


def _words(names: List[str]) -> str:
    if not names:
        return ""
    return f"{len(names)} of its files are missing or have another size: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"


def sha256(path: Path) -> str:
    """Of a file; empty for one that cannot be read."""
    sums = hashlib.sha256()
    try:
        with path.open("rb") as wheel:
            for chunk in iter(lambda: wheel.read(CHUNK), b""):
                sums.update(chunk)
    except OSError:
        return ""
    return sums.hexdigest()
