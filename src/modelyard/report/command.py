"""The command that makes a page, or the plain lines, from records on the disk."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from modelyard import say
from modelyard.report.render import page
from modelyard.report.summary import words

HELP = "make the page of a run, or show it in a few lines"
WRONG, NOT_WRITTEN = 2, 1
#: Names of run records below a folder of the history.
RECORDS = ("*.json", "*/run.json")


class Unreadable(Exception):
    """A file that holds no record; the message is for people."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `report`, for a command of its own or as a part of another."""
    parser.add_argument("record", metavar="RUN.json", type=Path, help="record of the run")
    parser.add_argument("--history", metavar="DIR", type=Path, help="folder with the records of earlier runs")
    parser.add_argument(
        "--load", metavar="FILE", type=Path, nargs="+", default=[], help="records of load tests, in place of those of the run"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="page to write; - for the screen; default: RUN.html")
    parser.add_argument("--text", action="store_true", help="show the run in a few plain lines, and write no page")


def run(args: argparse.Namespace) -> int:
    """Make it. Returns the exit status: 0 done, 1 not written, 2 something that was named could not be read."""
    try:
        record = _record(args.record)
        loads = [_json(path) for path in args.load]
        if args.history and not args.history.is_dir():
            raise Unreadable(f"{args.history} is no folder")
    except Unreadable as exc:
        say.err(str(exc))
        return WRONG
    if args.text:
        return _print(words(record))
    output = args.output or args.record.with_suffix(".html")
    history = _history(args.history, output.parent) if args.history else []
    made = page(record, history, loads, _previous(record, history))
    if str(output) == "-":
        return _print(made)
    try:
        _write(output, made)
    except OSError as exc:
        say.err(f"{output} was not written: {exc.strerror or exc}; what was there before is unchanged")
        return NOT_WRITTEN
    say.out(f"Written: {output}")
    return 0


def _print(shown: str) -> int:
    """To the screen, or to a program that may stop reading."""
    why = say.out(shown, end="")
    if why:
        say.err(f"it could not be shown: {why}")
    return NOT_WRITTEN if why else 0


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as exc:
        raise Unreadable(f"{path} cannot be read: {exc.strerror or exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise Unreadable(f"{path} holds no JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise Unreadable(f"{path} holds no record, but {type(found).__name__}")
    return found


def _record(path: Path) -> dict[str, Any]:
    found = _json(path)
    if not isinstance(found.get("hosts"), dict):
        raise Unreadable(f"{path} is no record of a run: it has no hosts")
    return found


def _history(folder: Path, beside: Path) -> list[dict[str, Any]]:
    """The records of a folder, oldest first; what is damaged is named and left out."""
    found = []
    for path in sorted({path for pattern in RECORDS for path in folder.glob(pattern)}):
        try:
            record = _record(path)
        except Unreadable as exc:
            say.err(f"left out of the history: {exc}")
            continue
        made = path.with_suffix(".html")
        if made.is_file():
            record["html"] = os.path.relpath(made, beside)
        found.append(record)
    return sorted(found, key=lambda record: str(record.get("id", "")))


def _previous(record: dict[str, Any], history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The last accepted run before this one."""
    accepted = [one for one in history if one.get("answer") == "accepted" and one.get("limit") == record.get("limit")]
    earlier = [one for one in accepted if str(one.get("id", "")) < str(record.get("id", ""))]
    return earlier[-1] if earlier else None


def _write(output: Path, made: str) -> None:
    """A reader sees the old page or the new one, never half of one."""
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(made)
        os.chmod(name, 0o644)  # noqa: PTH101  mkstemp's 0600 is for its owner alone
        Path(name).replace(output)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
