"""One deploy or teardown at a time: the lock file of a home, which names its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout


class Held(Exception):
    """Somebody else holds the lock; `holder` is what the file says (None: it cannot be read)."""

    def __init__(self, holder: Optional[Dict[str, Any]]) -> None:
        super().__init__("held")
        self.holder = holder


def path(home: str) -> Path:
    """Where the lock of a home lies."""
    return Path(home) / "lock"


@contextlib.contextmanager
def _guard(home: str) -> Iterator[None]:
    """Held while the lock file is looked at and changed, so that no two runs do it at once; the kernel frees it."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def take(home: str, holder: Dict[str, Any], dead_run: str = "") -> bool:
    """Take the lock; True when it is newly taken, False when this run has it already. Raises Held.

    A lock of the run `dead_run`, whose end the control node has seen, is taken over.
    """
    with _guard(home):
        current = layout.read_json(path(home))
        if current and current.get("run") == holder["run"]:
            return False
        if path(home).exists() and not (current and dead_run and current.get("run") == dead_run):
            raise Held(current)
        layout.write_json(path(home), holder)
    return True


def release(home: str, run: str) -> bool:
    """Remove the lock if this run holds it."""
    if not Path(home).is_dir():
        return False
    with _guard(home):
        current = layout.read_json(path(home))
        if current and current.get("run") == run:
            with contextlib.suppress(FileNotFoundError):
                path(home).unlink()
            return True
    return False
