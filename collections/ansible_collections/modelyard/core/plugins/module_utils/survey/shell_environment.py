"""Proxies and lists of visible cards that a session has, or gets from the files that shells and pip read.

Reads only; standard library only. Shell files are read and never run. The launch script of a service starts from an empty
environment, so this concerns what people and installations do on the host.
"""

from __future__ import annotations

import errno
import fnmatch
import re
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

SESSION = "environment of the session"
PIP = "pip proxy"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", PIP)
VISIBILITY = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HYGON_VISIBLE_DEVICES"),
)
OF_INTEREST = re.compile(r"(?i)proxy|visible_devices|gpu_device_ordinal")
FILES = (
    *("/etc/environment", "/etc/environment.d/*.conf", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc", "/etc/bashrc"),
    *("~/.profile", "~/.bash_profile", "~/.bashrc", "~/.zshenv", "~/.zshrc", "~/.config/environment.d/*.conf"),
    *("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"),
)
FILE_BYTES = 2**18
VALUE_CHARACTERS = 300
VALUE_LIMIT = 2000  # what is longer is no address of a proxy
MOST_ASKED = 8
PORTS = {"http": 80, "https": 443, "socks": 1080, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}
ADDRESS = re.compile(
    r"\s*(?:(?P<scheme>[A-Za-z][\w+.-]*)://)?(?:.*@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]+))(?::(?P<port>[0-9]{1,5}))?(?:[/?#][^@]*)?\s*",
    re.DOTALL,
)
LOGIN = re.compile(r"\A(\s*(?:[A-Za-z][\w+.-]*://)?)([^/@:]*)(:?).*@", re.DOTALL)
#: What a shell leaves of user:password@host when the password was not quoted: a port that is none.
HALF_LOGIN = re.compile(
    r"\A(\s*(?:[A-Za-z][\w+.-]*://)?(?:[^/:\s\[\]{}]|\$\{\w+\})+:)(?!(?:[0-9]*|\$\S*)(?:[/?#].*)?\s*$).*", re.DOTALL
)

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


def look(environ: Mapping[str, str], home: str, files: Sequence[str] = FILES, limit_s: float = 1.0) -> Dict[str, Any]:
    """survey["environment"].

    `environ`: the environment of this session. `home`: the account's own folder, for the names in `files` that begin with ~.
    A value that an assignment further down in the same file replaces or unsets is left out; so is what only a function sets.
    `proxies`: `answers` is None with `why` beginning with "not asked" when nobody was asked: never take that for a dead proxy.
    `not_readable`: the files that this user may not read.
    """
    found: Dict[str, Any] = {"proxies": [], "visibility": [], "not_readable": []}
    sources = [(SESSION, {name: Value(value, True) for name, value in environ.items()})]
    for path in _paths(home, files, found["not_readable"]):
        text = _text(path, found["not_readable"])
        if OF_INTEREST.search(text):
            sources.append((path, assignments(path, text, environ)))
    for source, values in sources:
        for name in sorted(values):
            if name in VISIBILITY:
                shown = values[name].text[:VALUE_CHARACTERS]
                found["visibility"].append({"variable": name, "value": shown, "source": source})
            elif name in PROXIES and values[name].text.strip():
                found["proxies"].append(_proxy(name, values[name], source))
    _ask(found["proxies"], limit_s)
    return found


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


def masked(value: str) -> str:
    """The value of a proxy variable without its password; a login without a password is one (a token) as well."""
    if len(value) > VALUE_LIMIT:
        return "***"
    hidden, logins = LOGIN.subn(lambda m: f"{m.group(1)}{m.group(2) + ':' if m.group(3) else ''}***@", value, count=1)
    return proc.masked(hidden if logins else HALF_LOGIN.sub(r"\1***", value, count=1))[:VALUE_CHARACTERS]


def address(value: str) -> Tuple[str, int]:
    """Host and port that a proxy's value names; port 0 when it names none."""
    found = ADDRESS.fullmatch(value) if len(value) <= VALUE_LIMIT else None
    if found is None:
        return "", 0
    port = int(found.group("port") or PORTS.get((found.group("scheme") or "").lower(), 0))
    return found.group("six") or found.group("host"), port if port < 65536 else 0


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


def _paths(home: str, files: Sequence[str], not_readable: List[str]) -> Iterator[str]:
    for pattern in files:
        if pattern.startswith("~") and not home:
            continue
        path = Path(home + pattern[1:] if pattern.startswith("~") else pattern)
        try:
            names = sorted(entry.name for entry in path.parent.iterdir()) if "*" in path.name else [path.name]
        except PermissionError:
            not_readable.append(str(path.parent))
            continue
        except OSError:
            continue
        yield from (str(path.parent / name) for name in names if "*" not in path.name or fnmatch.fnmatchcase(name, path.name))


def _text(path: str, not_readable: List[str]) -> str:
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # a pipe would keep us waiting
            return ""
        with Path(path).open("rb") as stream:
            return stream.read(FILE_BYTES).decode("utf-8", "replace")
    except PermissionError:
        not_readable.append(path)
    except (OSError, ValueError):
        pass
    return ""


def _proxy(variable: str, value: Value, source: str) -> Dict[str, Any]:
    host, port = address(value.text) if value.known else ("", 0)
    why = "" if port else "not asked: the value names no host and port"
    if not value.known:
        why = "not asked: only a running shell knows the whole value"
    found = {"variable": variable, "value": masked(value.text), "source": source, "host": host, "port": port}
    return {**found, "answers": None, "why": why}


def _ask(proxies: Sequence[Dict[str, Any]], limit_s: float) -> None:
    """Fill in `answers` and `why`. All are asked at once, so one that is silent costs `limit_s` and not more."""
    places = list(dict.fromkeys((p["host"], p["port"]) for p in proxies if not p["why"]))
    whys: Dict[Tuple[str, int], str] = {}
    asked = places[:MOST_ASKED]
    threads = {place: threading.Thread(target=_connect, args=(place, limit_s, whys), daemon=True) for place in asked}
    until = time.monotonic() + limit_s + 0.1
    for place, thread in threads.items():
        try:
            thread.start()
        except RuntimeError:  # no further thread allowed
            _connect(place, limit_s, whys)
    for place, thread in threads.items():
        if place not in whys and thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))
    for proxy in proxies:
        place = (proxy["host"], proxy["port"])
        if place in threads and not proxy["why"]:
            proxy["why"] = whys.get(place, "timed out")  # the name server, too, may be silent
            proxy["answers"] = not proxy["why"]
        elif not proxy["why"]:
            proxy["why"] = f"not asked: there are more than {MOST_ASKED} proxies"


def _connect(place: Tuple[str, int], limit_s: float, whys: Dict[Tuple[str, int], str]) -> None:
    try:
        socket.create_connection(place, timeout=limit_s).close()
        why = ""
    except (socket.timeout, TimeoutError):
        why = "timed out"
    except ConnectionRefusedError:
        why = "connection refused"
    except socket.gaierror as exc:
        why = "no answer from the name server" if exc.errno == socket.EAI_AGAIN else "name not known"
    except UnicodeError:
        why = "name not known"
    except OSError as exc:
        why = (exc.strerror or errno.errorcode.get(exc.errno or 0, "failed")).lower()
    whys[place] = why
