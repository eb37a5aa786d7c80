"""A large JSON array, or JSON objects over several lines: one line for each entry, in memory that does not grow with the file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

from ansible_collections.modelyard.core.plugins.plugin_utils.parts import Line

#: What is looked at to tell the form of a file, and how much is read at once.
HEAD_BYTES, CHUNK_BYTES = 64 * 2**10, 2**20
BLANK = " \t\r\n"
BLANKS = re.compile(f"[{BLANK}]*")
DECODER = json.JSONDecoder()
#: An error so near to the end of what was read may be one of the cut: the longest unit that a cut leaves open is \ud83d\ude00.
CUT = 12
#: A number of which the rest is missing is read up to here: "1.5e+" as 1.5.
GOES_ON = 2
#: Stands for an entry that no line of prompts can be, a null for example.
NO_PROMPT = b"[]\n"


class Broken(Exception):
    """From some place on it is no JSON; the words say where, and nothing of the text."""


def is_one(head: bytes) -> bool:
    """Is it the beginning of an array, or of objects over several lines? Lines that are each for themselves are neither."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff" + BLANK)
    if text[:1] == "[":
        return _begins_array(text)
    if text[:1] != "{":
        return False
    try:
        _, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError) as exc:
        end = len(text) if _may_be_cut(exc, len(text)) and len(head) >= HEAD_BYTES else 0
    return "\n" in text[:end]


def _begins_array(text: str) -> bool:
    """Not so "[INST] a text" or "[1] a footnote"."""
    place = _past(text, 1)
    try:
        _, end = DECODER.raw_decode(text, place)
    except (ValueError, RecursionError) as exc:
        return text[place : place + 1] in ("{", '"', "[") and _may_be_cut(exc, len(text))
    after = text[_past(text, end) :]
    return after[:1] == "," or not after or (after[:1] == "]" and not after[1:].strip())


def _past(text: str, place: int) -> int:
    """Of the first character from there on that is not blank."""
    blanks = BLANKS.match(text, place)
    return blanks.end() if blanks else place


def _may_be_cut(exc: Exception, size: int, near: int = CUT) -> bool:
    """Could the error be that the rest is missing?"""
    return isinstance(exc, json.JSONDecodeError) and (exc.pos >= size - near or exc.msg.startswith("Unterminated string"))


class _Text:
    """The text of a file from `place` on, as much of it as was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.text, self.place, self.ended = stream, "", 0, False
        # What is no UTF-8 goes to the host as it is and is damaged there.
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def read(self) -> None:
        """Some more; as much again as is held of one entry, so that a long one is not tried too often."""
        rest = self.text[self.place :]
        data = self.stream.read(max(CHUNK_BYTES, len(rest)))
        self.ended = not data
        self.text, self.place = rest + self.decoder.decode(data, final=self.ended), 0

    def next(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            self.place = _past(self.text, self.place)
            if self.place < len(self.text) or self.ended:
                return self.text[self.place : self.place + 1]
            self.read()

    def value(self, number: int, most: int) -> tuple[Any, str]:
        """The value that begins here, and its text."""
        while True:
            try:
                found, end = DECODER.raw_decode(self.text, self.place)
                if end + GOES_ON < len(self.text) or self.ended:
                    text, self.place = self.text[self.place : end], end
                    return found, text
            except (ValueError, RecursionError) as exc:
                near = 0 if self.ended else CUT
                if not _may_be_cut(exc, len(self.text), near):
                    raise Broken(f"entry {number} is no JSON") from None
                if self.ended:
                    raise Broken(f"the file ends within entry {number}") from None
            if len(self.text) - self.place > most:
                raise Broken(f"entry {number} is longer than {most // 2**20} MiB, or has no end")
            self.read()


def entries(stream: IO[bytes], most: int) -> Iterator[Line]:
    """Each entry as one line of JSON, with the bytes that were read of the file since the one before.

    :param most: characters of one entry
    :raises Broken: from here on it cannot be read
    """
    text, number, told = _Text(stream), 0, 0
    array = text.next() == "["
    text.place += array
    while (character := text.next()) and not (array and character == "]"):
        if number and (array or character == ","):
            if character != ",":
                raise Broken(f"after entry {number} there is neither a comma nor the end of the array")
            text.place += 1
            text.next()
        number += 1
        value, written = text.value(number, most)
        usable = isinstance(value, (dict, str, list)) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
        one_line = written.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogateescape") + b"\n"
        told, before = stream.tell(), told
        yield (one_line if usable else NO_PROMPT), told - before
    if array:
        if not character:
            raise Broken(f"the array has no end after entry {number}")
        text.place += 1
        if text.next():
            raise Broken(f"after the end of the array, which has {number} entries, the file goes on")
