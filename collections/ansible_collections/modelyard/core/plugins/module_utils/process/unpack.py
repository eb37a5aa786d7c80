"""Unpacking an archive beside its place and renaming it when it is whole. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tarfile
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import dtk

#: What an archive of a toolkit may hold, entries; more is none.
ENTRIES = 2_000_000
DAMAGED = (tarfile.TarError, EOFError, ValueError)


class Failed(Exception):
    """It could not be unpacked; the text says why."""


def look(path: str) -> Dict[str, object]:
    """{top, mib, problem} of an archive, by reading all of it and writing nothing."""
    try:
        with tarfile.open(path) as archive:
            members: List[dtk.Member] = []
            for entry in archive:
                members.append(_member(entry))
                if len(members) > ENTRIES:
                    return {"top": "", "mib": 0, "problem": f"it has more than {ENTRIES} entries"}
    except (*DAMAGED, OSError) as exc:
        return {"top": "", "mib": 0, "problem": f"it cannot be read to its end: {exc}"}
    top, mib, problem = dtk.judge_members(members)
    return {"top": top, "mib": mib, "problem": problem}


def _member(entry: tarfile.TarInfo) -> dtk.Member:
    kinds: Tuple[Tuple[bool, str], ...] = (
        (entry.isreg(), "file"),
        (entry.isdir(), "folder"),
        (entry.issym(), "link"),
        (entry.islnk(), "hardlink"),
    )
    return dtk.Member(entry.name, next((kind for yes, kind in kinds if yes), "other"), entry.size, entry.linkname)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Held while something is unpacked into a folder; the kernel lets go of it when this process dies."""
    handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise Failed(f"another run is unpacking into {folder} right now; wait for it, then run again") from exc
        yield
    finally:
        os.close(handle)


def unpack(path: str, top: str, place: Path) -> Path:
    """The folder `top` of an archive that was judged, as a folder beside `place` that counts nothing yet.

    What an interrupted run has left there is removed first. All of it belongs to who runs this, and nobody else may write to it.
    """
    beside = place.with_name(f".{place.name}.unpacking")
    shutil.rmtree(str(beside), ignore_errors=True)
    try:
        beside.mkdir(mode=0o700)
        with tarfile.open(path) as archive:
            # Newer Pythons refuse by themselves once more what was refused when the archive was judged.
            setattr(archive, "extraction_filter", getattr(tarfile, "data_filter", None))  # noqa: B010  (older ones do not have it)
            for entry in archive:
                entry.uid, entry.gid = os.geteuid(), os.getegid()
                entry.uname = entry.gname = ""
                # Nobody else writes there, nothing gets other rights when it is run, and everybody may read.
                entry.mode = (entry.mode & 0o755) | 0o444 | (0o111 if entry.isdir() else 0) | 0o200
                archive.extract(entry, str(beside), set_attrs=not entry.issym())
    except (*DAMAGED, OSError) as exc:
        shutil.rmtree(str(beside), ignore_errors=True)
        raise Failed(f"{path} could not be unpacked to {place}: {exc}") from exc
    return beside / top


def settle(fresh: Path, place: Path) -> None:
    """Give the unpacked folder its name, at once; what is left of the folder around it goes."""
    fresh.rename(place)
    shutil.rmtree(str(fresh.parent), ignore_errors=True)


def discard(fresh: Path) -> None:
    """Remove what was unpacked and is not what it should be."""
    shutil.rmtree(str(fresh.parent), ignore_errors=True)
