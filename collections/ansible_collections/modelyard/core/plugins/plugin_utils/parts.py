"""Reading a large file of lines in parts that fit into memory, cut between lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

FIRST_BYTES, PART_BYTES = 4 * 2**20, 32 * 2**20


def parts(stream: IO[bytes], line_bytes: int) -> Iterator[tuple[int, bytes | None, int]]:
    """(number of the first line, the lines, their bytes); None in the place of one line that is longer than `line_bytes`.

    The first part is small, so that what is wrong shows soon.
    """
    number, first, size, limit = 1, 1, 0, FIRST_BYTES
    lines: list[bytes] = []
    while line := stream.readline(line_bytes + 1):
        if len(line) > line_bytes:
            if lines:
                yield first, b"".join(lines), size
            length = len(line)
            while not line.endswith(b"\n") and (line := stream.readline(line_bytes)):
                length += len(line)
            yield number, None, length
            lines, size, first = [], 0, number + 1
        else:
            lines.append(line)
            size += len(line)
            if size >= limit:
                yield first, b"".join(lines), size
                lines, size, first, limit = [], 0, number + 1, PART_BYTES
        number += 1
    if lines:
        yield first, b"".join(lines), size
