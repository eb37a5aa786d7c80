"""Comparing versions of drivers, toolkits and packages. Strings compare wrongly: 580.142 is newer than 580.65.06.

Read on the control node only, like tables.py: `packaging` comes with Ansible.
"""

from __future__ import annotations

import functools
import re
from typing import Optional, Tuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_HEAD = re.compile(r"\s*v?([0-9]{1,9}(?:\.[0-9]{1,9})*)")


@functools.lru_cache(maxsize=4096)
def numbers(text: str) -> Tuple[int, ...]:
    """The numbers that a version begins with, `6.2.26-V1.5` -> (6, 2, 26); empty for a text that begins with none."""
    head = _HEAD.match(str(text))
    return tuple(int(part) for part in head.group(1).split(".")) if head else ()


def at_least(found: str, least: str) -> Optional[bool]:
    """Is `found` as new as `least`? None when one of them is not known."""
    one, other = numbers(found), numbers(least)
    if not one or not other:
        return None
    longest = max(len(one), len(other))
    return _padded(one, longest) >= _padded(other, longest)


def older(found: str, least: str) -> bool:
    """Is `found` known to be older than `least`?"""
    return at_least(found, least) is False


def branch(version: str) -> str:
    """`580` of 580.95.05; empty for none."""
    head = numbers(version)
    return str(head[0]) if head else ""


def minor(version: str) -> str:
    """The first two numbers, `2.10` of 2.10.0+cu128; empty when there are not two."""
    head = numbers(version)
    return f"{head[0]}.{head[1]}" if len(head) > 1 else ""


def same(one: str, other: str) -> bool:
    """Equal as far as both are printed: tools cut the third part (580.178 of 580.178.04). Unknown is no difference."""
    if not one or not other or one == other:
        return True
    parts = list(zip(one.split("."), other.split(".")))
    return all(a == b for a, b in parts) and len(parts) >= 2


@functools.lru_cache(maxsize=4096)
def fits(version: str, wanted: str) -> Optional[bool]:
    """Is `version` within a specifier such as `>=3.11,<3.15`? None when one of them cannot be read, or nothing is wanted."""
    if not wanted:
        return None
    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return None


def _padded(parts: Tuple[int, ...], length: int) -> Tuple[int, ...]:
    return (*parts, *([0] * (length - len(parts))))
