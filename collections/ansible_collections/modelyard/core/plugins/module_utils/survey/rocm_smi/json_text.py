"""JSON as these tools print it: with missing commas, cut, beside warnings. It is read as far as it goes."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

# Only at the start of a line, and only what an object of these tools can begin with: logs hold brackets, too.
_OBJECT = r"\{\s*(?:[\"'}]|card[0-9]|\Z)"
_ARRAY = r"\[\s*(?:[{\]]|\Z)"
_START = re.compile(rf"^[ \t]*(?={_OBJECT}|{_ARRAY})", re.MULTILINE)
_NEXT = re.compile(rf"\s*(?={_OBJECT}|{_ARRAY})")
_TOKEN = re.compile(r"\s*(?:([{}\[\],:])|([\"'])|([^\s{}\[\],:\"']+))")
_QUOTE_OR_ESCAPE = {quote: re.compile(rf"[{quote}\\\n]") for quote in "\"'"}
_REOPENED = re.compile(r"\s*,\s*(?=\")")


class Object:
    """An object with its members in order; a name may come more than once. Numbers and words are kept as printed."""

    def __init__(self) -> None:
        self.pairs: List[Tuple[str, Any]] = []

    def get(self, name: str) -> Any:
        """The last value of that name (in any case), or None."""
        return next((value for key, value in reversed(self.pairs) if key.lower() == name), None)


class Documents(NamedTuple):
    """`roots`: str, list or Object each. `outside`: the text around them. `repaired`, `cut`: see the error kinds."""

    roots: List[Any]
    outside: str
    repaired: bool
    cut: bool


class _Parsed(NamedTuple):
    root: Any
    end: int
    repaired: bool
    cut: bool


def find(text: str) -> Documents:
    """All JSON in a text. What stands behind the start of a cut document is also kept outside: messages follow it."""
    roots: List[Any] = []
    outside: List[str] = []
    repaired = cut = False
    at = 0
    while True:
        begin = (_NEXT.match(text, at) if roots else None) or _START.search(text, at)
        if begin is None:
            break
        outside.append(text[at : begin.end()])
        parsed = _parse(text, begin.end())
        roots.append(parsed.root)
        repaired, cut = repaired or parsed.repaired, cut or parsed.cut
        at = begin.end() if parsed.cut else parsed.end
        if parsed.cut:
            break
    outside.append(text[at:])
    return Documents(roots, "\n".join(outside), repaired, cut)


class _Frame:
    """An open object or array, and what is expected next in it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key: Optional[str] = None
        self.colon = False
        self.comma = False
        self.members = False

    def put(self, value: Any) -> bool:
        """Add a value; True when something was wrong with its place."""
        if isinstance(self.value, list):
            wrong = self.members and not self.comma
            self.value.append(value)
        else:
            wrong = self.key is None or not self.colon
            # A value without a name can be kept (what is in it may name itself), one without a colon belongs to its name.
            self.value.pairs.append((self.key or "", value))
        self.members, self.comma, self.key, self.colon = True, False, None, False
        return wrong

    def word(self, text: str, quoted: bool) -> bool:
        """A string or a bare word: a name or a value. True when something was wrong with its place or form."""
        if isinstance(self.value, list) or self.colon:
            return self.put(text) or not (quoted or _is_literal(text))
        wrong = self.key is not None or (self.members and not self.comma) or not quoted
        self.key, self.comma = text, False
        return wrong

    def mark(self, sign: str) -> bool:
        """A comma or a colon; True when it was out of place."""
        if sign == ":":
            wrong = self.key is None or self.colon
            self.colon = self.key is not None
            return wrong
        wrong = self.comma or not self.members or self.key is not None
        self.comma, self.key, self.colon = True, None, False
        return wrong

    def wrong_end(self) -> bool:
        """Whether a name without a value or a comma without a member stands at the end."""
        return self.comma or self.key is not None


def _is_literal(text: str) -> bool:
    return text in ("true", "false", "null") or re.match(r"-?[0-9][0-9.eE+-]*\Z", text) is not None


def _parse(text: str, at: int) -> _Parsed:
    """One document from its bracket on. No recursion: a text of brackets must not end the program."""
    stack: List[_Frame] = []
    root: Any = None
    repaired = False
    while True:
        found = _TOKEN.match(text, at)
        if found is None or (found.group(3) and found.end() == len(text)):
            # A bare word at the very end may be the beginning of a longer one.
            return _Parsed(root, len(text), repaired, True)
        sign, quote, bare = found.groups()
        at = found.end()
        if quote:
            string, at, closed = _string(text, at, quote)
            if closed:
                repaired |= stack[-1].word(string, quoted=True) or quote == "'"
            else:
                # The value is lost, and its name with it. At the end of the text this is the cut.
                repaired = True
                stack[-1].key, stack[-1].colon, stack[-1].members = None, False, True
        elif bare:
            repaired |= stack[-1].word(bare, quoted=False)
        elif sign in "{[":
            value: Any = Object() if sign == "{" else []
            if stack:
                repaired |= stack[-1].put(value)
            else:
                root = value
            stack.append(_Frame(value))
        elif sign in "}]":
            kind = Object if sign == "}" else list
            if not any(isinstance(frame.value, kind) for frame in stack[-2:]):
                repaired = True
                continue
            while not isinstance(stack[-1].value, kind):
                repaired = True
                stack.pop()
            last = stack.pop()
            repaired |= last.wrong_end()
            if not stack:
                again = _REOPENED.match(text, at) if isinstance(root, Object) else None
                if again is None:
                    return _Parsed(root, at, repaired, False)
                # One brace too many: more members follow behind the end of the document.
                repaired, at = True, again.end()
                stack.append(_Frame(root))
        else:
            repaired |= stack[-1].mark(sign)


def _string(text: str, at: int, quote: str) -> Tuple[str, int, bool]:
    """(string, place behind it, whether it was closed); a string does not go on in the next line."""
    begin = at
    while True:
        found = _QUOTE_OR_ESCAPE[quote].search(text, at)
        if found is None:
            return "", len(text), False
        if found.group() == "\n":
            return "", found.start(), False
        if found.group() == quote:
            return _unescaped(text[begin : found.start()]), found.end(), True
        at = found.end() + 1


def _unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def objects(root: Any, but: str = "") -> Iterator[Object]:
    """Every object in a document, in its order, from the outside in; none at or below a nested one with a member `but`.

    So each object belongs to one owner, and nested owners do not make the work grow with the square of the text.
    """
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Object):
            if but and value is not root and value.get(but) is not None:
                continue
            yield value
            waiting += [member for _, member in reversed(value.pairs) if not isinstance(member, str)]
        elif isinstance(value, list):
            waiting += [member for member in reversed(value) if not isinstance(member, str)]


def scalar(value: Any) -> Optional[str]:
    """Text of a value: a string, a number, or amd-smi's `{"value": 7, "unit": "W"}`. None for other objects and lists."""
    if isinstance(value, str):
        return "" if value == "null" else value
    if isinstance(value, Object) and isinstance(value.get("value"), str):
        unit = value.get("unit")
        return f"{value.get('value')} {unit if isinstance(unit, str) else ''}"
    return None


def scalars(root: Object) -> Iterator[Tuple[str, str]]:
    """Names and texts of the scalars that are members of an object."""
    for name, value in root.pairs:
        text = scalar(value)
        if text is not None:
            yield name, text
