"""The options of `vllm serve` as a release's source adds them to its parser, read from syntax trees: nothing of it is run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NamedTuple

from vllm_source import ENGINE, Source, string, text

#: Where releases keep the server's own options; the first that is there.
SERVER = (
    "vllm/entrypoints/common/cli_args.py",
    "vllm/entrypoints/launchers/cli_args.py",
    "vllm/entrypoints/openai/cli_args.py",
)
COMMAND = "vllm/entrypoints/cli/serve.py"
#: argparse's actions by the kind of option they make.
ACTIONS = {"store_true": "flag", "store_false": "flag", "store_const": "flag", "count": "flag", "append": "repeat"}
#: Methods in which classes of the server's options change what argparse gets; those of the bases come first in the file.
CUSTOMISE = "_customize_cli_kwargs"


class Option(NamedTuple):
    """One option: how it is written, and its default where that is a literal (the source's text otherwise)."""

    name: str
    kind: str
    default: str


def field_name(node: ast.AST) -> str:
    """`f` of `x["f"]`."""
    return string(node.slice) if isinstance(node, ast.Subscript) else ""


def options(root: Path) -> list[Option]:
    """All options of `vllm serve` in an unpacked archive, in the order of the source."""
    source = Source(root)
    server = next((path for path in SERVER if (root / path).is_file()), "")
    if not server:
        raise SystemExit(f"{root}: none of {', '.join(SERVER)}: add where this release keeps it")
    reader = Reader(source)
    for path, wanted in (
        (COMMAND, {"subparser_init"}),
        (server, {"make_arg_parser", "add_cli_args"}),
        (ENGINE, {"add_cli_args"}),
    ):
        for function in functions(source.module(path).tree, wanted):
            reader.run(function.body, path)
    return list(reader.found.values())


def functions(tree: ast.Module, names: set[str]) -> list[ast.FunctionDef]:
    """Functions and methods with these names, in the order of the file."""
    inside = [item for node in tree.body for item in (node.body if isinstance(node, ast.ClassDef) else [node])]
    return [item for item in inside if isinstance(item, ast.FunctionDef) and item.name in names]


class Reader:
    """Follows the statements that fill the parser, as far as they decide about kinds of options."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: dict[str, Option] = {}
        self.sets: dict[str, dict[str, dict[str, Any]]] = {}  # variable -> field -> what argparse gets
        self.single: dict[str, dict[str, Any]] = {}  # variable -> what argparse gets
        self.words: dict[str, str] = {}  # what a loop's variables hold

    def run(self, body: list[ast.stmt], path: str) -> None:
        """Go through statements in order; both ways of an `if`."""
        for node in body:
            if isinstance(node, ast.For):
                self._loop(node, path)
            elif isinstance(node, (ast.If, ast.With)):
                self.run(node.body + getattr(node, "orelse", []), path)
            elif isinstance(node, ast.Assign):
                self._assign(node.targets[0], node.value, path)
                if text(node.value).startswith(f"cls.{CUSTOMISE}("):
                    for function in functions(self.source.module(path).tree, {CUSTOMISE}):
                        self.run(function.body, path)
            elif isinstance(node, ast.Delete):
                for target in node.targets:
                    self._known(getattr(target, "value", target)).pop(field_name(target), None)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._call(node.value)

    def _loop(self, node: ast.For, path: str) -> None:
        """All fields of a class become options, or they are listed: `for arg, type in [("--a", str), ...]`."""
        if isinstance(node.iter, ast.Call):
            self._all_of(text(node.iter.func).removesuffix(".items"))
        elif isinstance(node.iter, (ast.List, ast.Tuple)):
            for item in node.iter.elts:
                parts = item.elts if isinstance(item, ast.Tuple) else [item]
                targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
                self.words = {text(target): string(part) for target, part in zip(targets, parts)}
                self.run(node.body, path)
            self.words = {}

    def _assign(self, target: ast.AST, value: ast.AST, path: str) -> None:
        made = self._set(value, path)
        if isinstance(target, ast.Name):
            if made is not None:
                self.sets.setdefault(target.id, {}).update(made)
            elif isinstance(value, ast.Subscript):
                self.single[target.id] = self._known(value, path)
        elif isinstance(target, ast.Subscript):
            known, key = self._known(target.value), field_name(target)
            known[key] = string(value) or text(value) if key != "default" else text(value)

    def _set(self, value: ast.AST, path: str) -> dict[str, dict[str, Any]] | None:
        if isinstance(value, ast.Call) and text(value.func) == "get_kwargs":
            name = text(value.args[0])
            # A base class adds the options of whichever class is asked; the server's is FrontendArgs.
            fields = self.source.fields("FrontendArgs" if name == "cls" else name, path)
            return {key: self.source.spec(field) for key, field in fields.items()}
        return None

    def _known(self, node: ast.AST, path: str = "") -> dict[str, Any]:
        """What argparse gets for `x["field"]`, `get_kwargs(C)["field"]` or a variable that holds one of them."""
        if isinstance(node, ast.Subscript):
            whole = self._set(node.value, path) if path else None
            whole = whole if whole is not None else self.sets.setdefault(text(node.value), {})
            return whole.setdefault(field_name(node), {})
        return self.single.get(text(node), {})

    def _call(self, call: ast.Call) -> None:
        if not text(call.func).endswith(".add_argument"):
            return
        names = [string(arg) or self.words.get(text(arg), "") for arg in call.args]
        given: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                given.update(self._unpacked(keyword.value))
            elif keyword.arg in ("action", "nargs"):
                given[keyword.arg] = string(keyword.value) or text(keyword.value)
            elif keyword.arg == "default":
                given["default"] = text(keyword.value)
        long = [name[2:].replace("-", "_") for name in names if name.startswith("--")]
        if long:
            self._add(long[0], given)

    def _unpacked(self, node: ast.AST) -> dict[str, Any]:
        """`**x["field"]`, or `**{**x["field"], "default": None}`."""
        if not isinstance(node, ast.Dict):
            return dict(self._known(node))
        made: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values):
            made.update(self._known(value) if key is None else {string(key): string(value) or text(value)})
        return made

    def _all_of(self, variable: str) -> None:
        for name, given in self.sets.get(variable, {}).items():
            self._add(name, given)

    def _add(self, name: str, given: dict[str, Any]) -> None:
        action = str(given.get("action", "")).rpartition(".")[2]
        nargs = str(given.get("nargs", ""))
        if action == "BooleanOptionalAction":
            kind = "switch"
        elif action in ACTIONS:
            kind = ACTIONS[action]
        else:
            kind = "list" if nargs in ("+", "*") or nargs.isdigit() else "value"
        self.found.setdefault(name, Option(name, kind, str(given.get("default", ""))))
