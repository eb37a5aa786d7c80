"""Reading a large file of lines in parts that fit into memory, cut between lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO

FIRST_BYTES, PART_BYTES = 4 * 2**20, 32 * 2**20
#: A line and its bytes in the file; None in the place of one that is too long.
Line = tuple[bytes | None, int]


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


def parts(of: Iterable[Line]) -> Iterator[tuple[int, bytes | None, int]]:
    """(number of the first line, the lines, their bytes in the file); None in the place of one line that is too long.

    The first part is small, so that what is wrong shows soon.
    """
    first, size, limit = 1, 0, FIRST_BYTES
    held = bytearray()  # and no list of lines: short ones would take ten times their length
    for number, (line, length) in enumerate(of, 1):
        if line is None:
            if held:
                yield first, bytes(held), size
            yield number, None, length
        else:
            held += line
            size += length
            if size < limit:
                continue
            limit = PART_BYTES
            yield first, bytes(held), size
        held, size, first = bytearray(), 0, number + 1
    if held:
        yield first, bytes(held), size
