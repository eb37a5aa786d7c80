"""Fetching for a while. Each call goes on where the last one stopped, also after a cut connection, a full disk or a reboot."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import model_files
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import place, sources, web

BLOCK = 2**18
#: Kept free on the disk: a host whose disk is full to the last byte has other troubles than a model.
SPARE = 256 * 2**20


#: A source whose files are brought by the control node, a piece a call.
FED = "control"


class Full(Exception):
    """No room; the text says how much is missing."""


class Step:
    """One call. `files`: the manifest's, which grows; `trouble`: what ended it early; `failed`: {name: why it cannot be had}."""

    def __init__(self, root: Path, source: Mapping[str, Any], token: str, budget_s: float) -> None:
        self.root, self.source, self.token = root, source, token
        self.until = time.monotonic() + budget_s
        manifest = place.read(root)
        self.files: Dict[str, Any] = place.files_of(manifest)
        self.damaged: Dict[str, str] = dict(manifest.get("damaged") or {})
        self.told = dict(manifest.get("source") or {})
        self.failed: Dict[str, str] = {}
        self.aside: List[str] = []
        self.trouble: Dict[str, Any] = {}
        self.now = ""

    def run(self, entries: Sequence[Mapping[str, Any]], told: Mapping[str, Any]) -> Dict[str, Any]:
        """{done, bytes, failed, aside, trouble, now, at}: names that are there and proven, bytes that are there of all.

        `told`: what the manifest is to say about the source.
        """
        self.told = dict(told)
        done: List[str] = []
        for entry in entries:
            if time.monotonic() >= self.until and not self.holds(entry):
                break
            self.now = str(entry["name"])
            try:
                whole = self.holds(entry) or self._adopt(entry) or self._fetch(entry)
            except web.Trouble as exc:
                if exc.passing:
                    self.trouble = {"words": str(exc), "pause_s": exc.pause_s, "name": entry["name"], "status": exc.status}
                    break
                self.failed[entry["name"]] = str(exc)
                continue
            if not whole:
                break
            done.append(str(entry["name"]))
        have = sum(self._have(entry) for entry in entries)
        at = place.partial_bytes(self.root, self.now) if self.now else 0
        kept = {"failed": self.failed, "aside": self.aside, "trouble": self.trouble, "now": self.now, "at": at}
        return {"done": done, "bytes": have, **kept}

    def append(self, piece: Mapping[str, Any]) -> None:
        """A piece that the control node has brought: {name, offset, file, sha256}. One that is there already is no error."""
        self.now = str(piece["name"])
        path, there = place.partial(self.root, self.now), place.partial_bytes(self.root, self.now)
        brought = Path(piece["file"])
        if there != piece["offset"] or place.hashes(brought)[0] != piece["sha256"]:
            return  # the answer says how much is there, and the control node goes on from that
        if brought.stat().st_size + SPARE > place.free_bytes(self.root):
            raise Full(self._room(brought.stat().st_size))
        with brought.open("rb") as source, path.open("ab") as stream:
            shutil.copyfileobj(source, stream, BLOCK)

    def holds(self, entry: Mapping[str, Any]) -> bool:
        """Is it there, unchanged since it was hashed, and what the source has?"""
        known = self.files.get(entry["name"])
        if not known or entry["name"] in self.damaged or not place.unchanged(self.root / entry["name"], known):
            return False
        return not model_files.differing(entry, known)

    def _have(self, entry: Mapping[str, Any]) -> int:
        known = self.files.get(entry["name"])
        return int(known["size"]) if known and self.holds(entry) else place.partial_bytes(self.root, entry["name"])

    def _adopt(self, entry: Mapping[str, Any]) -> bool:
        """A file that somebody else put there is taken when its size and hash are right; gigabytes are not fetched twice."""
        path = self.root / entry["name"]
        if not path.is_file() or (entry["size"] is not None and path.stat().st_size != entry["size"]):
            return False
        if not path.stat().st_size and entry["size"] != 0:
            return False
        sha256, git = place.hashes(path, bool(entry.get("git")))
        seen = place.entry(path, sha256)
        known = self.files.get(entry["name"])
        before = known["sha256"] if known else sha256
        if before != sha256 or model_files.differing(entry, {**seen, "git": git}):
            return False
        self._record(entry["name"], seen)
        return True

    def _record(self, name: str, seen: Mapping[str, Any]) -> None:
        self.files[name] = dict(seen)
        self.damaged.pop(name, None)
        place.write(self.root, self.told, self.files, self.damaged)

    def _fetch(self, entry: Mapping[str, Any]) -> bool:
        """False when time ran out before it was whole."""
        path = place.partial(self.root, entry["name"])
        there = place.partial_bytes(self.root, entry["name"])
        if entry["size"] is None or there != entry["size"] or not there:
            whole = self._receive(entry, path, there)
            if not whole:
                return False
        sha256, git = place.hashes(path, bool(entry.get("git")))
        wrong = model_files.differing(entry, {**place.entry(path, sha256), "git": git})
        if wrong:
            path.unlink()  # what came is of no use to anybody; the next attempt begins anew
            raise web.Trouble(f"{entry['name']}: what came is wrong ({wrong})", web.WRONG, True, 1.0)
        aside = place.put(self.root, entry["name"])
        self.aside += [aside] if aside else []
        self._record(entry["name"], place.entry(self.root / entry["name"], sha256))
        return True

    def _receive(self, entry: Mapping[str, Any], path: Path, there: int) -> bool:
        if self.source["from"] == FED:
            return False
        left = (entry["size"] or 0) - there
        if left + SPARE > place.free_bytes(self.root):
            raise Full(self._room(left))
        blocks, begin = self._opened(entry, path, there)
        try:
            with path.open("r+b" if begin else "wb") as stream:
                if begin:
                    stream.truncate(stream.seek(begin))
                for block in blocks:
                    stream.write(block)
                    if time.monotonic() >= self.until:
                        break
                else:
                    return self._came_whole(entry, stream.tell())
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Full(self._room((entry["size"] or 0) - place.partial_bytes(self.root, entry["name"]))) from exc
            raise
        return False

    @staticmethod
    def _came_whole(entry: Mapping[str, Any], came: int) -> bool:
        if entry["size"] is not None and came < entry["size"]:
            raise web.Trouble(f"{entry['name']}: the connection ended after {came} of {entry['size']} bytes", 0, True, 1.0)
        return True

    def _room(self, left: int) -> str:
        free = place.free_bytes(self.root)
        need = max(0, left + SPARE - free)
        there = f"on the disk of {self.root} ({free / 2**20:.0f} MiB are free)"
        return f"{need / 2**20:.0f} MiB of room are missing for {self.now} {there}"

    def _opened(self, entry: Mapping[str, Any], path: Path, there: int) -> Any:
        """(blocks, the byte that they begin with)."""
        if self.source["from"] == "folder":
            return _read(entry["url"], there), there
        mark = place.mark(path)
        asked = {**sources.headers(self.source, self.token), "Accept-Encoding": "identity"}
        said = (layout.read_json(mark) or {}).get("version")
        hashed = entry["sha256"] or entry["git"]
        if there and (hashed or said):
            # Without a hash to prove it, what comes must be of the very file that the first half is of.
            asked.update({"Range": f"bytes={there}-", **({} if hashed else {"If-Range": str(said)})})
        else:
            there = 0
        try:
            answer = web.ask(entry["url"], asked)
        except web.Trouble as exc:
            if exc.status == 416:  # it is shorter than what is there
                path.unlink()
                raise web.Trouble(str(exc), 416, True, 1.0) from exc
            raise
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        if not version.startswith("W/"):
            layout.write_json(mark, {"version": version})
        ranged = answer.status == 206 and str(answer.headers.get("Content-Range", "")).startswith(f"bytes {there}-")
        return _received(answer, entry["url"]), there if ranged else 0


def _received(answer: Any, url: str) -> Iterator[bytes]:
    said = str(answer.headers.get("Content-Length") or "")
    left = int(said) if said.isdigit() else None
    with answer:
        while left is None or left > 0:
            try:
                block = answer.read1(BLOCK)  # what has come: a server that drips must not keep us beyond our time
            except (OSError, http.client.HTTPException) as exc:
                raise web.lost(exc, url) from exc
            if not block:
                break
            left = None if left is None else left - len(block)
            yield block
    if left:
        raise web.Trouble(f"{web.shown(url)}: the connection ended {left} bytes early", 0, True, 1.0)


def _read(path: str, begin: int) -> Iterator[bytes]:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            stream.seek(begin)
            yield from iter(lambda: stream.read(BLOCK), b"")
    except OSError as exc:
        raise web.Trouble(f"{os.fspath(path)}: {exc.strerror or exc}") from exc
