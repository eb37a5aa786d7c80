"""The state folder: run records with what belongs to them, what was told, what waits to be told.

runs/ID.json .xml .html .log    one run     latest.json .xml .html .log    links to the newest
history.json                    id, begin and answer of each; made again from the records when it is lost
told.json                       which answers were told last            outbox/    what could not be told yet
reserve                         room that is given up on a full disk, so that what was told is not told at every run
work/                           only while a run is under way
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from modelyard import files
from modelyard.accept import answer, changes, retention

KINDS = ("json", "xml", "html", "log")
ID = re.compile(r"[0-9]{8}T[0-9]{6}Z")
#: Ansible's own output of a run: so much of its beginning and of its end is kept.
LOG_HEAD, LOG_TAIL = 2**18, 3 * 2**18
#: What a working folder must be able to take, so that a run does not begin on a disk that is full.
ROOM_BYTES = 4 * 2**20
#: More than told.json of a hundred hosts takes.
RESERVE, RESERVE_BYTES = "reserve", 2**18
FULL = (errno.ENOSPC, errno.EDQUOT)


class Store:
    """One state folder. What goes wrong without stopping the run is kept in `words`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.words: list[str] = []

    def prepare(self) -> str:
        """Make the folders; returns why nothing can be kept there for lack of rights, or nothing."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.runs.mkdir(exist_ok=True, mode=0o700)
        except OSError as exc:
            return f"{self.runs} cannot be made: {exc.strerror}"
        for place in (self.folder, self.runs):
            if not os.access(place, os.W_OK | os.X_OK):
                return f"{place} is not writable for this user"
        if not (self.folder / RESERVE).exists():
            with contextlib.suppress(OSError):
                # No zeros: some file systems give them no room.
                files.write_bytes(self.folder / RESERVE, os.urandom(RESERVE_BYTES))
        return ""

    def new_id(self) -> str:
        """An id that no run has: the time in UTC."""
        while True:
            id = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            if not any((self.runs / f"{id}.{kind}").exists() for kind in KINDS):
                return id
            time.sleep(0.1)

    def history(self) -> list[dict[str, Any]]:
        """[{id, began, answer, limit}] of all whole records, oldest first. A damaged record is named and left where it is."""
        known = {e["id"]: e for e in (files.read_json(self.folder / "history.json") or {}).get("runs") or [] if _entry(e)}
        found = []
        for path in sorted(self.runs.glob("*.json")):
            if ID.fullmatch(path.stem):
                entry = known.get(path.stem) or summary(files.read_json(path) or {}, path.stem)
                if entry:
                    found.append(entry)
                else:
                    self.words.append(f"the record {path} is damaged and not used; remove it when nobody needs it")
        return found

    def record(self, id: str) -> dict[str, Any] | None:
        """One record; None for one that is gone or damaged."""
        return files.read_json(self.runs / f"{id}.json")

    def told(self) -> changes.Told | None:
        """What was told; None when that is not known, because the file is damaged. It is moved aside then."""
        path = self.folder / "told.json"
        if not path.exists():
            return {}
        data = (files.read_json(path) or {}).get("subjects")
        if changes.usable(data):
            return dict(data or {})
        aside = path.with_name("told.json.damaged")
        with contextlib.suppress(OSError):
            path.replace(aside)
        self.words.append(f"{path} was damaged and is now {aside}; the last record says what was told")
        return None

    def put(self, name: str, write: Callable[..., None], data: Any, with_reserve: bool = False) -> None:
        """Write one of the files; a full disk costs only that file, and is said. `with_reserve`: it costs the reserve first."""
        path = self.folder / name
        try:
            try:
                write(path, data)
            except OSError as exc:
                if not (with_reserve and exc.errno in FULL):
                    raise
                (self.folder / RESERVE).unlink(missing_ok=True)
                write(path, data)
        except OSError as exc:
            self.words.append(f"{path} was not written: {exc.strerror or exc}")

    def link(self, id: str) -> None:
        """latest.* points to this run."""
        for kind in KINDS:
            if (self.runs / f"{id}.{kind}").exists():
                with contextlib.suppress(OSError):
                    fresh = self.folder / f".latest.{kind}"
                    fresh.unlink(missing_ok=True)
                    fresh.symlink_to(f"runs/{id}.{kind}")
                    fresh.replace(self.folder / f"latest.{kind}")

    def tidy(self, history: Sequence[Mapping[str, Any]], now: float, runs: int, days: float) -> list[Mapping[str, Any]]:
        """Remove what is beyond the limits; returns what stays. Damaged records go when they are too old."""
        gone = set(retention.superfluous(history, now, runs, days))
        known = {entry["id"] for entry in history}
        for path in self.runs.iterdir():
            with contextlib.suppress(OSError):
                lost = ID.fullmatch(path.stem) and path.stem not in known and now - path.stat().st_mtime > days * 86400
                if path.stem in gone or lost or (path.name.startswith(".") and now - path.stat().st_mtime > 86400):
                    path.unlink()
        return [entry for entry in history if entry["id"] not in gone]

    @contextlib.contextmanager
    def work(self) -> Iterator[Path]:
        """A folder for ansible-runner and Ansible during the run: here, or where there is room when this disk is full."""
        old = self.folder / "work"
        shutil.rmtree(old, ignore_errors=True)  # of a run that was killed: the lock is ours
        chosen = None
        for parent in (self.folder, Path("/dev/shm"), Path(tempfile.gettempdir())):
            with contextlib.suppress(OSError):
                chosen = Path(tempfile.mkdtemp(prefix="modelyard-", dir=parent)) if parent != self.folder else old
                chosen.mkdir(mode=0o700, exist_ok=True)
                room = chosen / "room"
                room.write_bytes(bytes(ROOM_BYTES))
                room.unlink()
                break
            if chosen:
                shutil.rmtree(chosen, ignore_errors=True)
                chosen = None
        if chosen is None:
            raise OSError("no disk has room for it: neither the state folder, nor /dev/shm, nor the temporary folder")
        if chosen != old:
            self.words.append(f"the disk of {self.folder} is full: the run worked in {chosen.parent}; make room there")
        try:
            yield chosen
        finally:
            shutil.rmtree(chosen, ignore_errors=True)


def summary(record: Mapping[str, Any], id: str) -> dict[str, Any] | None:
    """A record as the history has it; None for one that is damaged."""
    entry = {"id": id, "began": record.get("began"), "answer": record.get("answer"), "limit": record.get("limit", "")}
    return entry if _entry(entry) and record.get("schema") == 1 else None


def _entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("id"), str)
        and isinstance(entry.get("began"), (int, float))
        and entry.get("answer") in answer.ORDER
    )


def bounded(text: str) -> str:
    """Ansible's output, with its middle left out where it is long."""
    if len(text) <= LOG_HEAD + LOG_TAIL:
        return text
    return f"{text[:LOG_HEAD]}\n... {len(text) - LOG_HEAD - LOG_TAIL} characters left out ...\n{text[-LOG_TAIL:]}"
