"""The command `modelyard` with its subcommands. Each is a module with `HELP`, `add_arguments(parser)` and `run(args) -> int`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from modelyard import checkout, say

#: Wrong arguments or a wrong configuration; nothing was asked.
USAGE = 2
COMMANDS = ("accept", "report", "tell", "triage")


def parser() -> argparse.ArgumentParser:
    """All subcommands with their arguments."""
    whole = argparse.ArgumentParser(prog="modelyard", description="Prove on a schedule that what is deployed serves")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        # Only now: they read the collection of the checkout, and there may be none.
        module = importlib.import_module(f"modelyard.{name}.command")
        own = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            epilog=getattr(module, "EPILOG", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(own)
        own.set_defaults(run=module.run)
    return whole


def main(words: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    say.prepare()
    try:
        checkout.root()
    except checkout.Missing as exc:
        say.err(f"modelyard: {exc}")
        return USAGE
    args = parser().parse_args(words)
    return int(args.run(args))
