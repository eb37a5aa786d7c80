"""One deploy or teardown at a time: the lock file of a home, which names its holder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout


class Held(Exception):
    """Somebody else holds the lock; `holder` is what the file says (None: it cannot be read)."""

    def __init__(self, holder: Optional[Dict[str, Any]]) -> None:
        super().__init__("held")
        self.holder = holder


def path(home: str) -> Path:
    """Where the lock of a home lies."""
    return Path(home) / "lock"


def take(home: str, holder: Dict[str, Any], dead_run: str = "") -> bool:
    """Take the lock; True when it is newly taken, False when this run has it already. Raises Held.

    A lock of the run `dead_run`, whose end the control node has seen, is taken over: moved aside in one step, so that of
    two runs that see the same dead holder only one goes on.
    """
    file = path(home)
    for _ in range(2):
        try:
            handle = os.open(str(file), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            current = layout.read_json(file)
            if current and current.get("run") == holder["run"]:
                return False
            if current and dead_run and current.get("run") == dead_run:
                aside = file.with_name(f"lock.dead.{os.getpid()}")
                file.rename(aside)
                moved = layout.read_json(aside) or {}
                if moved.get("run") != dead_run:  # somebody else was faster: give it back
                    os.link(str(aside), str(file))
                    aside.unlink()
                    raise Held(moved) from None
                aside.unlink()
                continue
            raise Held(current) from None
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(holder, stream)
        return True
    raise Held(layout.read_json(file))


def release(home: str, run: str) -> bool:
    """Remove the lock if this run holds it."""
    current = layout.read_json(path(home))
    if current and current.get("run") == run:
        path(home).unlink()
        return True
    return False
