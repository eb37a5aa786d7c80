"""apt and dpkg."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import transaction
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.transaction import Change
from ansible_collections.modelyard.core.plugins.module_utils.process.packages.run import Programs, lines
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

#: A hold and an older version are no obstacle to what was asked for and compared; recommended packages can bring another kernel.
OPTIONS: Tuple[str, ...] = ("-y", "--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends")
#: needrestart would restart other people's services.
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "UCF_FORCE_CONFFOLD": "1"}


class Apt:
    """The packages of a Debian or Ubuntu host."""

    program = "apt-get"
    locks = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
    pid_files: Tuple[str, ...] = ()
    lacks = ""

    def __init__(self, sysroot: str, places: Sequence[str]) -> None:
        self.programs = Programs(sysroot, places)
        self._sysroot = sysroot
        self._preferences = tempfile.NamedTemporaryFile(prefix="modelyard-apt-")  # noqa: SIM115  (goes with this object)
        self._options = OPTIONS
        self._status = Path(below(sysroot, "/var/lib/dpkg/status"))

    def update(self, limit_s: float) -> None:
        """Read the sources anew."""
        self.programs.do(["apt-get", "-q", "update"], limit_s, ENVIRONMENT)

    def installed(self) -> Dict[str, str]:
        """Version by name of what is installed whole."""
        return {name: version for name, (version, state, _) in self._packages().items() if state == "installed"}

    def held(self) -> List[str]:
        """Packages that somebody holds."""
        return [name for name, (_, _, wish) in self._packages().items() if wish == "hold"]

    def unfinished(self) -> List[str]:
        """What an interrupted run has left half there. Its journal may know more than the status file, and must be worked off."""
        folder = self._status.parent / "updates"
        journal = sorted(file for file in folder.iterdir() if file.name.isdigit()) if folder.is_dir() else []
        found = transaction.unfinished("\n\n".join([self._text(), *map(_read, journal)]))
        return found or (["dpkg (its journal)"] if journal else [])

    def offered(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Versions by name, the newest first."""
        return transaction.from_madison(self.programs.ask(["apt-cache", "madison", *names])["stdout"]) if names else {}

    def prefer(self, version: str) -> None:
        """Take this version of a driver wherever one is needed, while this program runs: apt itself looks at one alone."""
        own = _read(Path(below(self._sysroot, "/etc/apt/preferences")))
        text = f"{own}\n\nPackage: *nvidia* cuda-drivers* libcuda1\nPin: version {version}-*\nPin-Priority: 1001\n"
        self._preferences.seek(0)
        self._preferences.truncate()
        self._preferences.write(text.encode())
        self._preferences.flush()
        self._options = (*OPTIONS, "-o", f"Dir::Etc::Preferences={self._preferences.name}")

    def dry_run(self, request: Mapping[str, str]) -> Tuple[List[Change], str]:
        """(changes, why there are none to tell). Needs no root."""
        said = self.programs.ask(["apt-get", "--simulate", *self._options, "install", *_words(request)])
        return transaction.from_apt(said["stdout"]), "" if said["rc"] == 0 else lines(said)

    def configure(self, limit_s: float) -> None:
        """Finish what was interrupted."""
        self.programs.do(["dpkg", "--force-confold", "--configure", "-a"], limit_s, ENVIRONMENT)

    def install(self, request: Mapping[str, str], limit_s: float, wait_s: int) -> None:
        """Exactly these, in one transaction."""
        options = ["-q", *self._options, "-o", f"DPkg::Lock::Timeout={wait_s}", "-o", "Dpkg::Options::=--force-confold"]
        self.programs.do(["apt-get", *options, "install", *_words(request)], limit_s, ENVIRONMENT)

    def hold(self, names: Sequence[str], limit_s: float) -> None:
        """Keep them as they are."""
        self.programs.do(["apt-mark", "hold", *names], limit_s, ENVIRONMENT)

    def initramfs(self, limit_s: float) -> None:
        """Make that of every kernel anew."""
        self.programs.do(["update-initramfs", "-u", "-k", "all"], limit_s, ENVIRONMENT)

    def _packages(self) -> Dict[str, Tuple[str, str, str]]:
        """(version, state, wish) by name."""
        found = {}
        for stanza in re.split(r"\n\n+", self._text()):
            said = dict(re.findall(r"^(Package|Version|Status): (.*)$", stanza, re.MULTILINE))
            words = said.get("Status", "").split()
            if "Package" in said and len(words) == 3:
                found[said["Package"]] = (said.get("Version", ""), words[2], words[0])
        return found

    def _text(self) -> str:
        return _read(self._status)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _words(request: Mapping[str, str]) -> List[str]:
    return [f"{name}={version}" for name, version in request.items()]
