"""The log of one start: made anew for each, written by the engine itself, kept below a cap by the keeper.

The engine appends to the file directly and not through a pipe: a pipe would stop the engine when its reader is slow, stopped or
dead. So what is too much is taken out of the middle of the file while the engine goes on appending to its end. The head stays,
because the first failure stands there, and the tail, because it is what happened last.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import time
from pathlib import Path
from typing import Any, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import history

CURRENT = "current.log"
FALLOC_FL_COLLAPSE_RANGE = 0x08
CHUNK = 1024 * 1024
#: The smallest unit that file systems cut out: a multiple of every block size in use.
BLOCK = 64 * 1024
NOTE_BYTES = 160
NOTE = re.compile(rb"\n--- modelyard: (\d+) bytes")


def names(folder: Path) -> List[str]:
    """Logs in the folder, oldest first; the link to the newest one is none."""
    found: List[Tuple[float, str]] = []
    for path in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if not path.is_symlink():
                found.append((path.stat().st_mtime, path.name))
    return [name for _, name in sorted(found)]


def create(folder: Path, keep: int, starts: Sequence[Mapping[str, Any]]) -> Tuple[Path, int]:
    """A new log that nobody has, and its descriptor for appending; current.log points to it, superfluous ones are removed."""
    folder.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for attempt in range(1000):
        path = folder / (f"{stamp}.log" if attempt == 0 else f"{stamp}-{attempt}.log")
        try:
            handle = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
            break
        except FileExistsError:
            continue
    else:
        raise OSError(f"no free name for a log in {folder}")
    fresh = folder / f".{CURRENT}.new"
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(path.name)
    fresh.replace(folder / CURRENT)
    others = [name for name in names(folder) if name != path.name]
    for name in history.superfluous([*others, path.name], keep, starts):
        if name != path.name:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
    return path, handle


def trim(path: Path, cap: int) -> int:
    """Bring a log that has grown past `cap` bytes down to about three quarters of it; bytes that were taken out (0: none).

    The first half of the cap stays as it is, and the newest quarter. A line in between says how much is missing. What is appended
    meanwhile is not lost where the file system can cut a range out of a file (ext4, XFS); elsewhere the tail is moved and the
    file shortened, and only what is written between the last look and the cut, some microseconds, is lost.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size <= cap:
            return 0
        handle = os.open(str(path), os.O_RDWR)  # not for appending: there every write would go to the end
        try:
            return _cut(handle, cap)
        finally:
            os.close(handle)
    return 0


def _cut(handle: int, cap: int) -> int:
    size = os.fstat(handle).st_size
    head, tail = cap // 2, cap // 4
    begin = head - head % BLOCK
    length = (size - tail - begin) // BLOCK * BLOCK
    earlier = _earlier(handle, begin) if begin > 0 else 0
    if begin > 0 and length > 0 and _collapse(handle, begin, length):
        _write_note(handle, begin, earlier + length)
        return length
    return _shift(handle, head, size - tail, _earlier(handle, head))


def _earlier(handle: int, place: int) -> int:
    """Bytes that were taken out there before, as the note of that time says."""
    found = NOTE.match(os.pread(handle, NOTE_BYTES, place))
    return int(found.group(1)) if found else 0


def _collapse(handle: int, begin: int, length: int) -> bool:
    """Cut a range out of the file in one step, as the kernel's fallocate does it; False where that is not possible."""
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(handle, FALLOC_FL_COLLAPSE_RANGE, begin, length) == 0)


def _note(gone: int) -> bytes:
    return f"\n--- modelyard: {gone} bytes were dropped here; above stands the log's beginning, below its end ---\n".encode()


def _write_note(handle: int, begin: int, gone: int) -> None:
    """Over the first bytes of what follows, and the rest of the line that they belong to."""
    following = os.pread(handle, NOTE_BYTES + 4096, begin)
    note = _note(gone + NOTE_BYTES)
    end = following.find(b"\n", NOTE_BYTES)
    room = (end + 1) if end >= 0 else NOTE_BYTES
    if room > len(following):
        return
    os.pwrite(handle, note[:-1] + b" " * (room - len(note)) + b"\n", begin)


def _shift(handle: int, head: int, source: int, earlier: int) -> int:
    """Move the tail to behind the head, then what has come meanwhile, until there is nothing more, and shorten the file."""
    note = _note(source - head + earlier)
    target = head + len(note)
    if target >= source:
        return 0
    os.pwrite(handle, note, head)
    gone = source - target
    while True:
        piece = os.pread(handle, CHUNK, source)
        if not piece:
            break
        os.pwrite(handle, piece, target)
        source, target = source + len(piece), target + len(piece)
    os.ftruncate(handle, target)
    return gone
