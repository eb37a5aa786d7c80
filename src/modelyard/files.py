"""Small files that are written whole or not at all, for their owner alone."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, data: bytes) -> None:
    """A reader never sees half a file, and a full disk leaves the old one. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()


def write_text(path: Path, text: str) -> None:
    """The same for text. Lone surrogates, as broken output of a host can hold them, become question marks."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_json(path: Path, data: Any) -> None:
    """The same for data."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no readable, whole one: people and full disks touch files."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
