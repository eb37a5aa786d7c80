"""Building modelyard.pyz: the by-hand program out of the same files that the modules are made of.

The same checkout gives the same bytes on every control node: names in order, no times, no compression (whose output depends on
the version of zlib). Only what is imported goes in.
"""

from __future__ import annotations

import ast
import hashlib
import io
import zipfile
from pathlib import Path

PACKAGE = "ansible_collections.modelyard.core.plugins.module_utils"
ENTRY = f"{PACKAGE}.process.by_hand.main"
ROOT = Path(__file__).resolve().parents[5]  # the folder that holds ansible_collections
GATEWAY = ROOT.parent / "roles" / "gateway" / "files" / "modelyard_gateway"
EPOCH = (1980, 1, 1, 0, 0, 0)
HEAD = b"#!/usr/bin/env python3\n"
OLDEST = (3, 8)
START = f'''"""Modelyard's by-hand program; made by a deploy."""

import sys

if sys.version_info < {OLDEST!r}:
    sys.exit("modelyard.pyz needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is %d.%d" % sys.version_info[:2])

try:
    from {ENTRY} import main

    code = main()
except KeyboardInterrupt:
    code = 130
sys.exit(code)
'''


def gateway() -> bytes:
    """The gateway's package as a zip archive that Python imports from: one file, which is replaced whole."""
    return _archive({str(path.relative_to(GATEWAY.parent)): path.read_bytes() for path in _gateway_files()})


def gateway_digest() -> str:
    """Tells one version of the gateway from another."""
    return hashlib.sha256(gateway()).hexdigest()


def _gateway_files() -> list[Path]:
    return [path for path in sorted(GATEWAY.rglob("*")) if path.is_file() and path.suffix in (".py", ".html")]


def _archive(files: dict[str, bytes], head: bytes = b"") -> bytes:
    raw = io.BytesIO()
    raw.write(head)
    with zipfile.ZipFile(raw, "a", zipfile.ZIP_STORED) as archive:
        for place in sorted(files):
            entry = zipfile.ZipInfo(place, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, wherever the control node runs
            archive.writestr(entry, files[place])
    return raw.getvalue()


def build() -> bytes:
    """The program. Python runs the file as it is: a line that names the interpreter, then a zip archive."""
    files = {"__main__.py": START.encode()}
    for name in _needed():
        path = _path(name)
        files[str(path.relative_to(ROOT))] = path.read_bytes()
    for folder in {folder for path in files for folder in Path(path).parents} - {Path()}:
        files.setdefault(str(folder / "__init__.py"), b"")
    return _archive(files, HEAD)


def _path(module: str) -> Path:
    """The file of a module or package of ours."""
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _needed() -> list[str]:
    """Every module of ours that the entry imports, directly or not, wherever the import stands."""
    found: set[str] = set()
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name in found or not _path(name).is_file():
            continue
        found.add(name)
        waiting += _imports(name)
        waiting += [name.rpartition(".")[0]] if name != PACKAGE else []
    return sorted(found)


def _imports(module: str) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(_path(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.startswith(PACKAGE)]


#: What a file of the action write_files can be made of, by its word for it.
PROGRAMS = {"by_hand": build, "gateway": gateway}
