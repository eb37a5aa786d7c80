"""The page of one run: one file of HTML that asks the network for nothing and runs no script."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from modelyard.report import answers, changes, figures, plot, reading, record, summary
from modelyard.report.history import strip
from modelyard.report.load import PERCENTILES, Load, load
from modelyard.report.record import Host, Run, Service, Step
from modelyard.report.trouble import Trouble, troubles

FOLDER = Path(__file__).parent / "templates"
#: What is not accepted is shown unfolded up to so many hosts, what is accepted up to so many instances of all hosts.
UNFOLDED_HOSTS, UNFOLDED_INSTANCES = 4, 16
#: Hosts that are accepted get a fold of their own together, when there are more than so many.
LISTED = 8
#: So many troubles are shown unfolded, and places of each.
UNFOLDED_TROUBLES, PLACES = 8, 6


def page(run: dict[str, Any], history: list[dict[str, Any]], loads: list[dict[str, Any]], previous: dict[str, Any] | None) -> str:
    """The whole page.

    :param run: the record of a run
    :param history: earlier runs, as records or as {id, began, answer}; with `html` where a page of it lies beside this one
    :param loads: load tests, the newest of each service is unfolded; without any, those that the run itself has seen
    :param previous: the record of the last accepted run before this one; None when there is none
    """
    found = record.run(run)
    tests = sorted(map(load, reading.mappings(loads) or _seen(run)), key=lambda one: one.at, reverse=True)
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    known = troubles(found)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            style=Markup(style),
            style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
            run=found,
            headline=answers.HEADLINES[found.answer.id],
            tally=summary.tally(found),
            troubles=known[:UNFOLDED_TROUBLES],
            more_troubles=known[UNFOLDED_TROUBLES:],
            strip=strip(found, history),
            previous=record.run(previous) if previous else None,
            changes=changes.between(previous, run) if previous else None,
            parts=_parts(found),
            loads=tests,
            newest={one.service: one.id for one in reversed(tests)},
        )
    )


def _seen(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The newest load test of each service of the run."""
    hosts = [reading.mapping(host) for host in reading.mapping(reading.mapping(run).get("hosts")).values()]
    return [
        test
        for host in hosts
        for service in reading.mappings(host.get("services"))
        if (test := reading.mapping(service.get("load")))
    ]


def _parts(found: Run) -> list[tuple[str, list[tuple[Host, bool]]]]:
    """(name of a fold around them, hosts and whether each is unfolded)."""
    bad = [host for host in found.hosts if host.answer.id != "accepted"]
    good = [host for host in found.hosts if host.answer.id == "accepted"]
    instances = sum(len(service.instances) for host in found.hosts for service in host.services)
    small = instances <= UNFOLDED_INSTANCES
    name = f"{figures.count(len(good), 'host')} accepted" if len(good) > LISTED else ""
    parts = [
        ("", [(host, small or place < UNFOLDED_HOSTS) for place, host in enumerate(bad)]),
        (name, [(host, small) for host in good]),
    ]
    return [(name, hosts) for name, hosts in parts if hosts]


def ladder(service: Service) -> list[tuple[str, list[Step | None], float | None]]:
    """A row for each step: its id, the step on each instance, and the longest time."""
    cells = {(step.id, step.instance): step for step in service.steps}
    rows = []
    for name in dict.fromkeys(step.id for step in service.steps):
        row = [cells.get((name, instance)) for instance in service.instances]
        times = [step.seconds for step in row if step and step.seconds is not None]
        rows.append((name, row, max(times, default=None)))
    return rows


def complaints(service: Service) -> list[list[Step]]:
    """The steps that were neither passed nor skipped; those of several instances that say the same are together."""
    found: dict[tuple[str, str, str], list[Step]] = {}
    for step in service.steps:
        if step.verdict.id not in ("pass", "skipped"):
            found.setdefault((step.id, step.verdict.id, step.detail), []).append(step)
    return list(found.values())


def longest(service: Service) -> float:
    """The longest step of a service in seconds: the full length of its bars."""
    return max([step.seconds for step in service.steps if step.seconds is not None], default=0.0)


def bar(value: float | None, full: float | None, level: str = "") -> Markup:
    """A bar of `value` in `full`; nothing when one of them is not known."""
    if value is None or not full or full <= 0:
        return Markup("")
    width = round(100 * min(max(value / full, 0), 1), 1)
    style = Markup(' class="{}"').format(level) if level else ""
    begin = Markup('<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">')
    return begin + Markup('<rect width="{:g}" height="4"{}/></svg>').format(max(width, 0.5), style)


def breakable(name: str) -> Markup:
    """Long names and paths break behind their separators, and keep their numbers together."""
    return Markup(re.sub(r"([/:._=-])(?=[^\W\d])", r"\1<wbr>", str(escape(name))))


def kept(value: str) -> Markup:
    """Numbers stay on one line with their units."""
    return Markup(re.sub(r"(\d) (ms|s|min|h|d|MiB|%|of)\b", "\\1\u00a0\\2", str(escape(value))))


def places(trouble: Trouble) -> str:
    """Where it is so, the first few by name."""
    return figures.some(trouble.where, PLACES)


def pictures(test: Load, name: str) -> list[Markup]:
    """The plots of a load test; `name` begins the ids in them."""
    return [plot.svg(one, f"{name}-{place}") for place, one in enumerate(test.plots)]


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        breakable=breakable,
        kept=kept,
        moment=reading.moment,
        span=figures.span,
        seconds=figures.seconds,
        plain=figures.plain,
        rate=figures.rate,
        percent=figures.percent,
        count=figures.count,
        some=figures.some,
        numbers=figures.numbers,
        places=places,
    )
    environment.globals.update(
        bar=bar,
        complaints=complaints,
        ladder=ladder,
        longest=longest,
        pictures=pictures,
        percentiles=PERCENTILES,
        verdicts=answers.VERDICTS,
    )
    return environment
