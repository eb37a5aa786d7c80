"""The command `modelyard` with its subcommands. Each is a module with `HELP`, `add_arguments(parser)` and `run(args) -> int`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from modelyard import checkout
from modelyard.accept import command as accept
from modelyard.report import command as report
from modelyard.tell import command as tell

#: Wrong arguments or a wrong configuration; nothing was asked.
USAGE = 2
COMMANDS = {"accept": accept, "report": report, "tell": tell}


def parser() -> argparse.ArgumentParser:
    """All subcommands with their arguments."""
    whole = argparse.ArgumentParser(prog="modelyard", description="Prove on a schedule that what is deployed serves")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
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
    args = parser().parse_args(words)
    try:
        checkout.root()
    except checkout.Missing as exc:
        print(f"modelyard: {exc}", file=sys.stderr)
        return USAGE
    return int(args.run(args))
