"""API keys of clients, from a file with one SHA-256 in hex per line and an optional name behind it."""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

_LINE = re.compile(r"([0-9a-fA-F]{64})(?:\s+(\S.{0,99}))?")


class KeysError(Exception):
    """The file cannot be used. The message says which line and why, and never shows what stands in it."""


class Key(NamedTuple):
    """One key that is allowed in. `name` is what the log shows."""

    digest: bytes
    name: str


def parse(text: str, path: str) -> List[Key]:
    """The keys of a file. Empty lines and lines that begin with # do not count."""
    found: List[Key] = []
    wrong: List[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        match = _LINE.fullmatch(entry)
        if match is None:
            wrong.append(f"line {number}")
            continue
        digest = match.group(1).lower()
        found.append(Key(digest.encode(), match.group(2) or f"key-{digest[:8]}"))
    if wrong:
        raise KeysError(f"{path}: {', '.join(wrong)}: wanted 64 hex digits (sha256 of the key), then a name if there is one")
    if not found:
        raise KeysError(f"{path}: no key in it, so nobody could come in; leave keys_file empty to let everybody in")
    return found


class Keys:
    """The keys of a file. They are read again when the file has changed; a damaged file leaves the keys as they were."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = Path(path)
        self.problem = ""
        self._stamp = self._look()
        self._keys = self._read()

    def name_of(self, authorization: bytes) -> Optional[str]:
        """The name of the key in an Authorization header, or None when it opens nothing.

        All keys are compared, each in the same time, so the answer's time tells nothing about them.
        """
        scheme, _, token = authorization.partition(b" ")
        given = sha256(token.strip()).hexdigest().encode()
        found: Optional[str] = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, given):
                found = key.name
        return found if scheme.lower() == b"bearer" and token else None

    def refresh(self) -> bool:
        """Read the file again when it is another one than before. True when the keys were exchanged."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._keys = self._read()
        except KeysError as error:
            self.problem = f"{error}; the keys from before are still in use"
            return False
        self.problem = ""
        return True

    def _look(self) -> Tuple[int, int, int]:
        try:
            seen = self._file.stat()
        except OSError:
            return (0, 0, 0)
        return (seen.st_ino, seen.st_mtime_ns, seen.st_size)

    def _read(self) -> List[Key]:
        try:
            return parse(self._file.read_text(encoding="utf-8"), self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise KeysError(f"{self.path}: cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from error
