"""What an engine's log says: how far a start is, and which lines decide why it died. Pure functions over text.

Which line is a first error, a symptom or a prefix is known by the triage; here is only what is looked for while an engine starts
or runs.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Pattern, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage import kinds, lines


class Phase(NamedTuple):
    """One step of a start, in the order in which they come."""

    id: str
    label: str
    sign: Optional[Pattern[str]]


PHASES: Tuple[Phase, ...] = (
    Phase("launching", "loading Python packages", None),
    Phase("configuring", "reading the model's configuration", re.compile(r"non-default args|Resolved architecture")),
    Phase(
        "engine",
        "starting the engine and its workers",
        re.compile(r"Initializing a V1 LLM engine|Waiting for \d+ (local|remote)"),
    ),
    Phase("loading", "loading weights", re.compile(r"Starting to load model")),
    Phase("loaded", "weights loaded", re.compile(r"Loading weights took|Model loading took")),
    Phase(
        "cache",
        "KV cache laid out, warming up",
        re.compile(r"KV cache size|# (GPU|CPU) blocks|Available KV cache memory"),
    ),
    Phase(
        "graphs",
        "compiling and capturing graphs",
        re.compile(r"Capturing CUDA graph|torch\.compile takes|Compiling a graph"),
    ),
    Phase("serving", "engine ready, opening the port", re.compile(r"init engine .*took|Starting vLLM (API )?server")),
)
PERCENT = re.compile(r"(?:checkpoint shards|Capturing CUDA graph[^:]*):\s+(\d+)%")
KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")

ERROR_LINE = re.compile(
    r"(?:^|\s)(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)"
    r"|^vllm serve: error: |error: argument |^/.*: (?:No such file or directory|cannot execute|Permission denied|Is a directory)"
    r"|^\s*(?:Value|Assertion) error, |^keeper: |died unexpectedly|Segmentation fault|^Killed$|: not found$|command not found"
    r"|cannot open shared object file"  # only a warning in the log, and the reason why kernels are missing later
)
#: A running engine that logs one of these is not to be trusted further, whatever it answers.
FATAL = re.compile(
    r"EngineDeadError|EngineCore encountered (?:a fatal|an) |died unexpectedly|RPC call to \w+ timed out"
    r"|No available shared memory broadcast block|Executor failed"
)
LINES_KEPT = 8
#: Who writes a line; and how far below a fatal line its traceback ends.
PROCESS = re.compile(r"\([^)]*pid=\d+\)")
TRACEBACK_LINES = 80


def progress(text: str) -> Tuple[str, str]:
    """(phase id, words for people) of a starting engine."""
    reached = PHASES[0]
    for phase in PHASES[1:]:
        if phase.sign and phase.sign.search(text):
            reached = phase
    label = reached.label
    percents = PERCENT.findall(text)
    if reached.id in ("loading", "graphs") and percents:
        label += f", {percents[-1]} %"
    tokens = KV_TOKENS.search(text)
    if reached.id == "cache" and tokens:
        label = f"KV cache for {tokens.group(1)} tokens laid out, warming up"
    return reached.id, label


def bare(line: str) -> str:
    """A log line without what stands before its words."""
    return lines.read(0, line).text


def deciding_lines(text: str) -> List[str]:
    """The lines that say why a start failed: first causes, then (only without any) symptoms, then the last lines."""
    causes: List[str] = []
    symptoms: List[str] = []
    for line in text.splitlines():
        content = bare(line)
        known = kinds.first_error(content) and not content.startswith("raise ")
        if not (known or ERROR_LINE.search(content)):
            continue
        into = symptoms if kinds.symptom(content) and not known else causes
        if content not in into:
            into.append(content)
    if causes or symptoms:
        return (causes or symptoms)[:LINES_KEPT]
    return [line for line in text.splitlines() if line.strip()][-LINES_KEPT:]


def fatal_lines(text: str) -> List[str]:
    """Lines of a running engine's log after which no answer of it counts.

    A first one that says only that something was fatal is followed by what its process told next as the reason.
    """
    rows = text.splitlines()
    numbers = [number for number, line in enumerate(rows) if FATAL.search(line)][:LINES_KEPT]
    found = [bare(rows[number]) for number in numbers]
    if found and kinds.symptom(found[0]):
        first = rows[numbers[0]]
        reason = _reason(first, rows[numbers[0] + 1 : numbers[0] + 1 + TRACEBACK_LINES])
        found[0] += f" {reason}" if reason else ""
    return found


def _reason(first: str, after: Sequence[str]) -> str:
    """The first cause that the process of a line tells after it; empty when it has no name there, or tells none."""
    who = PROCESS.match(first)
    own = [bare(line).strip() for line in after if who and line.startswith(who.group(0))]
    return next((line for line in own if ERROR_LINE.search(line) and not kinds.symptom(line)), "")
