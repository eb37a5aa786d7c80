"""What a shell file, a file of NAME=VALUE lines or pip's configuration sets in the end. The files are read and never run."""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

PIP = "pip proxy"
VARIABLE = r"\$\{(?P<braced>\w+)\}|\$(?P<bare>[A-Za-z_]\w*)|\$|`"
QUOTED = re.compile(r"""'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.|""" + VARIABLE, re.DOTALL)
IN_DOUBLE_QUOTES = re.compile(r"""\\[$`"\\\n]|""" + VARIABLE)
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
TOKEN = re.compile(
    r"""(?P<skip> (?: [ \t\r] | \\\n )+ | \#[^\n]* )
      | (?P<here> <<-?[ \t]*['"\\]?(?P<end>[A-Za-z_][\w.-]*)['"]? )
      | (?P<call> \([ \t]*\) )
      | (?P<redirect> [0-9]*(?: <<< | >> | [<>] )[&|]? )
      | (?P<operator> \n | ;; | && | \|\| | [;&|()] )
      | (?P<word> (?: [^\s'"`\\;&|()<>$]+ | \\. | '[^']*' | "[^"\\]*(?:\\.[^"\\]*)*" | `[^`]*`
                    | \$\((?:[^()]|\([^()]*\))*\) | \$ )+ )
      | (?P<junk> . )""",
    re.DOTALL | re.VERBOSE,
)
BEFORE_COMMANDS = ("if", "then", "elif", "else", "while", "until", "do", "!", "time")
RUN = {"{", "case"}
DECLARATIONS = ("export", "declare", "typeset", "readonly")


class Value(NamedTuple):
    """A value as a shell would see it; `known` is False when it holds something that only a running shell can tell."""

    text: str
    known: bool


def assignments(path: str, text: str, environ: Mapping[str, str]) -> Dict[str, Value]:
    """What a file sets in the end. Its name says how it is written: pip.conf, NAME=VALUE lines, or a shell file."""
    if path.endswith("pip.conf"):
        lines = re.findall(r"(?m)^[ \t]*proxy[ \t]*[=:](.*)$", text)
        return {PIP: Value(lines[-1].strip(), True)} if lines else {}
    found: Dict[str, Value] = {}

    def value_of(name: str) -> Optional[str]:
        if name in found:
            return found[name].text if found[name].known else None
        return environ.get(name)

    for name, written in _plain(text) if path.endswith((".conf", "/environment")) else _shell(text):
        if written is None:
            found.pop(name, None)
        else:
            found[name] = expand(written, value_of)
    return found


def expand(written: str, value_of: Callable[[str], Optional[str]]) -> Value:
    """A word of a shell file without its quotes and with the variables that `value_of` (name -> text or None) knows."""
    known = True

    def piece(match: re.Match[str]) -> str:
        nonlocal known
        part = match.group()
        if part[0] == "'":
            return part[1:-1]
        if part[0] == '"':
            return IN_DOUBLE_QUOTES.sub(piece, part[1:-1])
        if part[0] == "\\":
            return part[1:].replace("\n", "")
        name = match.group("braced") or match.group("bare")
        value = value_of(name) if name else None
        known = known and value is not None
        return part if value is None else value

    return Value(QUOTED.sub(piece, written), known)


def _shell(text: str) -> Iterator[Tuple[str, Optional[str]]]:
    """What is assigned when a shell reads the file, in its order: name and value as written, None for `unset`."""
    for words in _commands(text):
        found = [ASSIGNMENT.fullmatch(word) for word in words]
        if words[0] == "unset" or words[:2] == ["export", "-n"]:
            yield from ((word, None) for word in words[1:] if "-f" not in words)
        elif words[0] in DECLARATIONS or all(found):  # otherwise NAME=VALUE is for one command alone
            for match in found:
                if match:
                    yield match.group(1), f"${{{match.group(1)}}}{match.group(3)}" if match.group(2) else match.group(3)


def _commands(text: str) -> Iterator[List[str]]:
    """The simple commands of a shell file, each as its words; those in functions and subshells are left out.

    Tolerant: what is no shell at all gives some words or none.
    """
    words: List[str] = []
    inside: List[str] = []  # what encloses this place: "{" a group, "case", "function" the body of one, "(" a subshell
    header = False  # the name of a function was read, and its body follows
    target = False  # what a redirection names follows
    here_ends: List[str] = []
    place = 0
    while place < len(text):
        token = TOKEN.match(text, place)
        assert token is not None  # its last alternative takes any character
        place = token.end()
        kind, part = token.lastgroup, token.group()
        if kind == "here":
            here_ends.append(token.group("end"))
        elif kind == "call":
            header, words = True, []
        elif kind == "redirect":
            target = True
        elif kind == "word" and part == "{" and (not words or words[0] == "function"):
            inside.append("function" if header or words else "{")
            header, words = False, []
        elif kind == "word" and part == "}" and set(inside) & {"{", "function"}:
            if words and set(inside) <= RUN:
                yield words
            while inside.pop() not in ("{", "function"):
                pass
            words = []
        elif kind == "word" and target:
            target = False
        elif kind == "word" and (words or part not in BEFORE_COMMANDS):
            if not words and part == "case":
                inside.append(part)  # the ) of its patterns closes no subshell
            elif not words and part == "esac" and inside[-1:] == ["case"]:
                inside.pop()
            header = False
            words.append(part)
        elif kind == "operator":
            if words and part not in "()" and set(inside) <= RUN:
                yield words
            header = header if part == "\n" and not words else words[:1] == ["function"]
            words, target = [], False
            if part == "(":
                inside.append(part)
            elif part == ")" and inside[-1:] == ["("]:
                inside.pop()
            elif part == "\n":
                place = _after_here_documents(text, place, here_ends)
                here_ends = []
    if words and set(inside) <= RUN:
        yield words


def _after_here_documents(text: str, place: int, ends: Sequence[str]) -> int:
    for end in ends:
        line = re.compile(rf"(?m)^\t*{re.escape(end)}$").search(text, place)
        place = line.end() if line else len(text)  # as for a shell: without its end the rest of the file is in it
    return place


def _plain(text: str) -> Iterator[Tuple[str, Optional[str]]]:
    """Lines NAME=VALUE; no character but quotes and $ has a meaning in the value."""
    for line in text.splitlines():
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)", line)
        if match:
            value = match.group(2).strip()
            quoted = re.match(r"\"[^\"]*\"|'[^']*'", value)
            yield match.group(1), quoted.group() if quoted else re.split(r"\s#", value)[0].strip()
