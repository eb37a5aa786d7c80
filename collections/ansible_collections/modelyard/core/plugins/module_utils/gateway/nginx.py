"""nginx by its file of engines and a reload: drain and undrain are the word `down` in a line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.gateway import connections
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc

BACKENDS = "backends.conf"
LINE = re.compile(r"^(server [^;#]*?)( down)?; # (.+)$")


def drained(text: str) -> Dict[str, bool]:
    """Engine by name -> is it taken out?"""
    found = filter(None, map(LINE.match, text.splitlines()))
    return {match.group(3): bool(match.group(2)) for match in found}


def changed(text: str, name: str, down: bool) -> str:
    """The file with one engine taken out or in. GatewayError when it is not there."""
    lines, met = [], False
    for line in text.splitlines():
        match = LINE.match(line)
        if match and match.group(3) == name:
            line = f"{match.group(1)}{' down' if down else ''}; # {name}"  # noqa: PLW2901
            met = True
        lines.append(line)
    if not met:
        raise GatewayError(f"{BACKENDS} has no engine {name}; it has {', '.join(drained(text)) or 'none'}")
    return "\n".join(lines) + "\n"


def write(run_dir: Path, text: str) -> None:
    """Whole or not at all."""
    fresh = run_dir / f".{BACKENDS}.{os.getpid()}"
    fresh.write_text(text, encoding="utf-8")
    layout.give(fresh)
    fresh.replace(run_dir / BACKENDS)


def read(run_dir: Path) -> str:
    """The file of engines. GatewayError when it cannot be read."""
    try:
        return (run_dir / BACKENDS).read_text(encoding="utf-8")
    except OSError as exc:
        raise GatewayError(f"{run_dir / BACKENDS} cannot be read: {exc}") from exc


def workers(leader: int, root: Path = proc.PROC) -> List[int]:
    """Workers that take new connections; those before a reload say `is shutting down` in their title."""
    titles = {pid: proc.command(pid, root) or "" for pid in connections.family(leader, root)}
    return [pid for pid, title in titles.items() if "worker process" in title and "shutting down" not in title]
