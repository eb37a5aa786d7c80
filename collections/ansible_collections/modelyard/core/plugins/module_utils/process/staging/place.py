"""A model's folder while it is staged, and what is written down about it.

<model>/.cache/modelyard/manifest.json   source, revision; of every file its size, SHA-256 and time; damaged ones by name
                        /partial/         half-fetched files: what is there is gone on with
                        /set-aside/       files that were replaced: nothing is deleted, whoever needs the room empties it
                        /staging.json     who is at work; gone when a staging has come to its end
Engines and hubs' own tools leave `.cache` alone, and a model's fingerprint does not count it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout

INSIDE = Path(".cache") / "modelyard"
MANIFEST, STAGING = "manifest.json", "staging.json"
SCHEMA = 1
#: A run that gave no sign of life for so long has died.
SILENT_S = 180.0
BLOCK = 2**20


class Taken(Exception):
    """Another run stages this folder."""


def meta(root: Path) -> Path:
    """Our own folder below a model's."""
    return root / INSIDE


def read(root: Path) -> Dict[str, Any]:
    """The manifest; empty without a whole one."""
    found = layout.read_json(meta(root) / MANIFEST) or {}
    shapes = {"schema": int, "source": dict, "files": dict}
    return found if layout.has_shape(found, shapes) and found["schema"] == SCHEMA else {}


def files_of(manifest: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """What a manifest says of files: {size, sha256, mtime_ns}; entries that people have spoilt are left out."""
    shape = {"size": int, "sha256": str, "mtime_ns": int}
    return {name: entry for name, entry in manifest.get("files", {}).items() if layout.has_shape(entry, shape)}


def write(root: Path, source: Mapping[str, Any], files: Mapping[str, Any], damaged: Mapping[str, str]) -> None:
    """Write the manifest, whole or not at all."""
    _folder(meta(root))
    data = {"schema": SCHEMA, "source": dict(source), "files": dict(files), "damaged": dict(damaged)}
    layout.write_json(meta(root) / MANIFEST, data)


def sizes(root: Path) -> Dict[str, int]:
    """Files by relative name; without what tools keep for themselves."""
    found = {}
    for folder, folders, names in os.walk(str(root), followlinks=True):
        folders[:] = [name for name in folders if name not in (".cache", ".git")]
        for name in names:
            path = Path(folder) / name
            with contextlib.suppress(OSError):
                found[str(path.relative_to(root))] = path.stat().st_size
    return found


def free_bytes(root: Path) -> int:
    """Room on the disk that the folder is, or would be, on."""
    there = next(path for path in (root, *root.parents) if path.exists())
    said = os.statvfs(str(there))
    return said.f_bavail * said.f_frsize


def partial(root: Path, name: str) -> Path:
    """Where a file lies until it is whole and proven."""
    return meta(root) / "partial" / name.replace("%", "%25").replace("/", "%2F")


def mark(half: Path) -> Path:
    """Which version of a file its half-fetched form is of. No name of a source ends like this."""
    return half.with_name(half.name + "%mark")


def partial_bytes(root: Path, name: str) -> int:
    """How much of it is there."""
    try:
        return partial(root, name).stat().st_size
    except OSError:
        return 0


def prepare(root: Path) -> None:
    """Make the folders that a staging needs. An OSError goes to the caller."""
    _folder(meta(root) / "partial")


def _folder(path: Path) -> None:
    """Make a folder that engines of other users can look into, whatever the umask is."""
    for one in reversed([path, *path.parents]):
        if not one.exists():
            with contextlib.suppress(FileExistsError):
                one.mkdir()
                one.chmod(0o755)
                layout.give(one)


def put(root: Path, name: str) -> str:
    """A half-fetched file is whole: move it to its place. Returns where the one lies that it replaces, or ''."""
    fresh, final, aside = partial(root, name), root / name, ""
    with fresh.open("rb") as stream:
        os.fsync(stream.fileno())
    fresh.chmod(0o644)
    layout.give(fresh)
    _folder(final.parent)
    if os.path.lexists(str(final)):
        aside = str(set_aside(root, name))
    fresh.replace(final)
    with contextlib.suppress(FileNotFoundError):
        mark(fresh).unlink()
    return aside


def set_aside(root: Path, name: str) -> Path:
    """Move a file out of the way; it is kept."""
    folder = meta(root) / "set-aside"
    _folder(folder)
    kept = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}-{Path(name).name}"
    (root / name).replace(kept)
    return kept


def hashes(path: Path, git: bool = False) -> Tuple[str, str]:
    """(SHA-256, Git's own name for such a content where it is asked for)."""
    size = path.stat().st_size
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            sha256.update(block)
            if git:
                blob.update(block)
    return sha256.hexdigest(), blob.hexdigest() if git else ""


def entry(path: Path, sha256: str) -> Dict[str, Any]:
    """What the manifest says of a file."""
    seen = path.stat()
    return {"size": seen.st_size, "sha256": sha256, "mtime_ns": seen.st_mtime_ns}


def unchanged(path: Path, known: Mapping[str, Any]) -> bool:
    """By size and time: is it as it was when it was hashed?"""
    try:
        seen = path.stat()
    except OSError:
        return False
    return bool(seen.st_size == known["size"] and seen.st_mtime_ns == known["mtime_ns"])


@contextlib.contextmanager
def at_work(root: Path, holder: Mapping[str, Any], dead_run: str = "") -> Iterator[None]:
    """Held by a run over all its steps. Raises Taken. `dead_run`: a run whose end the control node has seen.

    Between steps only a file says so; a run that was killed is silent, and after SILENT_S another may go on where it stopped.
    """
    prepare(root)
    with (meta(root) / "lock").open("a") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise Taken(f"{root} is being staged by another run right now; wait for it, then run again") from exc
        _refuse_another(root, holder, dead_run)
        layout.write_json(meta(root) / STAGING, dict(holder))
        yield
        if (meta(root) / STAGING).exists():
            layout.write_json(meta(root) / STAGING, dict(holder))


def _refuse_another(root: Path, holder: Mapping[str, Any], dead_run: str) -> None:
    path = meta(root) / STAGING
    other = layout.read_json(path)
    if not other or other.get("run") in (holder["run"], dead_run):
        return
    silent = time.time() - path.stat().st_mtime
    if silent < SILENT_S:
        raise Taken(
            f"{root} is being staged by another run ({other.get('by', 'unknown')}, since {other.get('since', '?')}; last sign of "
            f"life {silent:.0f} s ago). Wait for it; one that has died can be gone on with {SILENT_S:.0f} s after that sign"
        )


def staging(root: Path) -> Optional[Dict[str, Any]]:
    """Who stages this folder, or began to; None when none did, or all came to their end."""
    return layout.read_json(meta(root) / STAGING)


def ended(root: Path, run: str) -> None:
    """The staging of this run is over."""
    if (staging(root) or {}).get("run") == run:
        with contextlib.suppress(OSError):
            (meta(root) / STAGING).unlink()
