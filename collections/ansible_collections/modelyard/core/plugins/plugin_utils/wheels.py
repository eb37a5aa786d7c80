"""Which wheels a lock wants on a machine: its Python, its glibc, its architecture. Pure functions."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

#: Names of platforms that say a glibc without its number: PEP 513, 571 and 599.
OLD_PLATFORMS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(.+)")
GLIBC = re.compile(r"2\.(\d+)")


class Target(NamedTuple):
    """A kind of machine: Python's minor version (`3.11`), glibc (`2.28`), architecture as `uname -m` says it."""

    python: str
    glibc: str
    machine: str

    @property
    def platforms(self) -> List[str]:
        """All platform tags that it takes, nearest first; pip derives only some of them by itself."""
        minor = int(self.glibc.split(".")[1])
        names = [f"manylinux_2_{n}_{self.machine}" for n in range(minor, 4, -1)]
        old = [name for name, (_, n) in OLD_PLATFORMS.items() if n <= minor]
        return [*names, *(f"{name}_{self.machine}" for name in reversed(old)), f"linux_{self.machine}"]

    @property
    def markers(self) -> Dict[str, str]:
        """The environment in which requirements are read: CPython on Linux."""
        return {
            "python_version": self.python,
            "python_full_version": f"{self.python}.99",
            "platform_machine": self.machine,
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "extra": "",
        }


class Pin(NamedTuple):
    """One package at its exact version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def pins(lock: str, target: Target) -> List[Pin]:
    """What the lock wants there, by name. ValueError where a line is no exact version."""
    found = []
    for line in (text.strip() for text in lock.splitlines()):
        if not line or line.startswith("#"):
            continue
        wanted = Requirement(line)
        exact = [s.version for s in wanted.specifier if s.operator == "=="]
        if len(exact) != 1 or len(wanted.specifier) != 1:
            raise ValueError(f"{line} is no exact version")
        if wanted.marker is None or wanted.marker.evaluate(target.markers):
            found.append(Pin(canonicalize_name(wanted.name), exact[0]))
    return sorted(found)


def glibc_of(tag: Tag, machine: str) -> Optional[Tuple[int, int]]:
    """The glibc that a platform asks for; (0, 0) where it asks for none, None where it is of another machine."""
    if tag.platform in ("any", f"linux_{machine}"):
        return (0, 0)
    match = MANYLINUX.fullmatch(tag.platform)
    if match and match.group(3) == machine:
        return (int(match.group(1)), int(match.group(2)))
    name, _, rest = tag.platform.partition("_")
    return OLD_PLATFORMS.get(name) if rest == machine else None


def fits(filename: str, target: Target) -> bool:
    """Does this wheel run there?"""
    return need(filename, target) is not None


def need(filename: str, target: Target) -> Optional[str]:
    """The least glibc that a wheel asks for on this kind of machine (`2.28`, `0.0` for none); None where it does not run."""
    _, _, _, tags = parse_wheel_filename(filename)
    limit = (2, int(target.glibc.split(".")[1]))
    asked = [glibc_of(tag, target.machine) for tag in tags if _interpreter_fits(tag, target.python)]
    good = [one for one in asked if one is not None and one <= limit]
    return ".".join(map(str, min(good))) if good else None


def _interpreter_fits(tag: Tag, python: str) -> bool:
    minor = int(python.split(".")[1])
    if tag.interpreter in ("py3", "py2.py3"):
        return tag.abi == "none"
    match = re.fullmatch(r"(cp|py)3(\d+)", tag.interpreter)
    if not match:
        return False
    kind, own = match.group(1), int(match.group(2))
    if kind == "py":
        return tag.abi == "none" and own <= minor
    if tag.abi == "abi3":
        return own <= minor
    return own == minor and tag.abi in (tag.interpreter, "none")


def missing(wanted: Iterable[Pin], filenames: Iterable[str], target: Target) -> List[Pin]:
    """Pins for which none of the files is a wheel that runs there."""
    there = set()
    for filename in filenames:
        if filename.endswith(".whl") and fits(filename, target):
            name, version, _, _ = parse_wheel_filename(filename)
            there.add((str(name), version))
    return [pin for pin in wanted if (pin.name, Version(pin.version)) not in there]


def least_glibc(filenames: Iterable[str], target: Target) -> str:
    """What all of them together ask for, `2.31` for example; `0.0` where they are pure Python."""
    asked = [need(name, target) or "0.0" for name in filenames]
    return max(asked, key=lambda text: tuple(map(int, text.split("."))), default="0.0")


def problems(target: Target, runtime_pythons: Iterable[str], machines: Iterable[str]) -> List[str]:
    """What is wrong with a target that a person has written, all at once."""
    found = []
    if target.python not in tuple(runtime_pythons):
        found.append(f"Python {target.python}: this runtime exists for {', '.join(runtime_pythons)}")
    if not GLIBC.fullmatch(target.glibc):
        found.append(f"glibc {target.glibc!r}: write it as `ldd --version` of the host says it, 2.28 for example")
    if target.machine not in machines:
        found.append(f"machine {target.machine}: this runtime exists for {', '.join(machines)}")
    return found
