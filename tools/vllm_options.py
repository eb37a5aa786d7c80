"""The options of `vllm serve` by release, for module_utils/plan/data/vllm/options.yml.

    tools/vllm_options.py ARCHIVE...    the table with these releases added, on standard output; --write puts it into its file
    tools/vllm_options.py --defaults ARCHIVE ARCHIVE
                                        options whose default differs between two releases
    RUNTIME/bin/python tools/vllm_options.py --live [--check]
                                        what the parser of an installed release says; --check compares it with the table

ARCHIVE is a source archive (vllm-X.tar.gz) or, where a release has none, a wheel; its syntax trees are read and nothing of it is
run. What is known beyond names and kinds (facts.yml) is written by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import re
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml
from vllm_parser import Option
from vllm_parser import options as read_options

TABLE = (
    Path(__file__).parents[1] / "collections/ansible_collections/modelyard/core/plugins/module_utils/plan/data/vllm/options.yml"
)
HEAD = """---
# Options of `vllm serve` by release, made by tools/vllm_options.py from vLLM's own archives. Do not edit by hand.
#   releases   the releases that are known, with the SHA-256 of the archive that was read: the source archive, or, where there is
#              none (0.15), the wheel for x86_64
#   options    for each option the release in which it came or changed, and its kind from there on: switch (--x / --no-x),
#              flag (--x alone), value (--x A), list (--x A B), repeat (--x A --x B), or `gone`
"""
GONE = "gone"
LOCATIONS = ("vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")


def order(release: str) -> tuple[int, ...]:
    """For sorting: 0.8.5 < 0.8.5.post1 < 0.9.0 < 0.9.0.1."""
    return tuple(int(number) for number in re.findall(r"\d+", release))


def at(history: dict[str, str], release: str) -> str:
    """The kind of an option in a release; `gone` where the release has no such option."""
    kinds = [kind for since, kind in history.items() if order(since) <= order(release)]
    return kinds[-1] if kinds else GONE


def added(table: dict[str, Any], release: str, digest: str, options: dict[str, str]) -> dict[str, Any]:
    """The table with one release put in, or read anew. A release between two known ones does not disturb them."""
    known = {**table["releases"], release: digest}
    releases = sorted(known, key=order)
    by_release = {
        r: options if r == release else {name: at(history, r) for name, history in table["options"].items()} for r in releases
    }
    histories: dict[str, dict[str, str]] = {}
    for name in sorted({*table["options"], *options}):
        last = GONE
        histories[name] = {}
        for r in releases:
            kind = by_release[r].get(name, GONE)
            if kind != last:
                histories[name][r] = last = kind
    return {"releases": {r: known[r] for r in releases}, "options": {n: h for n, h in histories.items() if h}}


def written(table: dict[str, Any]) -> str:
    """The table as it stands in its file: a line for each release and each option."""
    lines = ["releases:"]
    lines += [f'  "{release}": {digest}' for release, digest in table["releases"].items()]
    lines += ["options:"]
    for name, history in table["options"].items():
        kinds = ", ".join(f'"{release}": {kind}' for release, kind in history.items())
        lines.append(f"  {name}: {{{kinds}}}")
    return HEAD + "\n".join(lines) + "\n"


def unpacked(archive: Path, folder: Path) -> str:
    """Put the Python files of an archive into a folder; the release that it holds."""
    named = re.fullmatch(r"vllm-([0-9][0-9a-z.]*?)(?:\.tar\.gz|-[^-]+-[^-]+-[^-]+\.whl)", archive.name)
    if not named:
        raise SystemExit(f"{archive}: expected vllm-RELEASE.tar.gz or a wheel, under the name it was published with")
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder, [n for n in wheel.namelist() if n.startswith("vllm/") and n.endswith(".py")])
    else:
        with tarfile.open(archive) as source:
            for member in source.getmembers():
                member.name = member.name.partition("/")[2]
                if member.isfile() and member.name.startswith("vllm/") and member.name.endswith(".py"):
                    source.extract(member, folder, filter="data")
    return named.group(1)


def read(archive: Path) -> tuple[str, list[Option]]:
    """The release that an archive holds, and its options."""
    with tempfile.TemporaryDirectory() as folder:
        return unpacked(archive, Path(folder)), read_options(Path(folder))


def with_archive(table: dict[str, Any], archive: Path) -> dict[str, Any]:
    """The table with the release of an archive added."""
    release, options = read(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return added(table, release, digest, {option.name: option.kind for option in options})


def changed_defaults(before: list[Option], after: list[Option]) -> list[str]:
    """Options of two releases whose defaults are written differently: candidates for `defaults` in facts.yml."""
    earlier = {option.name: option.default for option in before}
    return [
        f"{option.name}: {earlier[option.name] or '(none)'} -> {option.default or '(none)'}"
        for option in sorted(after)
        if option.name in earlier and earlier[option.name] != option.default
    ]


def live_parser() -> argparse.ArgumentParser:
    """The argument parser of `vllm serve`, from wherever this release keeps it."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for name in LOCATIONS:
        try:
            return importlib.import_module(name).make_arg_parser(FlexibleArgumentParser())
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"no make_arg_parser in any of {LOCATIONS}: add where this release keeps it")


def live_kind(action: argparse.Action) -> str:
    """The kind of an option, from what argparse holds of it."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    if isinstance(action, argparse._AppendAction):
        return "repeat"
    if action.nargs == 0:
        return "flag"
    return "list" if action.nargs in ("+", "*") or isinstance(action.nargs, int) else "value"


def live() -> dict[str, str]:
    """Options and kinds of the installed release."""
    found = {}
    for action in live_parser()._actions:
        names = [s[2:].replace("-", "_") for s in action.option_strings if s.startswith("--")]
        positive = [n for n in names if not n.startswith("no_")] or names
        if positive and not isinstance(action, argparse._HelpAction):
            found[positive[0]] = live_kind(action)
    return found


def compared(table: dict[str, Any], release: str, options: dict[str, str]) -> list[str]:
    """Where the table says something else of a release than its own parser."""
    if release not in table["releases"]:
        return [f"the table does not know {release}"]
    read = {name: at(history, release) for name, history in table["options"].items()}
    return [
        f"{name}: {read.get(name, GONE)} in the table, {options.get(name, GONE)} in the parser"
        for name in sorted({*read, *options})
        if read.get(name, GONE) != options.get(name, GONE)
    ]


def main() -> None:
    """See the top of the file."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("archives", nargs="*", type=Path)
    asked.add_argument("--write", action="store_true", help="write the table instead of printing it")
    asked.add_argument("--defaults", action="store_true", help="compare the defaults of two releases")
    asked.add_argument("--live", action="store_true", help="ask the parser of the vLLM that is installed beside this Python")
    asked.add_argument("--check", action="store_true", help="with --live: compare with the table")
    given = asked.parse_args()
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {"releases": {}, "options": {}}
    if given.live:
        options = live()
        if not given.check:
            print(yaml.safe_dump(options, sort_keys=True), end="")
            return
        release = next(iter(importlib.metadata.packages_distributions()["vllm"]))
        lines = compared(table, importlib.metadata.version(release).partition("+")[0], options)
        raise SystemExit("\n".join(lines) if lines else 0)
    if given.defaults:
        before, after = given.archives
        print("\n".join(changed_defaults(read(before)[1], read(after)[1])))
        return
    for archive in given.archives:
        table = with_archive(table, archive)
    if given.write:
        TABLE.write_text(written(table), encoding="utf-8")
    else:
        print(written(table), end="")


if __name__ == "__main__":
    main()
