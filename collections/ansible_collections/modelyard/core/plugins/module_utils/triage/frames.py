"""The traces in a log: which frames stand above an exception, and which traces end before theirs. Pure data, one per process."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.triage.lines import Line, process

FRAME = re.compile(r'File\s*"([^"]+)",\s*line\s*\d+,\s*in\s*([\w<>.]+)', re.IGNORECASE)
HEAD = re.compile(
    r"Traceback\s*\(most recent call last\)|(?:During handling of|above exception was the direct cause)", re.IGNORECASE
)
#: An exception's own line, as Python prints it below the frames.
EXCEPTION = re.compile(
    r"^(?:[a-z_]\w*\.)*[a-z]\w+(?:Error|Exception|Exit|Interrupt|NotFound|Empty|Timeout|Enabled|Warning)(?::.*|\s*)$",
    re.IGNORECASE,
)
#: What Python puts below the part of a statement that failed.
MARKS = re.compile(r"[\^~\s]*$")
GRAMMAR = re.compile(r"structured_output|xgrammar|outlines_core|llguidance|compile_grammar|compile_json_schema")
QUEUE = re.compile(r"shm_broadcast\.py:(?:dequeue|acquire_read)|:get_response$")
FRAMES_KEPT = 80


class Frame(NamedTuple):
    """One frame and the lines that it was read from."""

    file: str
    function: str
    lines: List[Line]


class Trace:
    """The frames of one process since its last trace began."""

    def __init__(self) -> None:
        self.frames: List[Frame] = []
        self.last = -1

    def words(self) -> str:
        """All files and functions, to look for a name in."""
        return " ".join(f"{frame.file}:{frame.function}" for frame in self.frames)


class Traces:
    """The open traces of all processes."""

    #: A line without a name belongs to a trace that ended so many lines before it, at most.
    NEAR = 40

    def __init__(self) -> None:
        self._traces: Dict[str, Trace] = {}

    def of(self, line: Line) -> Trace:
        """The trace that a line belongs to; empty when there is none."""
        own = self._traces.get(line.who)
        if own and own.frames and line.number - own.last <= self.NEAR * (5 if line.who else 1):
            return own
        near = [trace for trace in self._traces.values() if trace.frames and line.number - trace.last <= self.NEAR]
        if line.who or not near:
            return Trace()
        return max(near, key=lambda trace: trace.last)

    def frame(self, line: Line, file: str, function: str, lines: List[Line]) -> None:
        """A frame was read."""
        trace = self._traces.setdefault(line.who, Trace())
        if trace.frames and line.number - trace.last > self.NEAR * 5:
            trace.frames.clear()
        trace.frames.append(Frame(file, function, lines))
        del trace.frames[:-FRAMES_KEPT]
        trace.last = line.number

    def other(self, line: Line) -> None:
        """A line that is no frame: the head of another trace, or what stands below a frame."""
        trace = self._traces.get(line.who)
        if trace is None:
            return
        if HEAD.search(line.text):
            self._traces[line.who] = Trace()
        elif trace.frames and line.number - trace.last <= 2 and not MARKS.match(line.text):
            trace.frames[-1].lines.append(line)

    def close(self, line: Line) -> None:
        """The trace of this line has got its exception."""
        found = self.of(line)
        for who, trace in list(self._traces.items()):
            if trace is found:
                del self._traces[who]

    def open(self) -> List[tuple[str, Trace]]:
        """Traces that have frames and no exception."""
        return [(who, trace) for who, trace in self._traces.items() if trace.frames]


def kind(trace: Trace, who: str) -> Optional[tuple[str, List[Line]]]:
    """(cause, deciding lines) that the frames of a trace name by themselves; structured outputs before the scheduler."""
    role = process(who)
    dtk = _lines(
        frame for frame in trace.frames if frame.function == "get_dtk_version" or "get_dtk_version" in _code(frame).lower()
    )
    if dtk:
        return "dtk_version_undetected", dtk
    checked = any(frame.function.startswith("validate") or "entrypoints" in frame.file for frame in trace.frames)
    grammar = _lines([frame for frame in trace.frames if GRAMMAR.search(f"{frame.file} {frame.function}")][-3:])
    if grammar and role != "api" and not checked:
        return "grammar_compile_crash", grammar
    if "/v1/core/" in trace.frames[-1].file:
        return "scheduler_state_assertion", trace.frames[-1].lines
    queue = _lines(frame for frame in trace.frames if QUEUE.search(f"{frame.file}:{frame.function}"))
    return ("rpc_timeout_method_unseen", queue) if queue and role != "worker" else None


def _lines(frames: Iterable[Frame]) -> List[Line]:
    return [line for frame in frames for line in frame.lines]


def _code(frame: Frame) -> str:
    return " ".join(line.text for line in frame.lines)
