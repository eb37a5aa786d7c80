"""Files from a folder of the host or from a mirror: fetched beside their place, gone on with where it was broken off."""

from __future__ import annotations

import hashlib
import shutil
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Dict

CHUNK = 1 << 20
LIMIT_S = 60.0
MIRROR = ("http://", "https://")


class Failed(Exception):
    """It could not be fetched; the text says why."""


def is_remote(path: str) -> bool:
    """Does it lie on a mirror?"""
    return path.startswith(MIRROR)


def name(path: str) -> str:
    """The file's name, without what an address has behind it."""
    return Path(urllib.parse.urlsplit(path).path if is_remote(path) else path).name


def sha256(path: Path) -> Dict[str, str]:
    """{sha256, problem} of a file on the host."""
    sums = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for chunk in iter(lambda: file.read(CHUNK), b""):
                sums.update(chunk)
    except OSError as exc:
        return {"sha256": "", "problem": f"it cannot be read: {exc.strerror or exc}"}
    return {"sha256": sums.hexdigest(), "problem": ""}


def fetch(address: str, folder: Path) -> Path:
    """The file in the folder; what lies there already, half or whole, is gone on with."""
    place = folder / name(address)
    half = place.with_name(f"{place.name}.part")
    if place.exists():
        return place
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    have = half.stat().st_size if half.exists() else 0
    shown = address.partition("?")[0]
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            rest = answer.status == 206
            with half.open("ab" if rest else "wb") as file:
                shutil.copyfileobj(answer, file, CHUNK)
            said = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as exc:
        if exc.code != 416:  # all of it is there
            raise Failed(f"{shown}: HTTP {exc.code}") from exc
    except (OSError, ValueError) as exc:
        raise Failed(f"{shown}: {exc}") from exc
    else:
        got = half.stat().st_size - (have if rest else 0)
        if said and int(said) != got:
            raise Failed(f"{shown}: the connection ended after {got} of {said} bytes; the next run goes on from there")
    half.replace(place)
    return place
