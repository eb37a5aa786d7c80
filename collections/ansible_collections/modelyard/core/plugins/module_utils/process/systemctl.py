"""Talking to systemd: the manager of the system, as root or by `sudo -n`, or that of this user. Every call has a limit."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.survey import tool

QUICK_S = 30.0
OURS = re.compile(r"(?m)^X-Modelyard=(.*)$")
BUS = "DBUS_SESSION_BUS_ADDRESS"


def owner(text: str) -> str:
    """Whose a unit file is: the instance's folder that it was rendered for; empty for one that is not of this project."""
    found = OURS.search(text)
    return found.group(1).strip() if found else ""


class Refused(Exception):
    """systemd, or the way to it, did not do what was asked; the text says what it said."""


def runtime_dir() -> str:
    """Where this user's own manager listens. Not from the environment: over `su` it names another user's."""
    return f"/run/user/{os.geteuid()}"


def user_manager_problem() -> str:
    """Why this user's own manager cannot be reached; empty when it can."""
    place = runtime_dir()
    if os.path.exists(f"{place}/systemd/private") or os.path.exists(f"{place}/bus"):
        return ""
    if not os.path.isdir(place):
        return f"{place} is not there: no manager of this user is running"
    return f"no manager of this user listens in {place}"


def lingers(user: str, folder: str = "/var/lib/systemd/linger") -> bool:
    """Does this user's manager live on without a login, and start at boot?"""
    return os.path.exists(f"{folder}/{user}")


class Manager:
    """One manager. `user`: this user's own."""

    def __init__(self, user: bool) -> None:
        self.user = user

    @property
    def units(self) -> Path:
        """Where unit files of this manager are put."""
        if self.user:
            return Path(os.environ.get("HOME") or str(Path.home())) / ".config" / "systemd" / "user"
        return Path("/etc/systemd/system")

    @property
    def stamps(self) -> Path:
        """Where this manager notes when timers last ran."""
        base = Path(os.environ.get("HOME") or str(Path.home())) / ".local" / "share" if self.user else Path("/var/lib")
        return base / "systemd" / "timers"

    @property
    def is_there(self) -> bool:
        """Does such a manager run here at all?"""
        return not user_manager_problem() if self.user else os.path.isdir("/run/systemd/system")

    def _run(self, words: Sequence[str], limit_s: float, rights: bool) -> Dict[str, Any]:
        """`rights`: what is done needs root, where the manager is the system's."""
        env: Dict[str, str] = {}
        command: List[str] = list(words)
        if self.user:
            env = {"XDG_RUNTIME_DIR": runtime_dir(), BUS: f"unix:path={runtime_dir()}/bus"}
        elif rights and os.geteuid() != 0:
            command = ["sudo", "-n", *command]
        return tool.run(command, limit_s, env)

    def _do(self, words: Sequence[str], limit_s: float = QUICK_S) -> str:
        """Run it; raises Refused when it fails."""
        done = self._run(words, limit_s, rights=True)
        if done["rc"] != 0:
            said = " ".join(f"{done['stderr']} {done['stdout']} {done['note']}".split()) or f"exit code {done['rc']}"
            raise Refused(f"`{' '.join(done['argv'])}`: {said[:600]}")
        return str(done["stdout"])

    def _words(self, *words: str) -> List[str]:
        return ["systemctl", *(["--user"] if self.user else []), "--no-ask-password", *words]

    def install(self, source: Path, name: str) -> bool:
        """Put the unit file in its place if it differs, and have the manager read it; True when it was put there."""
        target = self.units / name
        try:
            same = target.read_bytes() == source.read_bytes()
        except OSError:
            same = False
        if same:
            return False
        if self.user:
            self.units.mkdir(parents=True, exist_ok=True)
        self._do(["install", "-m", "0644", str(source), str(target)])
        self._do(self._words("daemon-reload"))
        return True

    def remove(self, name: str) -> None:
        """Remove the unit file, and have the manager forget it, also that it has failed."""
        self.remove_file(self.units / name)
        self._do(self._words("daemon-reload"))
        self._forgive(name)

    def remove_file(self, path: Path) -> None:
        """Remove a file that is the manager's, if it is there."""
        self._do(["rm", "-f", str(path)])

    def enable(self, name: str) -> None:
        """Start it at boot."""
        self._do(self._words("enable", name))

    def start(self, name: str) -> None:
        """Order a start and return at once; one that systemd has begun by itself and that only waits is begun anew."""
        self._forgive(name)
        self._do(self._words("restart", "--no-block", name))

    def _forgive(self, name: str) -> None:
        """A failure counts no more. Refused for a unit that has not failed: no matter."""
        self._run(self._words("reset-failed", name), QUICK_S, rights=True)

    def disable(self, name: str) -> None:
        """Start it no more at boot."""
        self._do(self._words("disable", name))

    def stop(self, name: str, limit_s: float) -> None:
        """Stop it and wait until it is stopped."""
        self._do(self._words("stop", name), limit_s)

    def show(self, name: str) -> Dict[str, str]:
        """{LoadState, ActiveState, SubState, Result, NRestarts, UnitFileState, MainPID}; empty when systemd does not answer."""
        wanted = "LoadState,ActiveState,SubState,Result,NRestarts,UnitFileState,MainPID"
        done = self._run(self._words("show", "-p", wanted, name), QUICK_S, rights=False)
        pairs = (line.partition("=") for line in str(done["stdout"]).splitlines())
        return {key: value for key, equals, value in pairs if equals} if done["rc"] == 0 else {}
