"""The architectures that vLLM serves by release, for module_utils/plan/data/vllm/architectures.yml.

    tools/vllm_architectures.py ARCHIVE... [RELEASE=FOLDER...]
                                the table with these releases added, on standard output; --write puts it into its file

ARCHIVE is a source archive or a wheel (see vllm_options.py), FOLDER one that holds the folder `vllm` of a release. The syntax
tree of model_executor/models/registry.py is read, and nothing is run.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import yaml
from vllm_options import TABLE as OPTIONS
from vllm_options import added, unpacked

TABLE = OPTIONS.with_name("architectures.yml")
REGISTRY = "vllm/model_executor/models/registry.py"
THERE = "there"
#: Of all tables together; the second names what a release refuses by name because an earlier one had it.
ALL, BEFORE = "_VLLM_MODELS", "_PREVIOUSLY_SUPPORTED_MODELS"
HEAD = """---
# Architectures (`architectures` in config.json) that vLLM serves by release, made by tools/vllm_architectures.py from vLLM's own
# registry. Do not edit by hand.
#   releases       the releases that were read, with the SHA-256 of their vllm/model_executor/models/registry.py
#   architectures  for each the first of these releases that has it, and `gone` from the first that has it no more
"""


def architectures(registry: str) -> dict[str, str]:
    """The architectures that a registry.py serves. Of a table of other tables (`**_TEXT_GENERATION_MODELS`) those are read."""
    tables: dict[str, ast.Dict] = {}
    for node in ast.parse(registry).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if isinstance(getattr(node, "value", None), ast.Dict):
            tables.update({target.id: node.value for target in targets if isinstance(target, ast.Name)})
    if ALL not in tables:
        raise SystemExit(f"{REGISTRY} has no {ALL}: add where this release keeps its architectures")
    found = set(_names(tables[ALL], tables))
    gone = set(_names(tables[BEFORE], tables)) if BEFORE in tables else set()
    return dict.fromkeys(sorted(found - gone), THERE)


def _names(table: ast.Dict, tables: dict[str, ast.Dict]) -> list[str]:
    names = []
    for key, value in zip(table.keys, table.values):
        if key is None and isinstance(value, ast.Name):
            names += _names(tables[value.id], tables)
        elif isinstance(key, ast.Constant):
            names.append(str(key.value))
    return names


def with_source(table: dict[str, Any], source: str) -> dict[str, Any]:
    """The table with a release added, from an archive or from RELEASE=FOLDER."""
    release, named, folder = source.partition("=")
    if named:
        text = (Path(folder) / REGISTRY).read_text(encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory() as place:
            release = unpacked(Path(source), Path(place))
            text = (Path(place) / REGISTRY).read_text(encoding="utf-8")
    known = {"releases": table["releases"], "options": table["architectures"]}
    more = added(known, release, hashlib.sha256(text.encode()).hexdigest(), architectures(text))
    return {"releases": more["releases"], "architectures": more["options"]}


def written(table: dict[str, Any]) -> str:
    """The table as it stands in its file: a line for each release and each architecture."""
    lines = ["releases:", *(f'  "{release}": {digest}' for release, digest in table["releases"].items()), "architectures:"]
    for name, history in table["architectures"].items():
        kinds = ", ".join(f'"{release}": {kind}' for release, kind in history.items())
        lines.append(f"  {name}: {{{kinds}}}")
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """See the top of the file."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("sources", nargs="+")
    asked.add_argument("--write", action="store_true", help="write the table instead of printing it")
    given = asked.parse_args()
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {"releases": {}, "architectures": {}}
    for source in given.sources:
        table = with_source(table, source)
    if given.write:
        TABLE.write_text(written(table), encoding="utf-8")
    else:
        print(written(table), end="")


if __name__ == "__main__":
    main()
