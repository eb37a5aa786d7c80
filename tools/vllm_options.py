"""Print the option table of an installed vLLM: what stands below `options:` in module_utils/plan/data/vllm/<release>.yml.

Run it with the Python of a runtime: RUNTIME/bin/python tools/vllm_options.py
The parser of the release itself is asked, so nothing is copied by hand; what stands above (`release`, `removed`, `owned`)
is knowledge and is kept by hand.
"""

import argparse
import importlib
import importlib.metadata
import json

LOCATIONS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")


def parser() -> argparse.ArgumentParser:
    """The argument parser of `vllm serve`, from wherever this release keeps it."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for name in LOCATIONS:
        try:
            return importlib.import_module(name).make_arg_parser(FlexibleArgumentParser())
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"no make_arg_parser in any of {LOCATIONS}: add where this release keeps it")


def kind(action: argparse.Action) -> str:
    """`switch` (--x / --no-x), `flag` (--x only), `list` (--x A B) or `value` (--x A)."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    if action.nargs == 0:
        return "flag"
    return "list" if action.nargs == "+" else "value"


def main() -> None:
    """Write the table as YAML (JSON values are YAML values)."""
    table: dict[str, list[str]] = {"switch": [], "flag": [], "value": [], "list": []}
    for action in parser()._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        names = [s[2:].replace("-", "_") for s in action.option_strings if s.startswith("--")]
        positive = [n for n in names if not n.startswith("no_")] or names
        if positive:
            table[kind(action)].append(positive[0])
    for name, options in table.items():
        print(f"  {name}:")
        for option in sorted(options):
            print(f"    - {json.dumps(option)[1:-1]}")


if __name__ == "__main__":
    main()
