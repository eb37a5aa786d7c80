"""Which backends are drained, kept in a file, so that a restart of the gateway does not give them requests again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable

from modelyard_gateway.backends import Backends


class Drains:
    """The file, or none when the path is empty. A file that cannot be used is said and stops nothing."""

    def __init__(self, path: str) -> None:
        self._path = path

    def restore(self, backends: Backends, say: Callable[[str], None]) -> None:
        """Drain what was drained before."""
        if not self._path or not Path(self._path).exists():
            return
        try:
            kept = json.loads(Path(self._path).read_text(encoding="utf-8"))
            drained, known = kept["drained"], kept["known"]
            if not all(isinstance(name, str) for name in [*drained, *known]):
                raise TypeError("wanted names")
        except (OSError, ValueError, KeyError, TypeError) as error:
            say(f"{self._path}: which backends are drained cannot be read ({error}): only those of the configuration are")
            return
        backends.restore(drained, known)

    def save(self, backends: Backends, say: Callable[[str], None]) -> None:
        """Write it anew, whole or not at all."""
        if not self._path:
            return
        here = [backend for backend in backends.all if not backend.gone]
        kept = {"drained": [b.name for b in here if b.draining], "known": [b.name for b in here]}
        file = Path(self._path)
        new = file.with_name(file.name + ".new")
        try:
            new.write_text(json.dumps(kept) + "\n", encoding="utf-8")
            new.replace(file)
        except OSError as error:
            say(
                f"{self._path}: which backends are drained cannot be kept ({error.strerror}): a restart of the gateway forgets it"
            )
