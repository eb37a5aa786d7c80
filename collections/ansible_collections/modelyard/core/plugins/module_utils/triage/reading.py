"""Reads a log line by line and keeps, for each cause, its first line. The memory it takes does not grow with the log."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage import frames
from ansible_collections.modelyard.core.plugins.module_utils.triage.causes import CAUSES
from ansible_collections.modelyard.core.plugins.module_utils.triage.lines import Line, Window, process, read
from ansible_collections.modelyard.core.plugins.module_utils.triage.rules import RULES, Rule
from ansible_collections.modelyard.core.plugins.module_utils.triage.symptoms import SUPPORT, SYMPTOMS
from ansible_collections.modelyard.core.plugins.module_utils.triage.tables import Tables, Unit

#: A list of what it may have been is no sign of any of it.
_GUESSES = re.compile(r"(?:Some )?common causes include.*|If (?:an )?out[- ]of[- ]memory.*", re.IGNORECASE)
#: What users have sent is no sign of anything.
_PROMPT = re.compile(r"Received request \S+: ?prompt")
#: Exceptions that only follow from another, or from an end that was asked for.
FOLLOWER = re.compile(
    r"^(?:[\w.]+\.)?(?:KeyboardInterrupt|SystemExit|CancelledError|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError"
    r"|ConnectionError|ClientConnector\w*|RemoteDisconnected|URLError|APIConnectionError|ChildProcessError|ProcessLookupError"
    r"|ExceptionGroup|\w*Warning|Empty|StopIteration|StopAsyncIteration|GeneratorExit|TimeoutError)\b"
    r"|Executor failed|cancelled|No CUDA GPUs are available|No GPUs were found|Connection "
    r"refused|HTTPException|InternalServerError|"
    r"See (?:root cause|stack trace)",
    re.IGNORECASE,
)
_ALL = (*RULES, *SYMPTOMS)
_UNSUPPORTED = re.compile(r"architectures?\s*\[['\"](\w+)['\"].{0,40}are\s*not\s*supported", re.IGNORECASE)
#: The printed list of architectures may be broken into so many lines.
LIST_LINES = 120
EVIDENCE_KEPT = 6


class Sign(NamedTuple):
    """Lines that speak for a cause."""

    cause: str
    lines: Tuple[Line, ...]
    visible: bool
    said: Tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Where it begins."""
        return self.lines[0].number

    def more(self, lines: Iterable[Line], said: str, visible: bool) -> Sign:
        """With further lines for the same cause."""
        if len(self.lines) >= EVIDENCE_KEPT:
            return self._replace(visible=self.visible or visible)
        further = tuple(line for line in lines if line not in self.lines)
        return self._replace(visible=self.visible or visible, lines=(*self.lines, *further), said=(*self.said, said))


class Reader:
    """Give it lines in their order, then ask `signs`."""

    def __init__(self) -> None:
        self.first: Dict[str, Sign] = {}
        self.cut: Dict[str, Sign] = {}
        self.support: Dict[str, List[Line]] = {}
        self.unknown: Optional[Sign] = None
        self.unknown_where = ""
        self.tables = Tables()
        self._unit = Unit()
        self._wanted, self._wanted_until = "", 0
        self._traces = frames.Traces()
        self._window = Window()

    def add(self, number: int, raw: str) -> None:
        """One more line."""
        if not raw.strip():
            return
        line = read(number, raw)
        line = line._replace(text=_GUESSES.sub("", line.text))
        if _PROMPT.search(line.text):
            return
        runs = self._window.add(line)
        self.tables.add(line)
        if "=" in line.text:
            self._unit.add(line)
        if self._frame(line, runs):
            return
        self._architecture(line, runs)
        found = self._match(_ALL, line, runs)
        self._support(line, runs)
        self._exception(line, known=found)
        if not found:
            self._traces.other(line)

    def finish(self) -> None:
        """The end: traces that have no exception, and tables as a whole."""
        for who, trace in self._traces.open():
            kind = frames.kind(trace, who)
            if kind and kind[0] in self.cut:
                self.cut[kind[0]] = self.cut[kind[0]].more(kind[1], "", False)
            elif kind and kind[0] not in self.first:
                self.cut[kind[0]] = Sign(kind[0], tuple(kind[1][:EVIDENCE_KEPT]), False)
        for cause, lines in self.tables.found():
            self._keep(self.first, Sign(cause, tuple(lines), CAUSES[cause].visible))
        block = self._unit.found()
        if block:
            self._keep(self.first, Sign("engine_death_exit_zero", tuple(block), False))

    @staticmethod
    def _keep(into: Dict[str, Sign], sign: Sign) -> None:
        into.setdefault(sign.cause, sign)

    def _frame(self, line: Line, runs: Sequence[Sequence[Line]]) -> bool:
        if not any("file" in one.text.lower() for one in (line, *(one for run in runs for one in run[-4:]))):
            return False
        found = _search(frames.FRAME, line, runs)
        if not found:
            return False
        match, lines = found
        self._traces.frame(lines[0], match.group(1).lower(), match.group(2).lower(), list(lines))
        return True

    def _match(self, rules: Sequence[Rule], line: Line, runs: Sequence[Sequence[Line]]) -> bool:
        low = line.text.lower()
        joined = [_joined(run) for run in runs]
        any_found = False
        oom = False
        for rule in rules:
            if oom and rule.cause.startswith("oom_"):
                continue
            here = any(word in low for word in rule.words)
            there = [pair for pair in joined if any(word in pair[2] for word in rule.words)]
            if not here and not there:
                continue
            match, lines = rule.pattern.search(line.text) if here else None, (line,)
            if not match:
                match, lines = _in_runs(rule.pattern, there)  # type: ignore[assignment]
            if not match:
                continue
            if rule.frames and not rule.frames.search(self._traces.of(line).words()):
                continue
            any_found = True
            oom = oom or rule.cause.startswith("oom_")
            known = self.first.get(rule.cause)
            # The statement that raises is shown before the message it makes.
            said = ("raise " if line.text.startswith("raise ") else "") + match.group(0)
            if known is None:
                self.first[rule.cause] = Sign(rule.cause, tuple(lines), rule.visible, (said,))
            elif said not in known.said or (rule.visible and not known.visible):
                # The same cause in other words, perhaps now with its reason.
                self.first[rule.cause] = known.more(lines, said, rule.visible)
        return any_found

    def _support(self, line: Line, runs: Sequence[Sequence[Line]]) -> None:
        low = line.text.lower()
        for rule in SUPPORT:
            kept = self.support.setdefault(rule.cause, [])
            if len(kept) >= 4 or not (runs or any(word in low for word in rule.words)):
                continue
            found = _search(rule.pattern, line, runs)
            if found:
                kept.extend(one for one in found[1] if one not in kept)

    def _exception(self, line: Line, known: bool) -> None:
        found = frames.EXCEPTION.match(line.text)
        if not found:
            return
        trace = self._traces.of(line)
        kind = frames.kind(trace, line.who) if trace.frames else None
        self._traces.close(line)
        if FOLLOWER.search(line.text) and not (kind and kind[0] == "rpc_timeout_method_unseen"):
            return
        if kind and kind[0] in ("grammar_compile_crash", "dtk_version_undetected") and not _oom_like(line):
            self._keep(self.first, Sign(kind[0], (*kind[1][: EVIDENCE_KEPT - 1], line), True))
        elif kind and not known:
            self._keep(self.first, Sign(kind[0], (*kind[1][-3:], line), CAUSES[kind[0]].visible))
        elif not known and self.unknown is None and (trace.frames or process(line.who) in ("engine", "worker")):
            self.unknown = Sign("unknown_error", (line,), True)
            self.unknown_where = " ".join(frame.file for frame in trace.frames[-1:])

    def _architecture(self, line: Line, runs: Sequence[Sequence[Line]]) -> None:
        """The same message stands for an engine without an architecture and for one whose import of it fails: the list tells."""
        found = _search(_UNSUPPORTED, line, runs) if "support" in line.text.lower() else None
        if found and not self._wanted:
            self._wanted, self._wanted_until = found[0].group(1), line.number + LIST_LINES
            self._keep(self.first, Sign("model_arch_unsupported", found[1], True))
        rest = re.split("support", line.text, maxsplit=1, flags=re.IGNORECASE)[1] if found else line.text
        if self._wanted and line.number <= self._wanted_until and re.search(rf"['\"]{re.escape(self._wanted)}['\"]", rest):
            first = self.first.pop("model_arch_unsupported", None)
            lines = (*(first.lines if first else ()), *(() if first and line in first.lines else (line,)))
            self._keep(self.first, Sign("model_arch_inspect_failed", lines, False))
            self._wanted = ""


def _oom_like(line: Line) -> bool:
    return "memory" in line.text.lower()


def _joined(run: Sequence[Line]) -> Tuple[Sequence[Line], str, str]:
    text = "".join(one.text[-Window.WIDTH :] for one in run[:-1]) + run[-1].text
    return run, text, text.lower()


def _in_runs(
    pattern: re.Pattern[str], joined: Sequence[Tuple[Sequence[Line], str, str]]
) -> tuple[Optional[re.Match[str]], tuple[Line, ...]]:
    for run, text, _ in joined:
        newest = len(text) - len(run[-1].text)
        for match in pattern.finditer(text):
            if match.end() > newest:
                return match, _covered(run, match)
    return None, ()


def _covered(run: Sequence[Line], match: re.Match[str]) -> Tuple[Line, ...]:
    """The lines of a run over which a match stretches."""
    at, lines = 0, []
    for number, line in enumerate(run):
        width = len(line.text if number == len(run) - 1 else line.text[-Window.WIDTH :])
        if at < match.end() and at + width > match.start():
            lines.append(line)
        at += width
    return tuple(lines)


def _search(
    pattern: re.Pattern[str], line: Line, runs: Sequence[Sequence[Line]]
) -> Optional[tuple[re.Match[str], tuple[Line, ...]]]:
    match = pattern.search(line.text)
    if match:
        return match, (line,)
    found, lines = _in_runs(pattern, [_joined(run) for run in runs])
    return (found, lines) if found else None
