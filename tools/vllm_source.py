"""Types and classes of a vLLM release as its source says them, read from syntax trees: nothing of it is imported or run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Iterator, NamedTuple

ENGINE = "vllm/engine/arg_utils.py"
BUILTIN = {"bool", "int", "float", "str", "list", "tuple", "set", "dict", "Literal"}
ALSO = {"List": "list", "Tuple": "tuple", "Set": "set", "Dict": "dict"}
#: What only wraps another type.
WRAPPERS = {"Optional", "Union", "Annotated", "SkipValidation"}


class Module(NamedTuple):
    """One parsed file: what its names are (a class, or the expression they are bound to), and where others come from."""

    names: dict[str, ast.AST]
    imports: dict[str, str]
    tree: ast.Module


class Field(NamedTuple):
    """A field of a config class: the types that it may have, and its default."""

    types: frozenset[str]
    default: ast.AST | None


def text(node: ast.AST | None) -> str:
    """A node as it stands in the source."""
    return "" if node is None else ast.unparse(node)


def string(node: ast.AST | None) -> str:
    """The value of a text constant; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


class Source:
    """An unpacked source archive."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module] = {}
        #: Since this rule, an option of type `bool | str | None` takes an optional value.
        self.bool_or_text = "bool, str, type(None)" in (root / ENGINE).read_text(encoding="utf-8")

    def module(self, path: str) -> Module:
        """A file of the archive by its path; an empty one where it is not there."""
        if path not in self._modules:
            file = self.root / path
            tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
            names: dict[str, ast.AST] = {}
            imports: dict[str, str] = {}
            for node in _top(tree.body):
                if isinstance(node, ast.ClassDef):
                    names[node.name] = node
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names.setdefault(node.targets[0].id, node.value)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                    names.setdefault(node.target.id, node.value)
                elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm"):
                    imports.update({alias.asname or alias.name: str(node.module) for alias in node.names})
            self._modules[path] = Module(names, imports, tree)
        return self._modules[path]

    def find(self, name: str, path: str, seen: frozenset[str] = frozenset()) -> tuple[ast.AST | None, str]:
        """What a name means in a file, and the file that says it."""
        module = self.module(path)
        if name in module.names:
            return module.names[name], path
        origin = module.imports.get(name, "").replace(".", "/")
        for place in (f"{origin}.py", f"{origin}/__init__.py"):
            if origin and place not in seen and (self.root / place).is_file():
                return self.find(name, place, seen | {path})
        return None, path

    def types(self, hint: ast.AST, path: str) -> frozenset[str]:
        """The top-level types of a hint: names of BUILTIN, `None`, `dataclass` and `other`."""
        if isinstance(hint, ast.Constant):
            if isinstance(hint.value, str):
                return self.types(ast.parse(hint.value, mode="eval").body, path)
            return frozenset({"None"})
        if isinstance(hint, ast.BinOp):
            return self.types(hint.left, path) | self.types(hint.right, path)
        if isinstance(hint, ast.Subscript):
            name = text(hint.value).rpartition(".")[2]
            if name in WRAPPERS:
                parts = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
                inner = parts[:1] if name == "Annotated" else parts
                found = frozenset().union(*(self.types(part, path) for part in inner))
                return found | {"None"} if name == "Optional" else found
            return frozenset({ALSO.get(name, name) if ALSO.get(name, name) in BUILTIN else "other"})
        name = text(hint).rpartition(".")[2]
        if ALSO.get(name, name) in BUILTIN:
            return frozenset({ALSO.get(name, name)})
        meaning, place = self.find(name, path)
        if isinstance(meaning, ast.ClassDef):
            return frozenset({self._kind_of_class(meaning)})
        if isinstance(meaning, (ast.Subscript, ast.BinOp, ast.Name, ast.Constant)):
            return self.types(meaning, place)
        return frozenset({"other"})

    @staticmethod
    def _kind_of_class(node: ast.ClassDef) -> str:
        marks = {text(d.func if isinstance(d, ast.Call) else d).rpartition(".")[2] for d in node.decorator_list}
        if marks & {"dataclass", "config"}:
            return "dataclass"
        return "dict" if any(text(base).startswith("dict") for base in node.bases) else "other"

    def fields(self, name: str, path: str) -> dict[str, Field]:
        """Fields of a config class with those of its bases."""
        node, place = self.find(name, path)
        if not isinstance(node, ast.ClassDef):
            raise SystemExit(f"{path}: there is no class {name} to be found")
        found: dict[str, Field] = {}
        for base in node.bases:
            if isinstance(self.find(text(base), place)[0], ast.ClassDef):
                found.update(self.fields(text(base), place))
        for item in node.body:
            if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
                continue
            if not text(item.annotation).startswith(("ClassVar", "InitVar")):
                found[item.target.id] = Field(self.types(item.annotation, place), item.value)
        return found

    def spec(self, field: Field) -> dict[str, Any]:
        """What get_kwargs of the release would hand to argparse for a field: `action`, `nargs`, `default`."""
        types = field.types
        made: dict[str, Any] = {"default": _default(field.default)}
        if "dataclass" in types:
            return made
        if types == {"bool", "str", "None"} and self.bool_or_text:
            made["nargs"] = "?"
        elif "bool" in types:
            made["action"] = "BooleanOptionalAction"
        elif "Literal" not in types and types & {"list", "tuple", "set"}:
            made["nargs"] = "+"
        return made


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a file, also those below `if TYPE_CHECKING`; the run-time ones first."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _top(node.orelse)
            yield from _top(node.body)
        elif isinstance(node, ast.Try):
            yield from _top(node.body)
        else:
            yield node


def _default(node: ast.AST | None) -> str:
    """The text of a default; what a field() or Field() makes, where it says so."""
    if isinstance(node, ast.Call) and text(node.func).rpartition(".")[2] in ("field", "Field"):
        known = {k.arg: k.value for k in node.keywords}
        made = known.get("default") or known.get("default_factory") or (node.args[0] if node.args else None)
        return text(made.body if isinstance(made, ast.Lambda) else made)
    return text(node)
