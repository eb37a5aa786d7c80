"""The status as a page for people. It is written here alone; the script in page.html fetches it again and puts it in place."""

from __future__ import annotations

import base64
import hashlib
import pkgutil
import re
from html import escape
from typing import Any, List, Mapping, Tuple
from urllib.parse import quote

from modelyard_gateway.table import HEADINGS, Row, caption, rows
from modelyard_gateway.words import count, span

_TEMPLATE = (pkgutil.get_data(__package__, "page.html") or b"").decode("utf-8")


def _hash(element: str) -> str:
    found = re.search(f"<{element}>(.*?)</{element}>", _TEMPLATE, re.DOTALL)
    assert found, f"page.html has no <{element}>"
    return "'sha256-" + base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode() + "'"


#: Nothing but the page's own style and script is taken, and nobody else may frame it: it has buttons.
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_hash('style')}; script-src {_hash('script')}; connect-src 'self'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_LEVELS = {"ok": "all well", "note": "note", "warn": "warning", "out": "out"}


def render(state: Mapping[str, Any]) -> str:
    """Write the whole page for a status."""
    gateway = state["gateway"]
    where = f"{gateway['host']}:{gateway['port']}"
    parts = {
        "title": escape(f"{_LEVELS[state['level']]}: gateway {where}"),
        "where": escape(where),
        "live": "\n".join([_summary(state), _table(state), _totals(state)]),
    }
    return re.sub(r"<!--(\w+)-->", lambda marker: parts[marker[1]], _TEMPLATE)


def _summary(state: Mapping[str, Any]) -> str:
    items = [
        f'<li class="{problem["level"]}"><b>{_LEVELS[problem["level"]]}</b> <span>{_text(problem["text"])}</span></li>'
        for problem in state["problems"]
    ]
    listed = f"<ul>{''.join(items)}</ul>" if items else ""
    time = f'<time datetime="{state["time_at"]}">{state["time_at"][:19].replace("T", " ")} UTC</time>'
    return (
        f'<section class="summary {state["level"]}"><p><strong>{escape(state["summary"])}</strong> {time}</p>{listed}</section>'
    )


def _table(state: Mapping[str, Any]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ["backend", *HEADINGS, ""])
    body = "".join(_row(row) for row in rows(state))
    below = f"<caption>{_text(caption(state))}; in all: since the start</caption>"
    return f"<table>{below}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: Row) -> str:
    action = "undrain" if row.draining else "drain"
    title = escape(f"{action} {row.name}")
    small = f"<small>{_breakable(row.address)}</small>" if row.address != row.name else ""
    answers, failed = (f"<small>{number} in all</small>" for number in (row.answers_all, row.failed_all))
    cells = zip(
        HEADINGS,
        (
            f"<b>{escape(row.state)}</b><small>{_text(row.more)}</small>",
            *map(_text, (row.now, row.last_token, row.ttft, row.duration)),
            _text(row.answers) + answers,
            _text(row.failed) + failed,
        ),
    )
    return (
        f'<tr class="{row.level}"><th scope="row">{_breakable(row.name)}{small}</th>'
        + "".join(f'<td data-name="{name}">{content}</td>' for name, content in cells)
        + f'<td><form method="post" action="{action}?backend={quote(row.name, safe="")}">'
        + f'<button id="{title}" title="{title}">{action}</button></form></td></tr>'
    )


def _text(words: str) -> str:
    """Keep numbers and their units on one line."""
    return re.sub(r"(\d) (ms|s|min|h|d|of)\b", "\\1\u00a0\\2", escape(words))


def _breakable(name: str) -> str:
    """Let long names break behind their separators, but not before the number that tells them apart."""
    return re.sub(r"([/:._-])(?!\d+$)", r"\1<wbr>", escape(name))


def _totals(state: Mapping[str, Any]) -> str:
    gateway, log = state["gateway"], state["log"]
    queue = f"{gateway['waiting']} of {gateway['queue_size']}" if gateway["queue_size"] else "no queue"
    facts: List[Tuple[str, str]] = [
        ("requests in flight", str(gateway["in_flight"])),
        ("waiting", queue),
        ("client connections", str(gateway["connections"])),
        ("running for", span(gateway["uptime_s"])),
        ("process", f"{gateway['pid']}"),
        ("memory", "-" if gateway["memory_bytes"] is None else f"{gateway['memory_bytes'] / 2**20:.0f} MiB"),
        ("open files", f"{gateway['open_files']} of {gateway['open_files_limit']}"),
        ("result log", "none" if log is None else f"{log['path']}, {count(log['written'], 'line')}, {log['dropped']} lost"),
        *((kind.replace("_", " "), str(number)) for kind, number in gateway["totals"].items()),
    ]
    return "<dl>" + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts) + "</dl>"
