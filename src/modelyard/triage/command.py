"""Say which layer of a service failed, from its logs: the first error, what only follows from it, and what to do next.

Several files are logs of several processes and are merged by time. Secrets are taken out of what is shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from ansible_collections.modelyard.core.plugins.module_utils.triage import classify_stream, classify_streams
from ansible_collections.modelyard.core.plugins.module_utils.triage.text import redacted, words

from modelyard import say

HELP = "say which layer of a service failed, from its logs"
NOTHING, UNREADABLE = 1, 2
BLOCK = 1 << 18
EPILOG = """exit status:
  0  a cause or a symptom was named
  1  nothing in the logs tells of a failure
  2  wrong arguments, or a file could not be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `modelyard triage`."""
    parser.add_argument(
        "logs", metavar="FILE", nargs="+", help="log of the engine, kernel log or a tool's output; - for the standard input"
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Read, answer, show."""
    try:
        answer = redacted(_answer(args.logs))
    except OSError as exc:
        say.err(f"modelyard triage: {exc.filename or 'the input'} cannot be read: {exc.strerror or exc}. Nothing was judged")
        return UNREADABLE
    problem = say.out(json.dumps(answer, indent=1, ensure_ascii=False) if args.json else words(answer))
    if problem:
        say.err(f"modelyard triage: the answer could not be shown: {problem}")
        return UNREADABLE
    return NOTHING if answer["cause"] == "nothing_found" else 0


def _answer(names: list[str]) -> dict[str, Any]:
    with ExitStack() as stack:
        # All are opened first: a name that is wrong is told before a large log has been read.
        files = {name: sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb")) for name in names}
        if len(files) == 1:
            return classify_stream(_pieces(next(iter(files.values()))))
        return classify_streams({name: _pieces(file) for name, file in files.items()})


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(BLOCK):
        yield piece
