"""Messages on disk that could not be told yet: outbox/ID.json with the message and the ways that still lack it.

A message is told at least once: where an answer was lost on its way, it is told again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from modelyard import files
from modelyard.tell import deliver

#: Older messages, and more of them, are not told any more.
DAYS, MOST = 7, 50


class Outbox:
    """The outbox of one state folder. `words`: what an admin should know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "outbox"
        self.words: list[str] = []

    def waiting(self) -> list[dict[str, Any]]:
        """[{message, ways}], oldest first; what is too old or damaged is removed, and said."""
        found = []
        paths = sorted(self.folder.glob("*.json"))
        for place, path in enumerate(paths):
            entry = files.read_json(path) or {}
            message = entry.get("message")
            whole = isinstance(message, dict) and isinstance(entry.get("ways"), list) and {"id", "at", "headline"} <= set(message)
            old = whole and time.time() - float(message["at"]) > DAYS * 86400  # type: ignore[index]
            if whole and not old and place >= len(paths) - MOST:
                found.append(entry)
                continue
            what = message["headline"] if whole and isinstance(message, dict) else "a damaged message"
            self.words.append(f"never told, and given up: {what} ({path.name})")
            with contextlib.suppress(OSError):
                path.unlink()
        return found

    def send(self, wanted: Sequence[Mapping[str, Any]], message: Mapping[str, Any] | None, limit_s: float) -> list[str]:
        """Tell what waits and then `message`, all ways at once; returns the names of the ways by which `message` was told.

        On a full disk it is told from memory; what could not be told is lost then, and that is said.
        """
        names = [way["name"] for way in wanted]
        entries = [*self.waiting(), *([{"message": message, "ways": names}] if message and names else [])]
        by_way = {name: [e["message"] for e in entries if name in e["ways"]] for name in names}
        failed = deliver.all_ways(wanted, by_way, limit_s)
        for name, left in failed.items():
            self.words += [f"not told by {name}: {why}" for why in list(dict.fromkeys(left.values()))[:1]]
        for entry in entries:
            id = entry["message"]["id"]
            # Somebody may have called with another configuration: for ways that are not in this one it waits on.
            lacking = [name for name in entry["ways"] if name not in failed or id in failed[name]]
            if lacking != entry["ways"] or entry["message"] is message:
                self._keep(entry["message"], lacking)
        return [name for name in names if message and message["id"] not in failed.get(name, {})]

    def _keep(self, message: Mapping[str, Any], names: list[str]) -> None:
        path = self.folder / f"{message['id']}.json"
        try:
            if names:
                self.folder.mkdir(mode=0o700, exist_ok=True)
                files.write_json(path, {"message": message, "ways": names})
                self.words.append(f"it waits in {path} for the next run")
            else:
                path.unlink(missing_ok=True)
        except OSError as exc:
            self.words.append(f"the outbox {path} was not changed: {exc.strerror or exc}")
