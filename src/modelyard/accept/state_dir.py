"""Where the state of an inventory is kept when nobody says where."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path


def usual(inventories: Sequence[str], environ: Mapping[str, str] = os.environ) -> Path:
    """$XDG_STATE_HOME/modelyard/accept/NAME-HASH. Two inventories of one name in different places do not share it."""
    base = Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local/state")
    return base / "modelyard/accept" / slug(inventories)


def slug(inventories: Sequence[str]) -> str:
    """A name for the folder: what people recognise, and a sum over the whole paths."""
    paths = [str(Path(one).expanduser().resolve()) if Path(one).expanduser().exists() else one for one in inventories]
    first = Path(paths[0].rstrip("/,"))
    told = first.parent.name if first.name in ("hosts.yml", "hosts.yaml", "hosts", "hosts.ini", "inventory.yml") else first.name
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", told).strip("-.")[:40] or "inventory"
    return f"{name}-{hashlib.sha256(chr(0).join(paths).encode()).hexdigest()[:8]}"
