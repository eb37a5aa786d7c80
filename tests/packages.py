"""Small packages that stand in for large ones: pip, venv and what is made of them are real."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

#: What the real one says of itself, in little.
TORCH = "__version__ = '2.13.0+cpu'\n_C = None\nclass version: cuda = None; hip = None\n"


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: str = "", tag: str = "py3-none-any") -> Path:
    """A small wheel, pure but for its tag; its path."""
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},,\n" for path in content) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as made:
        for place, text in {**content, f"{info}/RECORD": record}.items():
            member = zipfile.ZipInfo(place)
            member.external_attr = (0o100755 if ".data/scripts/" in place else 0o100644) << 16  # pip keeps what may be executed
            made.writestr(member, text)
    return path


def pip_takes_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip is pointed at a folder of packages, and asks nobody else, whatever it is configured with here."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
