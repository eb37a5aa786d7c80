"""A gateway of any kind in front of stand-ins for engines, for tests: the project's templates, its keeper, its control."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gateway_files
from ansible_collections.modelyard.core.plugins.module_utils.gateway import control
from harness import ROOT, free_port, json_lines, until

KINDS = ("modelyard", "haproxy", "nginx")
PATH = "/usr/sbin:/usr/local/sbin:" + os.environ["PATH"]
FILES = {
    "modelyard": ("gateway.json",),
    "haproxy": ("haproxy.cfg", "proxy.json"),
    "nginx": ("nginx.conf", "proxy.json", "run/backends.conf"),
}
#: Other than a deploy would have it: short enough for tests, and longer than a busy machine needs.
QUICK = {
    "timeout_s": 2,
    "connect_timeout_s": 1,
    "header_timeout_s": 5,
    "idle_timeout_s": 20,
    "body_limit_mb": 4,
    "queue_timeout_s": 10,
    "health": {"interval_s": 0.3, "timeout_s": 1, "failures": 2},
    "eject": {"server_errors": 3, "for_s": 1},
    "drain_s": 20,
    "log": {"limit_mb": 1, "keep": 3, "snippet": 20, "error_bytes": 1000},
}


class Stub:
    """Engines of stub.py on ports in a row."""

    def __init__(self, count: int, slots: int) -> None:
        self.count = count
        # Somebody else may take a port between the look and the use.
        for _ in range(5):
            self.base = free_port(count + 1)
            command = [sys.executable, str(ROOT / "tests/gateway/stub.py"), str(self.base), str(count), str(slots)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert self.process.stdout
            if self.process.stdout.readline():
                return
            self.process.wait()
        raise AssertionError("no ports for the engines")

    def tell(self, path: str) -> dict[str, list[int]]:
        """Ask the control port; the figures of all engines."""
        status, _, body = request(self.base + self.count, "GET", path)
        assert status == 200
        return json.loads(body)

    def set(self, index: int | None = None, **values: Any) -> None:
        """Change how one engine, or all, behave."""
        chosen = {} if index is None else {"port": self.base + index}
        self.tell("/control?" + "&".join(f"{name}={value}" for name, value in {**chosen, **values}.items()))

    @property
    def stats(self) -> dict[str, list[int]]:
        """Figures of all engines."""
        return self.tell("/stats")


def request(port: int, method: str, path: str, body: Any = None, headers: Any = None) -> tuple[int, dict[str, str], bytes]:
    """(status, headers with small letters, body) of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        chunked = "Transfer-Encoding" in (headers or {})
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})}, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


class Gateway:
    """One gateway: its folder, its values, its process."""

    def __init__(self, kind: str, folder: Path, stub: Stub, **changes: Any) -> None:
        self.kind, self.folder, self.stub = kind, folder, stub
        self.port = free_port(2)
        run_dir, log_dir = folder / "run", folder / "logs"
        for one in (run_dir, log_dir):
            one.mkdir(parents=True, exist_ok=True)
        places = {
            "program": shutil.which(kind, path=PATH) or "",
            "python": sys.executable,
            "package_dir": str(gateway_files.PACKAGE),
        }
        engines = [stub.base + index for index in range(stub.count)]
        usual = gateway_files.values(kind, "stub", self.port, engines, folder)
        self.spec: dict[str, Any] = {**usual, **QUICK, **places, **changes}
        self.before: list[str] = []  # words before its command
        self.names = [one["name"] for one in self.spec["backends"]]
        self.process: subprocess.Popen[bytes]

    def render(self) -> None:
        """Write the files from the project's templates, as the role does."""
        for name in FILES[self.kind]:
            gateway_files.render(Path(name).name + ".j2", self.spec, self.folder / name)

    @contextlib.contextmanager
    def running(self) -> Iterator[Gateway]:
        """Render and start it, wait until it serves, end it with everything it started."""
        self.render()
        with self.started():
            yield self

    @contextlib.contextmanager
    def started(self) -> Iterator[Gateway]:
        """The same with the files that are there."""
        assert control.check_config(self.folder, self.spec) == ""
        argv, environment = control.start_command(self.folder, self.spec)
        with (self.folder / "gateway.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*self.before, *argv],
                env={**os.environ, **environment},
                cwd=self.folder / "run",
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # Where a keeper writes down whom it started.
        (self.folder / "run/gateway.pid").write_text(f"{self.process.pid}\n", encoding="ascii")
        try:
            until(self.serves, 20, f"{self.kind} serves: {self.said()}")
            yield self
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def said(self) -> str:
        """What it and its keeper wrote about themselves."""
        return (self.folder / "gateway.log").read_text(encoding="utf-8")

    def serves(self) -> bool:
        """Does it answer from an engine?"""
        assert self.process.poll() is None, self.said()
        try:
            return self.chat(max_tokens=1)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def chat(self, headers: Any = None, **fields: Any) -> tuple[int, dict[str, str], bytes]:
        """One chat through the gateway."""
        return request(self.port, "POST", "/v1/chat/completions", {"model": "stub", **fields}, headers)

    def used(self, requests: int = 8) -> set[str]:
        """Engines that answer so many requests, one after the other."""
        return {self.chat(max_tokens=1)[1].get("x-backend", "") for _ in range(requests)}

    def log(self) -> list[dict[str, Any]]:
        """The result log."""
        return json_lines(self.folder / "logs/results.jsonl")
