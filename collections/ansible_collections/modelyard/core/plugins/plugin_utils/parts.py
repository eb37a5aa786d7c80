"""Reading a large file of lines in parts that lie in files of their own, cut between lines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

#: Each part is four times as large as the one before it: the first shows soon what is wrong, and a tokenizer, which takes seconds
#: to load, is not loaded often for a large file.
FIRST_BYTES, PART_BYTES, GROWTH = 4 * 2**20, 128 * 2**20, 4
#: A line and its bytes in the file; None in the place of one that is too long.
Line = tuple[bytes | None, int]
#: Lines are held in memory until they are so many bytes.
PIECE = 2**20


class NoRoom(Exception):
    """A part could not be written on this machine; the words say where and why."""


def lines(stream: IO[bytes], line_bytes: int) -> Iterator[Line]:
    """The lines of a file; one longer than `line_bytes` is read past and not kept."""
    while line := stream.readline(line_bytes + 1):
        if len(line) <= line_bytes:
            yield line, len(line)
            continue
        length = len(line)
        while not line.endswith(b"\n") and (line := stream.readline(line_bytes)):
            length += len(line)
        yield None, length


def parts(of: Iterable[Line], folder: str) -> Iterator[tuple[int, Path | None, int]]:
    """(number of the first line, a file with the lines, their bytes in the whole); no file in place of a line that is too long.

    The files lie below `folder`, where only their owner comes, and are removed when the next part is asked for. Who is done with
    one earlier may remove it.

    :raises NoRoom: a part could not be written
    """
    reading, first, limit, ended = iter(of), 1, FIRST_BYTES, False
    with _private(folder) as private:
        while not ended:
            path, held, count, size, passed, ended = Path(private, f"from-{first}"), bytearray(), 0, 0, 0, True
            for line, length in reading:
                if line is None:
                    passed, ended = length, False
                    break
                held += line
                count, size = count + 1, size + length
                if len(held) >= PIECE:
                    _append(path, held)
                    held.clear()
                if size >= limit:
                    limit, ended = min(limit * GROWTH, PART_BYTES), False
                    break
            if count:
                _append(path, held)
                yield first, path, size
                path.unlink(missing_ok=True)
            first += count
            if passed:
                yield first, None, passed
                first += 1


def _append(path: Path, data: bytearray) -> None:
    try:
        with path.open("ab") as stream:
            stream.write(data)
    except OSError as exc:
        raise NoRoom(f"a part of it could not be written below {path.parent.parent}: {exc.strerror}") from exc


def _private(folder: str) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(dir=folder, prefix="parts-")
    except OSError as exc:
        raise NoRoom(f"nothing can be written into {folder}: {exc.strerror}") from exc
