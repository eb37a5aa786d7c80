"""Wheels that arrive on a host: each is taken when it is what its wheelhouse.json says, and that file comes last."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from typing import Any, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey.wheelhouse import CHUNK, MANIFEST, sha256, wrong


class Failed(Exception):
    """Something arrived that is not what was sent; the text names it."""


def free_mib(folder: str) -> int:
    """Room on the disk of a folder that need not be there yet."""
    place = Path(folder)
    while not os.path.isdir(str(place)):
        place = place.parent
    return shutil.disk_usage(str(place)).free >> 20


def take(folder: str, portion: str, said: Mapping[str, Any]) -> bool:
    """Unpack an archive that has arrived; is anything new? `said`: the whole wheelhouse.json."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    taken = False
    with tarfile.open(portion) as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            if content is None or entry.name not in said["files"]:
                continue
            part = place / f".{entry.name}.{os.getpid()}"
            try:
                with part.open("wb") as file:
                    shutil.copyfileobj(content, file, CHUNK)
                if sha256(part) != said["files"][entry.name]["sha256"]:
                    raise Failed(f"{entry.name} is not what {MANIFEST} of the control node says; make that wheelhouse anew")
                part.chmod(0o644)
                part.replace(place / entry.name)
            finally:
                if part.exists():
                    part.unlink()
            taken = True
    return taken


def settle(folder: str, said: Mapping[str, Any]) -> bool:
    """All are there: let the folder count. Is that new?"""
    place = Path(folder) / MANIFEST
    if layout.read_json(place) == said:
        return False
    layout.write_json(place, dict(said))
    return True


def lacking(folder: str, said: Mapping[str, Any]) -> List[str]:
    """Names of wheels that are not there as they should be."""
    return wrong(Path(folder), said["files"])
