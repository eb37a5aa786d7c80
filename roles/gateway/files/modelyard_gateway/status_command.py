"""`python -m modelyard_gateway status`: the page of the admin listener for a terminal.

Exit status: 0 all backends take requests, 1 something is wrong (it is said), 2 nothing could be learned.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, List, Mapping, Sequence
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from modelyard_gateway.table import HEADINGS, caption, rows
from modelyard_gateway.token_file import TokenProblem, read_token
from modelyard_gateway.words import span

TIMEOUT_S = 10.0
_COLOURS = {"ok": "32", "note": "36", "warn": "33", "out": "31"}
#: Levels that mean that somebody should look. A drained backend is somebody's wish.
_WRONG = ("warn", "out")


def main(arguments: Sequence[str]) -> int:
    """Ask the admin listener and print what it says."""
    parser = argparse.ArgumentParser(prog="modelyard_gateway status", description="Show the state of a running gateway.")
    parser.add_argument("--admin", default="http://127.0.0.1:8001", metavar="URL", help="admin listener (default: %(default)s)")
    parser.add_argument("--token-file", default="", metavar="FILE", help="file with the admin token, when one is wanted there")
    given = parser.parse_args(arguments)
    try:
        state = ask(given.admin, read_token(given.token_file) if given.token_file else "")
    except (OSError, ValueError, TokenProblem) as problem:
        print(f"{given.admin}: {reason(problem)}", file=sys.stderr)
        return 2
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print("\n".join(lines(state, colour)))
    return int(state["level"] in _WRONG)


def ask(admin: str, token: str) -> Dict[str, Any]:
    """Fetch the status. Raises OSError when nobody answers, ValueError when the answer is no status."""
    if urlsplit(admin).scheme not in ("http", "https"):
        raise ValueError("wanted a URL like http://127.0.0.1:8001")
    request = Request(f"{admin.rstrip('/')}/gateway/status", headers={"Accept": "application/json"})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    # Never through a proxy of the shell: it would be asked for its own 127.0.0.1, and would see the token.
    with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
        state = json.load(answer)
    if not isinstance(state, dict) or "backends" not in state:
        raise ValueError("what answers there is no gateway")
    return state


def reason(problem: Exception) -> str:
    """Say why nothing was learned; the listener's own words where it has some."""
    if isinstance(problem, HTTPError):
        try:
            return f"{problem.code}: {json.load(problem)['error']}"
        except (ValueError, KeyError, TypeError, OSError):
            return f"{problem.code}: what answers there is no gateway"
    if isinstance(problem, URLError):
        return f"no answer: {problem.reason}"
    return "what answers there is no gateway" if isinstance(problem, json.JSONDecodeError) else str(problem)


def lines(state: Mapping[str, Any], colour: bool) -> List[str]:
    """Write problems and table."""
    gateway = state["gateway"]

    def paint(text: str, level: str) -> str:
        return f"\033[{_COLOURS[level]}m{text}\033[0m" if colour else text

    written = [paint(state["summary"], state["level"])]
    written += [f"  {paint(problem['level'].ljust(4), problem['level'])}  {problem['text']}" for problem in state["problems"]]
    table = [["backend", *HEADINGS]]
    table += [
        [row.name, row.state, row.now, row.last_token, row.ttft, row.duration, row.answers, row.failed] for row in rows(state)
    ]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    levels = ["", *(row.level for row in rows(state))]
    for level, line in zip(levels, table):
        cells = [cell.ljust(width) for cell, width in zip(line, widths)]
        if level:
            cells[1] = paint(cells[1], level)
        written.append("  ".join(cells).rstrip())
    written.append(caption(state))
    waiting = f", {gateway['waiting']} waiting" if gateway["queue_size"] else ""
    written.append(
        f"gateway {gateway['host']}:{gateway['port']}, pid {gateway['pid']}, running for {span(gateway['uptime_s'])}: "
        f"{gateway['in_flight']} in flight{waiting}, {gateway['connections']} client connections"
    )
    return written
