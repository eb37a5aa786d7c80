"""Starting a package manager. A change comes to its end even when this program or its connection does not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.survey import tool
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

ASK_LIMIT_S = 120.0
ASK_BYTES = 8 * 2**20
LOG = "/var/log/modelyard-packages.log"
TAIL_BYTES = 3000


class Failed(Exception):
    """A step did not come to its end; the text says what the program said."""


class Programs:
    """The programs of one host. `places`: folders to look into before the system's own."""

    def __init__(self, sysroot: str, places: Sequence[str]) -> None:
        self.sysroot = sysroot
        self.places = [*places, *tool.SYSTEM_FOLDERS]

    def ask(self, words: Sequence[str]) -> Dict[str, Any]:
        """Something that changes nothing: an entry of tool.run."""
        return tool.run([self.find(words[0]), *words[1:]], ASK_LIMIT_S, self._environment({}), ASK_BYTES)

    def do(self, words: Sequence[str], limit_s: float, env: Mapping[str, str]) -> str:
        """A change; what it said last. At the limit it is left to itself: killing it would leave the set half there.

        :raises Failed: it failed, or it is still at work.
        """
        log = Path(below(self.sysroot, LOG))
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            began = stream.tell()
            try:
                process = subprocess.Popen(
                    [self.find(words[0]), *words[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd="/",
                    env=tool.environment(self._environment(env)),
                )
            except OSError as exc:
                raise Failed(f"{words[0]} could not be started: {exc.strerror}") from exc
        try:
            rc = process.wait(limit_s)
        except subprocess.TimeoutExpired as exc:
            what = (
                f"{words[0]} is still at work after {limit_s:g} s (pid {process.pid}) and was left to itself; it writes to {LOG}"
            )
            raise Failed(what) from exc
        said = _tail(log, began)
        if rc != 0:
            raise Failed(f"{words[0]} ended with {rc} ({LOG}): {' / '.join(said.splitlines()[-8:])}")
        return said

    def find(self, name: str) -> str:
        """Its path; its name where it is nowhere, for a message."""
        return tool.find(name, self.places, "") or name

    @staticmethod
    def _environment(extra: Mapping[str, str]) -> Dict[str, str]:
        """Package managers reach their sources through proxies, unlike vendors' tools."""
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        return {**proxies, **extra}


def _tail(log: Path, began: int) -> str:
    with log.open("rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(began, end - TAIL_BYTES))
        return stream.read().decode("utf-8", "replace").strip()


def lines(entry: Mapping[str, Any], last: int = 8) -> str:
    """What a program said, in one line."""
    said: List[str] = f"{entry['stdout']}\n{entry['stderr']}\n{entry['note']}".strip().splitlines()
    return " / ".join(line.strip() for line in said[-last:] if line.strip()) or "nothing"
