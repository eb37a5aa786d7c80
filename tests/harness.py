"""Running the project's playbooks from tests, as an admin would, and looking at what they left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner
import yaml

ROOT = Path(__file__).resolve().parent.parent
RUNTIMES = ROOT / ".cache" / "runtimes"
BIN = Path(sys.executable).parent
#: Which of several test processes this is. Names of services hold it where others stop services too: a stop looks through the
#: whole machine for what bears its service's marker.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
#: Test processes that may run at once (tools/test.sh), and the ports of each. Parts of the tests that run beside each other have
#: ports of their own.
WORKERS, PORTS_EACH = 4, 450
FIRST_PORT = int(os.environ.get("TEST_PORTS", "18100"))


def free_port(count: int = 1) -> int:
    """The first of `count` ports in a row that nobody listens on. Test processes that run at once each have their own range."""
    worker = int(WORKER[2:]) % WORKERS
    first = FIRST_PORT + worker * PORTS_EACH
    for base in range(first, first + PORTS_EACH - count, 10):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, one in enumerate(sockets):
                one.bind(("127.0.0.1", base + offset))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return base
    raise AssertionError("no free ports")


@dataclass
class Run:
    """One run of a playbook."""

    rc: int
    output: str
    stats: dict[str, Any]
    tasks: int
    seconds: float
    #: Seconds of each task by its name, with what Ansible needs to bring the module to the host.
    task_s: dict[str, float]

    @property
    def changed(self) -> int:
        """Number of changes over all hosts."""
        return sum((self.stats or {}).get("changed", {}).values())


@dataclass
class Site:
    """A host (this machine) with a home of its own and the services that its inventory names."""

    folder: Path
    services: list[dict[str, Any]]
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The project's folder on the host."""
        return self.folder / "home"

    @property
    def inventory(self) -> Path:
        """Written anew before each run, so that tests change `services` and `variables` freely."""
        path = self.folder / "hosts.yml"
        values = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "ansible_managed": "Written by Modelyard",
            "modelyard_home": str(self.home),
            "modelyard_runtimes_dir": str(RUNTIMES),
            "modelyard_services": self.services,
            **self.variables,
        }
        path.write_text(yaml.safe_dump({"all": {"hosts": {"host-a": values}}}), encoding="utf-8")
        return path

    def play(self, playbook: str, arguments: str = "", **extra: Any) -> Run:
        """Run a playbook to its end."""
        began = time.monotonic()
        done = ansible_runner.run(
            # A fresh one each time: the runner reads back what an earlier run left there.
            private_data_dir=tempfile.mkdtemp(prefix="runner-", dir=self.folder),
            project_dir=str(ROOT),
            playbook=f"playbooks/{playbook}.yml",
            inventory=str(self.inventory),
            extravars=extra,
            cmdline=arguments or None,
            envvars={"PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1", "COLUMNS": "400"},
            quiet=True,
        )
        seconds = time.monotonic() - began
        output = done.stdout.read()
        tasks = sum(1 for event in done.events if event["event"] in ("runner_on_ok", "runner_on_skipped", "runner_on_failed"))
        task_s = {e["event_data"]["task"]: e["event_data"]["duration"] for e in done.events if e["event"] == "runner_on_ok"}
        return Run(done.rc, output, done.stats, tasks, seconds, task_s)

    @property
    def inventories(self) -> list[Path]:
        """Where Ansible reads what it is about; what comes later wins."""
        return [self.inventory]

    def begin(self, playbook: str, arguments: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start a playbook in a session of its own and return at once."""
        named = [word for path in self.inventories for word in ("-i", str(path))]
        return subprocess.Popen(
            [str(BIN / "ansible-playbook"), *named, f"playbooks/{playbook}.yml", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def state(self, service: str, index: int = 0) -> dict[str, Any] | None:
        """What the keeper wrote about the newest start; None before the first."""
        path = self.home / "services" / service / f"instance-{index}" / "run" / "state.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def leader(self, service: str, index: int = 0) -> int:
        """The API server's pid."""
        state = self.state(service, index)
        assert state is not None
        return int(state["leader"]["pid"])


def session_of(pid: int) -> list[dict[str, Any]]:
    """Living processes of a session, from ps and not from the code under test."""
    shown = subprocess.run(
        ["ps", "-wweo", "pid=,ppid=,sid=,stat=,comm=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 5) for line in shown.splitlines()]
    names = ("pid", "ppid", "sid", "stat", "comm", "args")
    found = [dict(zip(names, row, strict=False)) for row in rows]
    return [{**f, "pid": int(f["pid"])} for f in found if int(f["sid"]) == pid and not f["stat"].startswith("Z")]


def shared_memory(pid: int) -> set[str]:
    """Names of the /dev/shm files that a process has mapped, told by their inodes: a semaphore was mapped by another name."""
    lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    mapped = {int(line.split()[4]) for line in lines if " /dev/shm/" in line}
    return {path.name for path in Path("/dev/shm").iterdir() if inode(path) in mapped}


def inode(path: Path) -> int:
    """Number of the file; 0 when it has gone."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def alive(pid: int) -> bool:
    """Is it there, and not a zombie?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def json_lines(path: Path) -> list[dict[str, Any]]:
    """What a file of JSON lines holds so far; nothing when it has not been begun."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def until(condition: Any, limit_s: float, what: str) -> None:
    """Wait for a condition, or fail with what was waited for."""
    limit = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < limit, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.1)


def end(process: subprocess.Popen[Any]) -> None:
    """End a helper process of a test and everything in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
