"""A file of whole lines that is rotated before it passes its limit, whatever happens to it or to its disk meanwhile."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path
from typing import Iterable, List, Optional

#: So many bytes go to the disk in one call.
BATCH = 64 * 1024
#: A line that was cut off by a crash is looked for in so many bytes at the end.
LOOK_BACK = 64 * 1024


class Rotating:
    """Writes lines to `path`; what is older lies in `path.1`, `path.2`, ... For one thread."""

    def __init__(self, path: str, limit_bytes: int, keep: int) -> None:
        """`limit_bytes`: the largest size of a file, unless a single line is longer. `keep`: files, with `path` among them."""
        self.path, self._limit, self._keep = path, limit_bytes, keep
        self._place = Path(path)
        self._handle: Optional[int] = None

    def append(self, lines: Iterable[bytes]) -> int:
        """Write the first of these lines, as many as go in one step and at least one; how many they were.

        :raises OSError: none was written, and nothing of them stands in the file
        """
        handle = self._opened()
        size = os.fstat(handle).st_size
        batch = self._batch(lines, size)
        data = b"".join(batch)
        if size and size + len(data) > self._limit:
            self._rotate()
            handle, size = self._opened(), 0
        try:
            written = os.write(handle, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._cut(handle, size)
            raise
        return len(batch)

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = None

    def _batch(self, lines: Iterable[bytes], size: int) -> List[bytes]:
        """The lines of one step: what still has room in this file, else in a new one."""
        batch: List[bytes] = []
        total, room = 0, 0
        for line in itertools.islice(lines, 1000):
            if not batch:
                room = min(BATCH, self._limit - size if size + len(line) <= self._limit else self._limit)
            elif total + len(line) > room:
                break
            batch.append(line)
            total += len(line)
        return batch

    def _opened(self) -> int:
        """The descriptor of what lies at the path now: somebody may have moved or removed the file."""
        if self._handle is not None:
            try:
                there, ours = self._place.stat(), os.fstat(self._handle)
                if (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev):
                    return self._handle
            except FileNotFoundError:
                pass
            self.close()
        self._place.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._mend(self._handle)
        return self._handle

    @staticmethod
    def _mend(handle: int) -> None:
        """Take away the piece of a line that a crash has left at the end."""
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode) or not seen.st_size:
            return
        begin = max(0, seen.st_size - LOOK_BACK)
        end = os.pread(handle, LOOK_BACK, begin)
        if not end.endswith(b"\n"):
            newline = end.rfind(b"\n")
            if newline >= 0 or begin == 0:
                os.ftruncate(handle, begin + newline + 1)
            else:
                os.write(handle, b"\n")

    @staticmethod
    def _cut(handle: int, size: int) -> None:
        """Take away what was written of lines that had no room."""
        with contextlib.suppress(OSError):
            if os.fstat(handle).st_size > size:
                os.ftruncate(handle, size)

    def _rotate(self) -> None:
        """Move each file one number up; the oldest goes."""
        places = [self._place, *(Path(f"{self.path}.{number}") for number in range(1, self._keep))]
        for older, newer in zip(reversed(places), reversed(places[:-1])):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        if len(places) == 1:
            self._place.unlink()
        self.close()
