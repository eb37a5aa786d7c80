"""One line of a log without what others have put before it: the words, which process wrote them, and when. Pure functions."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ISO = r"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?i:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_SOURCE = r"(?:\[[^\]\s]+:\d+\]|[\w./-]+\.py:\d+\])"
#: What stands before the words of a line, in the order in which they are tried. Each may come again behind another.
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_ISO}\s*\|\s*{_LEVEL}\s*\|\s*(?:[\w.:-]+\s*\|)?(?:\s*-\s)?",  # loguru, fastchat
        rf"{_ISO}\s+-\s+[\w.]+\s+-\s+{_LEVEL}\s+-\s",  # Python's logging
        rf"{_ISO}\s+[^\s:]+\s+[\w@.\\/-]+(?:\[\d+\])?:\s",  # journald, ISO times
        rf"\[?{_ISO}\]?\s*",  # Kubernetes, CI, docker
        r"(?:stdout|stderr)\s+[FP]\s",  # containerd
        r"(?P<month>[A-Za-z]{3})\s+(?P<day>\d\d?)\s+(?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?\s+[^\s:]+\s+[\w@.\\/-]+(?:\[\d+\])?:\s?",
        r"\[[A-Za-z]{3}\s+(?P<month>[A-Za-z]{3})\s+(?P<day>\d\d?)\s+(?P<clock>\d\d:\d\d:\d\d)\s+\d{4}\]\s*",  # dmesg -T
        r"\[\s*\d+\.\d{3,}\]\s*",  # dmesg
        r"<\d{1,3}>(?=\S)",  # syslog priority
        r"[\w][\w.-]*\s+\|\s",  # compose
        r"\((?P<who>[^()]*\b(?i:pid)=\d+[^()]*)\)\s*",  # vLLM and Ray
        r"\[(?P<rank>rank\d+)\]:\s*",
        r"\[[EWIFC]\d*(?:\s+\d\d:\d\d:\d\d[.\d]*)?\s+[\w.]+\.(?:cpp|cc|h|hpp|cu):\d+\]\s*",  # torch
        rf"(?P<level>{_LEVEL})\s+(?P<stamp>\d\d-\d\d\s+\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?\s*{_SOURCE}?\s?",  # vLLM
        rf"\d\d:\d\d:\d\d\s+{_SOURCE}\s?",  # its second half, when a line was broken there
        rf"(?P<plain>{_LEVEL}):\s+",  # uvicorn
        r"\[(?:[\w./-]+/)?[\w-]+\.py:\d+\]\s?",
        r"(?:#+|>(?!>)|//)\s+",  # pasted with comment or quotation marks
        r"##\[(?:error|warning|debug)\]",
    )
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_DOCKER = re.compile(r'\s*\{"log":\s?"(?P<log>.*?)(?:\\r)?(?:\\n)?",\s?"stream":\s?"\w+".*\}\s*$')
_UNQUOTED = {'\\"': '"', "\\\\": "\\", "\\t": "\t", "\\u003c": "<", "\\u003e": ">", "\\u0026": "&"}
_ESCAPE = re.compile(r'\\["\\t]|\\u00(?:3c|3e|26)')


class Line(NamedTuple):
    """`raw`: as it stood. `head`: it begins a record of the engine's log. `at`: seconds since the year began, when readable."""

    number: int
    raw: str
    text: str
    who: str
    head: str
    at: Optional[float]


def read(number: int, raw: str) -> Line:
    """A line, cleaned."""
    raw = raw.rstrip("\r\n")
    text = _ANSI.sub("", raw) if "\x1b" in raw else raw
    docker = _DOCKER.match(text) if '"log":' in text else None
    if docker:
        text = _ESCAPE.sub(lambda found: _UNQUOTED[found.group(0)], docker.group("log"))
        text = _ANSI.sub("", text.replace("\\u001b", "\x1b"))
    whole = text = text.strip()
    who, stamped, at = "", False, None
    going = True
    while going:
        going = False
        for prefix in _PREFIXES:
            found = prefix.match(text)
            if found and found.end():
                groups = found.groupdict()
                who = groups.get("who") or groups.get("rank") or who
                stamped = stamped or bool(groups.get("stamp") or groups.get("plain"))
                at = _time(groups) if at is None else at
                text = text[found.end() :].lstrip()
                going = True
                break
    return Line(number, raw, text, who, whole[: len(whole) - len(text)] if stamped else "", at)


def _time(groups: dict[str, Optional[str]]) -> Optional[float]:
    iso, stamp, month = groups.get("iso"), groups.get("stamp"), groups.get("month")
    if iso:
        return _seconds(int(iso[5:7]), int(iso[8:10]), iso[11:19])
    if stamp:
        return _seconds(int(stamp[:2]), int(stamp[3:5]), stamp[5:].strip())
    if month and month.lower() in _MONTHS:
        return _seconds(_MONTHS.index(month.lower()) + 1, int(groups["day"] or 0), groups["clock"] or "0")
    return None


def _seconds(month: int, day: int, clock: str) -> float:
    parts = [int(part) for part in clock.split(":")] + [0, 0]
    return ((month * 31.0 + day) * 24 + parts[0]) * 3600 + parts[1] * 60 + parts[2]


def process(who: str) -> str:
    """`api`, `engine`, `worker`, or empty: what kind of process a name in front of a line is."""
    low = who.lower()
    if "worker" in low or low.startswith("rank"):
        return "worker"
    if "enginecore" in low or "engine" in low:
        return "engine"
    return "api" if "apiserver" in low or "api_server" in low else ""


class Window:
    """The last lines, to join what was broken into several ones. Lines of one process are also kept by themselves."""

    LINES = 7
    WIDTH = 600

    def __init__(self) -> None:
        self._all: List[Line] = []
        self._own: dict[str, List[Line]] = {}

    def add(self, line: Line) -> List[List[Line]]:
        """The runs of lines that end with this one and may be one message; empty when it begins a message of its own."""
        runs = []
        own = self._own.setdefault(line.who, []) if line.who else []
        last = (own or self._all)[-1:]
        if not (line.head and not (last and last[0].head == line.head)):
            runs = [
                run for run in ([*self._all, line], [*own, line] if own and own[-1:] != self._all[-1:] else []) if len(run) > 1
            ]
        for kept in (self._all, own):
            kept.append(line)
            del kept[: -self.LINES + 1]
        if len(self._own) > 256:
            self._own.clear()
        return runs
