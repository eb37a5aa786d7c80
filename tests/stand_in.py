"""A stand-in for vLLM on this machine: an environment, simulated cards, and engines that tests start and end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from harness import session_of, until
from simulators.engine import install as engine
from simulators.install import install as install_cards

RELEASE = "0.32.0"
READY_S = 20


def options() -> dict[str, list[str]]:
    """Option names of the release, by kind."""
    names: dict[str, list[str]] = tables.vllm(RELEASE)["options"]
    return names


class Machine:
    """A folder with simulated cards (`sim`), an environment whose vllm is the stand-in (`environment`), and a model (`model`)."""

    def __init__(self, folder: Path, cards: str) -> None:
        self.folder = folder
        self.sim = install_cards(folder / "sim", cards) if cards else None
        sysroot = str(self.sim.root) if self.sim else ""
        self.environment = engine.install(folder / "environment", options(), sysroot=sysroot, load_s=0.2, dead_s=0.5)
        self.model = engine.make_model(folder / "model")

    @contextlib.contextmanager
    def engine(self, *words: str, settings: Any = None, env: Any = None, port: int = 0) -> Iterator[Engine]:
        """`vllm serve` in a session of its own; whatever it leaves behind is ended."""
        port = port or any_port()
        arguments = ["serve", str(self.model), "--host", "127.0.0.1", "--port", str(port), *words]
        values = {"SPT_NOENV": "1", "PATH": "/usr/bin:/bin", "STAND_IN": json.dumps(settings or {}), **(env or {})}
        # Orphans come to this process, as they come to a keeper: process 1 of some machines does not ask for their status.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        path = self.folder / f"{time.monotonic_ns()}.log"
        with path.open("wb") as log:
            command = [str(self.environment / "bin/vllm"), *arguments]
            process = subprocess.Popen(command, env=values, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
        try:
            yield Engine(process, port, path)
        finally:
            engine = Engine(process, port, path)
            for name, pid in engine.members().items():
                if name != "tracker":  # it gives the shared memory back, then ends by itself
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.wait()
            engine.gone()


def any_port() -> int:
    """A port that nobody listens on; the kernel chooses, so that tests that run at the same time get others."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """One that was started."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: Path) -> None:
        self.process, self.port, self.path = process, port, path

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self.path.read_text(encoding="utf-8")

    def ready(self) -> Engine:
        """Wait until it answers."""
        until(lambda: self.get("/health") == 200 or self.process.poll() is not None, READY_S, f"ready: {self.log[-2000:]}")
        assert self.process.poll() is None, self.log
        return self

    def get(self, path: str) -> int:
        """Status; 0 for no connection."""
        return self.ask(path)[0]

    def ask(self, path: str, body: Any = None, timeout_s: float = 10, **headers: str) -> tuple[int, Any]:
        """(status, body); (0, the error) for no answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                status, text = reply.status, reply.read().decode()
        except urllib.error.HTTPError as exc:
            status, text = exc.code, exc.read().decode()
        except OSError as exc:
            return 0, str(exc)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def chat(self, timeout_s: float = 10, **more: Any) -> tuple[int, Any]:
        """A chat completion."""
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, **more}
        return self.ask("/v1/chat/completions", body, timeout_s)

    def members(self) -> dict[str, int]:
        """{title: pid} of the session; the API server is `vllm`, the resource tracker `tracker`, an untitled child `spawn`."""
        found = {}
        for member in session_of(self.process.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{member['pid']}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                known = {" serve ": "vllm", "resource_tracker": "tracker", "spawn_main": "spawn"}
                found[next((name for sign, name in known.items() if sign in words), words)] = member["pid"]
        return found

    def signal(self, number: int, who: str = "vllm") -> None:
        """Send a signal to one member."""
        os.kill(self.members()[who], number)

    def ended(self, limit_s: float = 10) -> int:
        """Wait for the API server; its exit status."""
        return self.process.wait(limit_s)

    def gone(self, limit_s: float = 10) -> None:
        """Wait until nothing of it lives."""
        until(lambda: not reap() and self.members() == {}, limit_s, f"all gone: {self.members()}")


def reap() -> None:
    """Ask for the status of orphans that came to this process and have ended; not of those that it started."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ChildProcessError):
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if stat[0] == "Z" and int(stat[1]) == os.getpid() and int(stat[3]) != int(folder.name):
                    os.waitpid(int(folder.name), os.WNOHANG)
