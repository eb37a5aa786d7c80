"""Writing many small text files in one go: whole or not at all each, and only those that differ. Standard library only."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import zlib
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

LIMIT_BYTES = 4 * 2**20
NOT_SHOWN = "(not shown)\n"


class File(NamedTuple):
    """A file as it should be. `content` None: absent; bytes that are no text are in it as surrogates. `mode`: permission bits.

    `shell`: bash must be able to read it. `secret`: what stands there is told to nobody.
    """

    path: str
    content: Optional[str]
    mode: int
    shell: bool
    secret: bool = False

    @classmethod
    def of(cls, wanted: Mapping[str, Any]) -> File:
        """From {path, content or packed (see `packed`), mode: "0755", state: present or absent, shell, secret}."""
        text = None
        if wanted.get("state") != "absent":
            text = _text(zlib.decompress(base64.b64decode(wanted["packed"]))) if "packed" in wanted else str(wanted["content"])
        mode = int(str(wanted.get("mode") or "0644"), 8)
        return cls(str(wanted["path"]), text, mode, bool(wanted.get("shell")), bool(wanted.get("secret")))


def packed(content: bytes) -> str:
    """The content of a file that is no text, for its way to a host."""
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


class Failed(Exception):
    """A file could not be written; the text names it and says why."""


def changes(files: List[File]) -> List[Dict[str, Any]]:
    """Those that differ from what is there: {path, before, after, mode_before, mode_after}, None for an absent file or mode."""
    found = []
    for file in files:
        before, mode = _there(Path(file.path))
        if file.secret and before is not None:
            before = NOT_SHOWN
        wanted_mode = None if file.content is None else file.mode
        if before != file.content or mode != wanted_mode:
            change = {"before": before, "after": file.content, "mode_before": mode, "mode_after": wanted_mode}
            found.append({"path": file.path, **change})
    return found


def _there(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            text = _text(stream.read(LIMIT_BYTES))
        return text, stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None, None
    except OSError as exc:
        raise Failed(f"{path} cannot be read: {exc}") from exc


def write(files: List[File]) -> List[Dict[str, Any]]:
    """Make them so, in order; returns what `changes` said before. Raises Failed; the files before that one are written then.

    Shell files are all checked before the first is written.
    """
    differing = changes(files)
    by_path = {file.path: file for file in files}
    for change in differing:
        _check(by_path[change["path"]])
    for change in differing:
        file = by_path[change["path"]]
        try:
            _put(file)
        except OSError as exc:
            raise Failed(f"{file.path} cannot be written: {exc}") from exc
    return differing


def _check(file: File) -> None:
    if not file.shell or file.content is None:
        return
    read = subprocess.run(["bash", "-n"], input=file.content, capture_output=True, text=True, check=False)
    if read.returncode:
        raise Failed(f"{file.path} would be no valid shell file: {read.stderr.strip()[:500]}")


def _put(file: File) -> None:
    path = Path(file.path)
    if file.content is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # With its mode from the beginning: what it holds may not be for everybody.
        with os.fdopen(os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file.mode), "wb") as stream:
            stream.write(file.content.encode("utf-8", "surrogateescape"))
        fresh.chmod(file.mode)
        fresh.replace(path)
    finally:
        if fresh.exists():
            fresh.unlink()
