"""What a package manager would do, out of what its dry run prints; and what its database says is only half there."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple

INSTALL, UPGRADE, DOWNGRADE, AGAIN, REMOVE = "install", "upgrade", "downgrade", "reinstall", "remove"


class Change(NamedTuple):
    """One package of a transaction. `old` is empty for a new one, `new` for one that goes."""

    action: str
    name: str
    old: str
    new: str


_APT = re.compile(r"^(Inst|Remv|Purg) (\S+?)(?::[a-z0-9]+)?(?= |$)(?: \[([^\]]*)\])?(?: \((\S+) )?", re.MULTILINE)
_DOWNGRADED = re.compile(r"^The following packages will be DOWNGRADED:\n((?:  .*\n)+)", re.MULTILINE)
#: Headings of dnf 4 and 5. What stands below another one (skipped packages, module streams) is no change.
_DNF = (
    (re.compile(r"^Installing\b.*:$"), INSTALL),
    (re.compile(r"^Upgrading\b.*:$"), UPGRADE),
    (re.compile(r"^Downgrading\b.*:$"), DOWNGRADE),
    (re.compile(r"^Reinstalling\b.*:$"), AGAIN),
    (re.compile(r"^Removing\b.*:$"), REMOVE),
)
_REPLACING = re.compile(r"^\s+replacing\s+(\S+?)(?:\.[a-z0-9_]+)?\s+(?:[a-z0-9_]+\s+)?(\S+)")
_SEVERAL = re.compile(r"kernel|gpg-pubkey|kmod-[^.]*[0-9]")
#: Name, architecture, version, repository and size; the size has two words.
_ROW_WORDS = 5


def from_apt(text: str) -> List[Change]:
    """Of `apt-get --simulate`. The section before the lines says which new versions are older ones."""
    lower = {name for block in _DOWNGRADED.findall(text) for name in block.split()}
    found = []
    for word, name, old, coming in _APT.findall(text):
        new = coming if word == "Inst" else ""
        if not new:
            action = REMOVE
        elif not old:
            action = INSTALL
        elif old == new:
            action = AGAIN
        else:
            action = DOWNGRADE if name in lower else UPGRADE
        found.append(Change(action, name, old, new))
    return found


def from_dnf(text: str, installed: Mapping[str, str]) -> List[Change]:
    """Of `dnf --assumeno`. `installed`: version by name, for its table shows only one."""
    found: Dict[str, Change] = {}
    action, held_back = "", ""
    for line in text.splitlines():
        heading = next((kind for pattern, kind in _DNF if pattern.match(line)), None)
        replaced = _REPLACING.match(line)
        if heading:
            action = heading
        elif line and not line.startswith(" "):  # another heading, a ruler, the summary
            action = ""
        elif replaced:
            name = replaced.group(1)
            found.setdefault(name, Change(REMOVE, name, replaced.group(2), ""))
        elif action:
            words = (held_back + line).split()
            held_back = "" if len(words) >= _ROW_WORDS else " ".join([*words, ""])  # a long name has a line of its own
            if not held_back and words:
                name, new = words[0], words[2]
                old = new if action == REMOVE else installed.get(name, "")
                found[name] = Change(action, name, old, "" if action == REMOVE else new)
    return list(found.values())


def unfinished(status: str) -> List[str]:
    """Packages of dpkg's status file that an interrupted run has left half there: `name (half-configured)`.

    Of a package that stands there several times, as with dpkg's journal behind the file, the last word counts.
    """
    found: Dict[str, str] = {}
    for stanza in re.split(r"\n\n+", status):
        name = re.match(r"Package: (\S+)", stanza)
        state = re.search(r"^Status: \S+ (\S+) (\S+)$", stanza, re.MULTILINE)
        if not name or not state:
            continue
        flag, word = state.groups()
        is_whole = word in ("installed", "config-files", "not-installed") and flag == "ok"
        found[name.group(1)] = "" if is_whole else word
    return [f"{name} ({word})" for name, word in found.items() if word]


def twice(text: str) -> List[str]:
    """Packages that an interrupted run has left twice, out of rpm's `name.arch` lines. Several kernels are no mistake."""
    lines = [line for line in text.splitlines() if not _SEVERAL.match(line)]
    doubled = sorted({line for line in lines if lines.count(line) > 1})
    return [f"{line.rpartition('.')[0]} (installed {lines.count(line)} times)" for line in doubled]


def from_madison(text: str) -> Dict[str, List[str]]:
    """Of `apt-cache madison`: versions by name, the newest first."""
    found: Dict[str, List[str]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and parts[1] not in found.setdefault(parts[0], []):
            found[parts[0]].append(parts[1])
    return found


def from_repoquery(text: str) -> Dict[str, List[str]]:
    """Of `dnf repoquery` with name and version between tabs: versions by name, the newest first."""
    found: Dict[str, List[str]] = {}
    for line in text.splitlines():
        name, tab, version = line.strip().partition("\t")
        if tab and version not in found.setdefault(name, []):
            found[name].append(version)
    return {name: sorted(versions, key=_order, reverse=True) for name, versions in found.items()}


def _order(version: str) -> List[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]


def upstream(version: str) -> str:
    """580.95.05 of `580.95.05-0ubuntu0.24.04.1` and of `3:580.95.05-1.el9`."""
    return re.split(r"[-~+]", version.partition(":")[2] or version)[0]
