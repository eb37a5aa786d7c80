"""dnf and rpm. What is held is in the list of dnf's plugin for version locks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import transaction
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change
from ansible_collections.modelyard.core.plugins.module_utils.process.packages.run import Programs, lines
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

#: A lock is no obstacle to what was asked for and compared.
OPTIONS = ("--disableplugin=versionlock", "--setopt=install_weak_deps=False")
QUERY = "%{NAME}\\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\\n"
LOCK_LIST = "/etc/dnf/plugins/versionlock.list"


class Dnf:
    """The packages of a host of the RHEL family."""

    program = "dnf"
    locks = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock")
    pid_files = ("/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid", "/var/lib/dnf/rpmdb_lock.pid")

    def __init__(self, sysroot: str, places: Sequence[str]) -> None:
        self.programs = Programs(sysroot, places)
        self._root = [] if sysroot in ("", "/") else ["--root", sysroot]
        self._locks = Path(below(sysroot, LOCK_LIST))

    @property
    def lacks(self) -> str:
        """What must be there before a set can be held."""
        return "" if self._locks.exists() else "dnf's plugin for version locks: dnf install python3-dnf-plugin-versionlock"

    def update(self, limit_s: float) -> None:
        """Read the sources anew."""
        self.programs.do(["dnf", "-q", "makecache", "--refresh"], limit_s, {})

    def installed(self) -> Dict[str, str]:
        """Version by name. Of a kernel, of which there are several, the last one."""
        said = self.programs.ask(["rpm", *self._root, "-qa", "--qf", QUERY])
        return {name: version for name, tab, version in (line.partition("\t") for line in said["stdout"].splitlines()) if tab}

    def held(self) -> List[str]:
        """Packages that are locked at the version that is installed."""
        entries = {re.sub(r"\.[^.]*\Z", "", entry) for entry in self._entries()}
        found = []
        for name, version in self.installed().items():
            plain = version.partition(":")[2] or version
            if entries & {f"{name}-{version}", f"{name}-{plain}", f"{name}-0:{plain}"}:
                found.append(name)
        return found

    def unfinished(self) -> List[str]:
        """What an interrupted run has left twice: rpm removes old packages after all new ones are there."""
        return transaction.twice(self.programs.ask(["rpm", *self._root, "-qa", "--qf", "%{NAME}.%{ARCH}\\n"])["stdout"])

    def offered(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Versions by name, the newest first."""
        words = ["dnf", "-q", OPTIONS[0], "repoquery", "--showduplicates", "--qf", "%{name}\t%{evr}\n", *names]
        return transaction.from_repoquery(self.programs.ask(words)["stdout"]) if names else {}

    def prefer(self, version: str) -> None:
        """Nothing to say: dnf looks at every version by itself."""

    def dry_run(self, request: Mapping[str, str]) -> Tuple[List[Change], str]:
        """(changes, why there are none to tell)."""
        said = self.programs.ask(["dnf", "--assumeno", *OPTIONS, "install", *_words(request)])
        changes = transaction.from_dnf(said["stdout"], self.installed())
        # It ends with 1 when it was told to do nothing.
        aborted = "Operation aborted" in said["stdout"] + said["stderr"]
        return changes, "" if said["rc"] == 0 or (aborted and changes) else lines(said)

    def configure(self, limit_s: float) -> None:
        """Take away what an interrupted run has left of old versions."""
        self.programs.do(["dnf", "-y", "remove", "--duplicates"], limit_s, {})

    def install(self, request: Mapping[str, str], limit_s: float, wait_s: int) -> None:
        """Exactly these, in one transaction. `wait_s` is apt's: dnf waits by itself, and was seen free right before."""
        self.programs.do(["dnf", "-y", *OPTIONS, "install", *_words(request)], limit_s, {})

    def hold(self, names: Sequence[str], limit_s: float) -> None:
        """Keep them as they are: locks of other versions of them go, for they would hide these."""
        old = [
            entry for entry in self._entries() if any(re.match(rf"{re.escape(name)}-(?:[0-9]+:)?[0-9]", entry) for name in names)
        ]
        if old:
            self.programs.do(["dnf", "-q", "versionlock", "delete", *old], limit_s, {})
        there = self.installed()
        self.programs.do(["dnf", "-q", "versionlock", "add", *(f"{name}-{there[name]}" for name in names)], limit_s, {})

    def initramfs(self, limit_s: float) -> None:
        """Make that of every kernel anew."""
        self.programs.do(["dracut", "--force", "--regenerate-all"], limit_s, {})

    def _entries(self) -> List[str]:
        try:
            text = self._locks.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "!"))]


def _words(request: Mapping[str, str]) -> List[str]:
    return [f"{name}-{version}" for name, version in request.items()]
