"""The two ends of a JSON document that may be large, and its top-level entries as far as the ends show them.

Bodies may have 64 MB and are looked at in the event loop, so only the first and the last bytes are kept, and the work on them is
bounded. What cannot be read from the ends for certain is left out: a reader gets no entry rather than a wrong one.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Pattern, Tuple

HEAD = 64 * 1024
TAIL = 16 * 1024
#: So many pieces of JSON are looked at from each end, a few milliseconds. Few documents have more in their ends.
PIECES = 2000


class Ends:
    """Keeps the first and the last bytes of what it is fed."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self.size = 0
        self._limit, self._tail = head, tail
        self._head = bytearray()
        self._last: Deque[bytes] = deque()
        self._kept = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; O(len), and the memory stays bounded."""
        self.size += len(data)
        room = self._limit - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
            if not data:
                return
        piece = data[-self._tail :]
        self._last.append(piece)
        self._kept += len(piece)
        while self._kept - len(self._last[0]) >= self._tail:
            self._kept -= len(self._last.popleft())
        if len(self._last) > 256:  # many small pieces cost more memory than their bytes
            self._last = deque([self.tail()])
            self._kept = len(self._last[0])

    def head(self) -> bytes:
        """The first bytes."""
        return bytes(self._head)

    def tail(self) -> bytes:
        """The last bytes that do not belong to the head."""
        return b"".join(self._last)[-self._tail :]

    def whole(self) -> bool:
        """Is everything still there, in the head?"""
        return not self._kept


class Direction(NamedTuple):
    """How the pieces of JSON look when it is read forward, and when it is read from its end with all bytes turned round."""

    piece: Pattern[bytes]
    opening: bytes
    closing: bytes
    step: int


# The closing quote is optional: a match that fails at the end of a long text costs much. Nothing is read behind an open string.
FORWARD = Direction(re.compile(rb'\s*(?:("[^"\\]*(?:\\.[^"\\]*)*("?))|([{}\[\]:,])|([-+.\w]+))', re.DOTALL), b"{[", b"}]", 1)
# Backward a quote belongs to a text when an odd number of backslashes follows. Where the bytes end that is not known.
BACKWARD = Direction(
    re.compile(rb'\s*(?:("[^"]*(?:"\\(?:\\\\)*(?=[^\\])[^"]*)*((?:"(?=[^\\]))?))|([{}\[\]:,])|([-+.\w]+))', re.DOTALL),
    b"}]",
    b"{[",
    -1,
)


def entries(head: bytes, tail: bytes, wanted: Dict[str, int]) -> Tuple[Dict[str, Any], bool]:
    """(values of the wanted top-level keys, whether no other can be there).

    :param tail: the last bytes of the document, empty when the head is all of it
    :param wanted: key -> the most bytes that its value may have as JSON; a longer one counts as unknown
    """
    if head.lstrip()[:1] != b"{":
        return {}, False
    found: Dict[str, Any] = {}
    found.update(_decoded(_entries(head, FORWARD), wanted))
    if not tail:
        return found, True
    # A key that is there twice counts as it stands last, as in every usual reader.
    found.update(reversed(list(_decoded(_entries(tail[::-1], BACKWARD), wanted))))
    return found, False


def _entries(data: bytes, way: Direction) -> Iterator[Tuple[bytes, bytes]]:
    """(key, value) of the outermost object as raw bytes, as long as they are whole in `data`: the comma behind them is there."""
    depth, begin, place = 0, 0, 0
    parts: List[bytes] = []
    for _ in range(PIECES):
        piece = way.piece.match(data, place)
        if piece is None:
            return
        string, closed, mark, bare = piece.groups()
        place = piece.end()
        if (depth == 0 and mark not in (b"{", b"}")) or (string and not closed):
            return
        if mark is None:
            if depth == 1:
                parts.append(string or bare)
        elif mark in way.opening:
            if depth == 1:
                begin = piece.start(3)
            depth += 1
        elif mark in way.closing:
            depth -= 1
            if depth == 1:
                parts.append(data[begin:place])
        if depth == 0 or (depth == 1 and mark == b","):
            if len(parts) == 2:
                key, value = parts[:: way.step]
                yield key[:: way.step], value[:: way.step]
            if depth == 0:
                return
            parts = []


def _decoded(raw: Iterator[Tuple[bytes, bytes]], wanted: Dict[str, int]) -> Iterator[Tuple[str, Any]]:
    for key, value in raw:
        if len(key) > 100 or len(value) > max(wanted.values()):
            continue
        try:
            name = json.loads(key)
            if name in wanted and len(value) <= wanted[name]:
                yield name, json.loads(value)
        except (ValueError, RecursionError):
            continue
