"""A log of any size in bounded memory: it is searched as bytes, and only lines near a word that some rule knows are read.

A line is read when a line at most NEAR lines from it holds one of WORDS, wherever the blocks of the file begin.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, Sequence, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.rules import RULES
from ansible_collections.modelyard.core.plugins.module_utils.triage.symptoms import SYMPTOMS

#: Instead of the words of a rule, where those stand in every line of a healthy log.
_RARER = {"http/1": (b'" 4', b".1 4", b"/2 4")}
#: What tables and traces are known by.
_FURTHER = (
    b"file|traceback|error|exception|supported|substate|execmainstatus|nrestarts|vllm::|raywork|worker_tp|mib|mb |(null)|[not f"
)
NEAR = 8
BLOCK = 1 << 18
#: A longer line is read in pieces of this length.
LINE_LIMIT = 1 << 16


def _words() -> Tuple[bytes, ...]:
    words: Set[bytes] = set(_FURTHER.split(b"|"))
    for rule in (*RULES, *SYMPTOMS):
        for word in rule.words:
            words.update(_RARER.get(word, (word.encode(),)))
    return tuple(sorted(word for word in words if not any(other in word for other in words if other != word)))


WORDS = _words()


def blocks(text: str) -> Iterator[bytes]:
    """A text as the bytes of a file."""
    for start in range(0, len(text), BLOCK):
        yield text[start : start + BLOCK].encode("utf-8", "surrogatepass")


def lines(chunks: Iterable[bytes]) -> Iterator[Tuple[int, str]]:
    """(number, line) of all lines that are to be read; `\\r` ends a line as `\\n` does."""
    number = 0
    #: Lines that may still be wanted for a hit below them, and how many lines after the last hit are to be read.
    before: List[bytes] = []
    wanted = 0
    words = _Hits()
    for piece in _pieces(chunks):
        rows = piece.split(b"\n")
        hits = words.of(rows)
        if not hits and not wanted:
            number += len(rows)
            before = [*before, *rows][-NEAR:]
            continue
        for place, row in enumerate(rows):
            if place in hits:
                start = number - len(before)
                for back, old in enumerate(before):
                    yield start + back, _text(old)
                before.clear()
                yield number, _text(row)
                wanted = NEAR
            elif wanted:
                yield number, _text(row)
                wanted -= 1
            else:
                before.append(row)
                del before[:-NEAR]
            number += 1


def _text(row: bytes) -> str:
    return row.decode("utf-8", "replace")


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines, many at once, without the last line end."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk.replace(b"\r", b"\n")
        end = data.rfind(b"\n")
        whole, rest = (data[:end], data[end + 1 :]) if end >= 0 else (None, data)
        if whole is not None:
            yield _limited(whole)
        while len(rest) > LINE_LIMIT:
            yield rest[:LINE_LIMIT]
            rest = rest[LINE_LIMIT:]
    if rest:
        yield rest


def _limited(whole: bytes) -> bytes:
    """Too long lines as several ones."""
    if len(whole) <= LINE_LIMIT or max(map(len, whole.split(b"\n"))) <= LINE_LIMIT:
        return whole
    rows = (row[at : at + LINE_LIMIT] for row in whole.split(b"\n") for at in range(0, max(len(row), 1), LINE_LIMIT))
    return b"\n".join(rows)


class _Hits:
    """Which lines hold one of the words. Most lines of a large log differ in their figures only, and are searched once."""

    SHAPES = 20000
    SHAPE_LIMIT = 1000
    _FIGURES = b"0123456789"

    def __init__(self) -> None:
        self._quiet: Set[bytes] = set()

    def of(self, rows: Sequence[bytes]) -> Set[int]:
        """Places of the lines that hold one."""
        quiet, figures, fresh = self._quiet, self._FIGURES, []
        for place, row in enumerate(rows):
            shape = row.translate(None, figures)
            # Two words have figures that matter: the status of a reply, and an offset in a stack.
            if shape not in quiet or (b" 4" in row and b"HTTP/" in row) or b"+0x" in row:
                fresh.append((place, shape))
        low = b"\n".join([rows[place] for place, _ in fresh]).lower()
        hits = _lines_with_words(low)
        if len(quiet) > self.SHAPES:
            quiet.clear()
        quiet.update(shape for number, (_, shape) in enumerate(fresh) if number not in hits and len(shape) < self.SHAPE_LIMIT)
        return {place for number, (place, _) in enumerate(fresh) if number in hits}


def _lines_with_words(low: bytes) -> Set[int]:
    starts: Set[int] = set()
    for word in WORDS:
        at = low.find(word)
        while at >= 0:
            starts.add(low.rfind(b"\n", 0, at) + 1)
            end = low.find(b"\n", at)
            at = low.find(word, end) if end >= 0 else -1
    found: Set[int] = set()
    last = count = 0
    for start in sorted(starts):
        count += low.count(b"\n", last, start)
        last = start
        found.add(count)
    return found
