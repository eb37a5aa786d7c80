"""Playing acceptance.yml with ansible-runner, and ending it cleanly when somebody or the clock asks for it."""

from __future__ import annotations

import json
import locale
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import ansible_runner
from ansible_runner.exceptions import AnsibleRunnerException

from modelyard import checkout
from modelyard.accept import connections

#: After being asked to end, ansible-playbook gets so long; then it and its workers are ended firmly.
GRACE_S = 20.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: How often it is looked whether the run shall end, in seconds.
LOOK_S = 0.5
OUTPUT_LIMIT = 8 * 2**20


class Failed(Exception):
    """It could not be played at all; the text says why."""


class Played(NamedTuple):
    """How it ended. `stopped`: why it was ended early, in words, or nothing."""

    rc: int
    output: str
    stopped: str
    by_signal: bool


class Stop:
    """Asked at short intervals whether the run shall end. First ansible-playbook is asked itself, then True is the answer."""

    def __init__(self, limit_s: float, pid: Callable[[], int]) -> None:
        self.until = time.monotonic() + limit_s
        self.limit_s, self.pid = limit_s, pid
        self.signals: list[int] = []
        self.why = ""
        self.asked_at: float | None = None

    def handle(self, number: int, _: FrameType | None) -> None:
        """Signal handler."""
        self.signals.append(number)

    def __call__(self) -> bool:
        """True: end it firmly now."""
        if not self.why and self.signals:
            self.why = f"the run was ended by {signal.Signals(self.signals[0]).name}"
        if not self.why and time.monotonic() > self.until:
            self.why = f"the run was not done after {self.limit_s:.0f} s (limit_s) and was ended"
        if not self.why:
            return False
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            pid = self.pid()
            if not pid:
                return True  # it has not begun
            # It is our child and not reaped yet, so the number cannot be somebody else's.
            os.kill(pid, signal.SIGINT)
            return False
        return len(self.signals) > 1 or time.monotonic() - self.asked_at > GRACE_S


def arguments(inventories: Sequence[str], limit: str, more: Sequence[str]) -> list[str]:
    """Words for ansible-playbook: inventories that exist by their whole path, because it works in the checkout."""
    words = []
    for inventory in inventories:
        path = Path(inventory).expanduser()
        words += ["-i", str(path.resolve()) if path.exists() else inventory]
    return [*words, *(["--limit", limit] if limit else []), *more]


def speaks_utf8() -> bool:
    """Is the locale of this environment there, and one of UTF-8? Ansible refuses every other one."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
        return (locale.getlocale()[1] or "").lower().replace("-", "") == "utf8"
    except (locale.Error, ValueError):
        return False
    finally:
        locale.setlocale(locale.LC_ALL, before)


def environment(work: Path, given: Mapping[str, str], sockets: Path | None) -> dict[str, str]:
    """What is added to this process' own environment. `sockets`: folder for those of SSH connections."""
    root = checkout.root()
    return {
        "PATH": f"{Path(sys.executable).parent}:{given.get('PATH', os.defpath)}",
        "ANSIBLE_CONFIG": given.get("ANSIBLE_CONFIG") or str(root / "ansible.cfg"),
        # ansible-runner switches it off where nothing is said.
        "ANSIBLE_HOST_KEY_CHECKING": given.get("ANSIBLE_HOST_KEY_CHECKING", "True"),
        # The home may lie on a full disk.
        "ANSIBLE_LOCAL_TEMP": str(work / "tmp"),
        "ANSIBLE_NOCOLOR": "1",
        **({"ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets)} if sockets else {}),
        # A timer has the locale of the machine, which need not be installed, or one of no language.
        **({} if speaks_utf8() else {"LC_ALL": "C.UTF-8"}),
        # It drops larger results without a word; a plan with its survey is one.
        "MAX_EVENT_RES": str(2**28),
    }


def play(words: Sequence[str], work: Path, on_event: Callable[[Mapping[str, Any]], None], stop: Stop) -> Played:
    """Play it to its end. What ansible-runner writes lies in `work`; no file there holds the environment or an event."""
    before = {number: signal.signal(number, stop.handle) for number in SIGNALS}

    def handle(event: Mapping[str, Any]) -> bool:
        on_event(event)
        return False  # nothing is kept of it

    def status(data: Mapping[str, Any], runner_config: Any) -> None:
        if data["status"] == "running":  # it has just written all of the environment into this file, with every secret in there
            path = Path(runner_config.artifact_dir) / "command"
            path.write_text(json.dumps({"command": runner_config.command, "cwd": runner_config.cwd}), encoding="utf-8")

    # Given as an argument they would be lost: without files of its own the runner begins with none.
    (work / "env").mkdir(mode=0o700)
    settings = {"pexpect_timeout": LOOK_S, "suppress_ansible_output": True}
    (work / "env/settings").write_text(json.dumps(settings), encoding="utf-8")
    try:
        with connections.own() as sockets:
            done = ansible_runner.run(
                private_data_dir=str(work),
                ident="run",
                project_dir=str(checkout.root()),
                playbook=checkout.PLAYBOOK,
                inventory=[],
                cmdline=shlex.join(words),
                envvars=environment(work, os.environ, sockets),
                suppress_env_files=True,
                event_handler=handle,
                status_handler=status,
                cancel_callback=stop,
            )
    except AnsibleRunnerException as exc:
        raise Failed(str(exc)) from exc
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    rc = 254 if done.rc is None else int(done.rc)
    return Played(rc, _output(work / "artifacts/run/stdout"), stop.why, bool(stop.signals))


def _output(path: Path) -> str:
    """What ansible-playbook has printed."""
    try:
        with path.open("rb") as stream:
            return stream.read(OUTPUT_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""
