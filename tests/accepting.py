"""`modelyard accept` in tests: a service that really runs, calls of the command, and ways to make it fail."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stand_in
import yaml
from harness import ROOT, WORKER, Site, free_port, session_of
from simulators.engine.install import complete_model

NAME = f"accept-{WORKER}"
SECRET = "sk-accept-2f9d71c3e5a84b60"


@contextlib.contextmanager
def deployed(folder: Path) -> Iterator[Site]:
    """Two instances of a stand-in for vLLM, deployed by the playbook."""
    machine = stand_in.Machine(folder, "")
    complete_model(machine.model)
    service = {
        "name": NAME,
        "model": {"id": "tiny", "path": str(machine.model)},
        "topology": {"replicas": 2, "tensor_parallel_size": 1},
        "listen": {"host": "127.0.0.1", "base_port": free_port(2)},
        "engine": {"max_model_len": 4096, "max_num_seqs": 2, "shutdown_timeout": 1},
        "acceptance": {"serial_requests": 2, "request_timeout_s": 3, "busy_wait_s": 1},
        "runtime_path": str(machine.environment),
        "ready_timeout_s": 60,
    }
    made = Site(folder, [service], {"modelyard_api_keys": {NAME: SECRET}})
    run = made.play("deploy", card_test_enabled=False)
    assert run.rc == 0, run.output[-4000:]
    yield made
    made.services, made.variables = [service], {}
    assert made.play("teardown", teardown_service=NAME).rc == 0


class Accept:
    """Calls of the command with one state folder."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.state = folder / "state"
        self.config = folder / "modelyard.yml"
        self.configure()

    def configure(self, **values: Any) -> None:
        self.config.write_text(yaml.safe_dump(values), encoding="utf-8")

    def words(self, *more: str, inventory: Path | None = None) -> list[str]:
        mine = ["-i", str(inventory or self.site.inventory), "--state", str(self.state), "--config", str(self.config)]
        return [sys.executable, "-m", "modelyard", "accept", *mine, *more]

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(self.folder), "MY_TOKEN": SECRET, **more}

    def run(self, *more: str, inventory: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """To its end, from another folder than the checkout."""
        words = self.words(*more, inventory=inventory)
        return subprocess.run(
            words, cwd=self.folder, env=self.environment(**environment), capture_output=True, text=True, check=False, timeout=180
        )

    def begin(self, *more: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*more),
            cwd=self.folder,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def latest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "latest.json").read_text(encoding="utf-8"))
        return found


@contextlib.contextmanager
def wanted(site: Site, **acceptance: Any) -> Iterator[None]:
    """The acceptance asks for something else meanwhile. `top_logprobs` beyond the engine's limit fails at that step."""
    before = site.services[0]["acceptance"]
    site.services[0]["acceptance"] = {**before, **acceptance}
    try:
        yield
    finally:
        site.services[0]["acceptance"] = before


@contextlib.contextmanager
def stopped(site: Site, index: int) -> Iterator[None]:
    """An instance that does not answer: its processes are halted, and go on afterwards."""
    state = site.state(NAME, index)
    assert state is not None
    pids = [one["pid"] for one in session_of(state["leader"]["pid"])] or [state["leader"]["pid"]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def users(site: Site, index: int, count: int = 6, **fields: Any) -> Iterator[list[int]]:
    """So many users who ask an instance without a pause (a stand-in: 0.4 s for each). At the end the list holds the statuses."""
    port, over, seen = site.services[0]["listen"]["base_port"] + index, threading.Event(), []
    asked = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 400, **fields}
    body = json.dumps(asked).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {SECRET}"}

    def work() -> None:
        while not over.is_set():
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    json.load(answer)
                    seen.append(answer.status)
            except (OSError, ValueError):
                seen.append(0)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()
