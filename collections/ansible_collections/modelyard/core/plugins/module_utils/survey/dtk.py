"""Hygon's toolkit on a host: which ones are there, and what sourcing its env.sh sets. Standard library only.

env.sh is a program of the vendor's. It is run by a bash without variables and without input, under a limit, and only where nobody
but root and this user can have written it; what it sets is compared and taken as data.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import tool
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

FOLDER = "/opt"
POINTER = "dtk"
LIMIT_S = 10.0
#: What env.sh finds set, and where its additions to PATH are told from.
BASE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C"}
#: It uses variables that are not set. What it prints is of no use; a zero byte cannot be in a variable.
SCRIPT = 'bash -n "$1" || exit; set +u; . "$1" >/dev/null 2>&1 </dev/null; printf "\\0done\\0"; exec /usr/bin/env -0'
#: Variables of the shell itself, and those with which others choose cards.
NOT_ITS_OWN = re.compile(r"PWD|OLDPWD|SHLVL|_|HOME|LANG|\w+_VISIBLE_DEVICES")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NONE: Dict[str, Any] = {"path": "", "version": "", "beside": {}, "environment": {}, "problem": ""}
#: Stands in the path of an environment for the release of the host's DTK.
RELEASE = "{dtk}"
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")


class Sourced(NamedTuple):
    """What env.sh sets; of PATH only what it puts before ours. `problem`: why it was not read."""

    environment: Dict[str, str]
    problem: str


def look(sysroot: str = "/") -> Dict[str, Any]:
    """{path, version, beside: {folder: version}, environment, problem}; empty where there is none.

    `path` and `version`: of /opt/dtk, which is what programs use; `beside`: of the folders /opt/dtk-*.
    """
    place = f"{FOLDER}/{POINTER}"
    found: Dict[str, Any] = {**NONE, "beside": _beside(sysroot)}
    if not os.path.isdir(below(sysroot, place)):
        return found
    environment, problem = source(below(sysroot, f"{place}/env.sh"))
    return {**found, "path": place, "version": version(below(sysroot, place)), "environment": environment, "problem": problem}


def version(folder: str) -> str:
    """What its version file says, `26.04` of DTK-26.04-rc4; else what its real name says; empty for neither."""
    said = VERSION.search(_text(f"{folder}/.dtk_version"))
    named = re.search(r"dtk-([0-9]+(?:\.[0-9]+)+)", os.path.realpath(folder))
    return said.group(0) if said else named.group(1) if named else ""


def filled(path: str, release: str) -> str:
    """The path of an environment on a host with this DTK; as it is where there is none."""
    return path.replace(RELEASE, release) if release else path


def _beside(sysroot: str) -> Dict[str, str]:
    names: List[str] = []
    with contextlib.suppress(OSError):
        names = sorted(entry.name for entry in os.scandir(below(sysroot, FOLDER)) if entry.is_dir(follow_symlinks=False))
    return {f"{FOLDER}/{name}": version(below(sysroot, f"{FOLDER}/{name}")) for name in names if name.startswith("dtk-")}


def source(path: str) -> Sourced:
    """Source one env.sh and say what it has set."""
    if not os.path.exists(path):
        return Sourced({}, f"there is no {path}")
    wrong = writable_by_others(path)
    if wrong:
        return Sourced({}, f"{path} is not run: {wrong}")
    words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in BASE.items())]
    done = tool.run([*words, "bash", "--noprofile", "--norc", "-c", SCRIPT, "bash", os.path.realpath(path)], LIMIT_S)
    _, mark, said = done["stdout"].rpartition("\0done\0")
    if done["rc"] != 0 or not mark:
        why = done["note"] or f"the shell ended with {done['rc']} before it was through"
        return Sourced({}, f"{path} could not be read: {why}")
    found: Dict[str, str] = {}
    for pair in filter(None, said.split("\0")):
        name, _, value = pair.partition("=")
        if NAME.fullmatch(name) and not NOT_ITS_OWN.fullmatch(name) and value != BASE.get(name):
            if not value.isprintable():
                return Sourced({}, f"{path} sets {name} to something with line breaks or other signs that are no text")
            found[name] = value
    if "PATH" in found:
        found["PATH"] = ":".join(folder for folder in found["PATH"].split(":") if folder not in BASE["PATH"].split(":"))
    return Sourced(found, "")


def writable_by_others(path: str) -> str:
    """Could somebody else than root and this user have put something there? Says where, else empty.

    Both the way that was named and the one that its links lead. In a folder with the sticky bit (/tmp) only the owner renames.
    """
    ways = (Path(os.path.realpath(path)), Path(path).absolute())
    for place in dict.fromkeys(place for way in ways for place in (way, *way.parents)):
        try:
            found = place.stat()
        except OSError as exc:
            return f"{place}: {exc.strerror or exc}"
        if found.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to {proc.user_name(found.st_uid)}"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (place.is_dir() and found.st_mode & stat.S_ISVTX):
            return f"{place} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""
