"""Folders that are kept because something failed: evidence/<time>-<service>-<reason>, never overwritten, never removed."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout

LOG_BYTES = 8 * 2**20


def name(service: str, reason: str) -> str:
    """Name of a folder for now; the reason is made one word."""
    word = re.sub(r"[^A-Za-z0-9_.-]+", "_", reason)[:60]
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{service}-{word}"


def keep(home: str, service: str, reason: str, documents: Mapping[str, str]) -> Tuple[Path, List[str]]:
    """Keep documents by file name, the keepers' states and the ends of the logs; (folder, what could not be kept and why).

    Evidence may not hide the failure it documents: nothing is raised, and what is most telling is written first.
    """
    base = Path(home) / "evidence"
    folder = base / name(service, reason)
    problems: List[str] = []
    try:
        base.mkdir(parents=True, exist_ok=True)
        layout.give(base)
        folder = _made(folder)
    except OSError as exc:
        return folder, [str(exc)]
    contents: Dict[str, str] = dict(documents)
    states = {index: layout.state(instance) for index, instance in layout.instances(home, service)}
    contents.update({f"instance-{i}-state.json": json.dumps(state, indent=1) for i, state in states.items() if state})
    for file, content in contents.items():
        try:
            # Names of files can hold bytes that are no text.
            (folder / Path(file).name).write_text(str(content), encoding="utf-8", errors="backslashreplace")
            layout.give(folder / Path(file).name)
        except OSError as exc:
            problems.append(str(exc))
    for index, state in states.items():
        if state:
            try:
                copy_end(Path(state["log"]), folder / f"instance-{index}.log")
                layout.give(folder / f"instance-{index}.log")
            except OSError as exc:
                problems.append(str(exc))
    return folder, problems


def _made(wanted: Path) -> Path:
    """Make the folder, under another name when somebody else has just made one of this name."""
    folder = wanted
    for attempt in range(1, 100):
        try:
            folder.mkdir()
        except FileExistsError:
            folder = wanted.with_name(f"{wanted.name}-{attempt}")
            continue
        layout.give(folder)
        return folder
    raise FileExistsError(f"{wanted} and 99 more of that name are there")


def copy_end(source: Path, target: Path) -> None:
    """The last LOG_BYTES of a file."""
    with source.open("rb") as stream:
        stream.seek(max(0, source.stat().st_size - LOG_BYTES))
        target.write_bytes(stream.read())
