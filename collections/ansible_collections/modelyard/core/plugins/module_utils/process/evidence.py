"""Folders that are kept because something failed: evidence/<time>-<service>-<reason>, never overwritten, never removed.

Bounded in size, and without secrets: every text goes through judge/redact.py.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.gateway import place
from ansible_collections.modelyard.core.plugins.module_utils.judge.redact import redact
from ansible_collections.modelyard.core.plugins.module_utils.process import layout

#: Of the end of each log, and of each document.
LOG_BYTES, DOCUMENT_BYTES = 4 * 2**20, 2 * 2**20
#: With more than this in evidence/ no logs are copied any more. A check that fails every hour must not fill the disk.
FOLDER_BYTES = 2**30


def name(service: str, reason: str) -> str:
    """Name of a folder for now; the reason is made one word."""
    word = re.sub(r"[^A-Za-z0-9_.-]+", "_", reason)[:60]
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{service}-{word}"


def secrets(home: str, service: str) -> Set[str]:
    """Secrets of a service that lie on this host: its API key, and the token of its gateway's admin port."""
    found = set()
    for path in (layout.service_dir(home, service) / "api_key", place.folder(home, service) / "run" / "admin_token"):
        try:
            found.add(path.read_text(encoding="utf-8").strip())
        except (OSError, ValueError):
            continue
    return found - {""}


def keep(home: str, service: str, reason: str, documents: Mapping[str, str]) -> Tuple[Path, List[str]]:
    """Keep documents by file name, the manifest, the keepers' states and the ends of the logs; (folder, what could not be kept).

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
    known = secrets(home, service)
    states = {index: layout.state(instance) for index, instance in layout.instances(home, service)}
    for file, content in _texts(home, service, documents, states):
        try:
            # Names of files can hold bytes that are no text.
            text = redact(content, known)
            (folder / Path(file).name).write_text(text, encoding="utf-8", errors="backslashreplace")
            layout.give(folder / Path(file).name)
        except OSError as exc:
            problems.append(str(exc))
    if _size(base) > FOLDER_BYTES:
        return folder, [*problems, f"the logs, because {base} holds more than {FOLDER_BYTES >> 20} MiB: move old evidence away"]
    for index, state in states.items():
        if state:
            try:
                copy_end(Path(state["log"]), folder / f"instance-{index}.log", known)
                layout.give(folder / f"instance-{index}.log")
            except OSError as exc:
                problems.append(str(exc))
    return folder, problems


def _texts(home: str, service: str, documents: Mapping[str, str], states: Mapping[int, object]) -> Iterator[Tuple[str, str]]:
    contents: Dict[str, str] = {file: str(content) for file, content in documents.items()}
    manifest = layout.read_json(layout.service_dir(home, service) / "manifest.json")
    if manifest:
        contents["manifest.json"] = json.dumps(manifest, indent=1)
    contents.update({f"instance-{index}-state.json": json.dumps(state, indent=1) for index, state in states.items() if state})
    for file, content in contents.items():
        cut = len(content) - DOCUMENT_BYTES
        yield file, content if cut <= 0 else f"{content[:DOCUMENT_BYTES]}\n... {cut} more characters were left out\n"


def _size(folder: Path) -> int:
    """Bytes of all files below; what cannot be looked at counts nothing."""
    total = 0
    for path in folder.glob("*/*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


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


def copy_end(source: Path, target: Path, known: Set[str]) -> None:
    """The last LOG_BYTES of a log without secrets, from the beginning of a line on."""
    with source.open("rb") as stream:
        start = max(0, source.stat().st_size - LOG_BYTES)
        stream.seek(start)
        text = stream.read().decode("utf-8", "backslashreplace")
    # Half a secret is not recognised as one.
    whole = text.partition("\n")[2] if start else text
    target.write_text(redact(whole, known), encoding="utf-8", errors="backslashreplace")
