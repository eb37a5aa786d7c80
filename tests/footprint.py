"""What a service holds on this machine, by ps, /proc and /dev/shm: never by the code under test."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Site, alive, end, session_of, shared_memory, until

API, CORE, WORKER, TRACKER, KEEPER = "API server", "EngineCore", "worker", "resource tracker", "keeper"


def started(pid: int) -> str:
    """Start time of a process; "" when it is not there. With the pid it names the process for good."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def marked(service: str) -> set[int]:
    """Living processes with the service's marker in their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"MODELYARD_SERVICE={service}".encode() in path.read_bytes().split(b"\0") and alive(int(path.parent.name)):
                found.add(int(path.parent.name))
    return found


def port_open(port: int) -> bool:
    """Does somebody take connections there?"""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Instance:
    """One running instance, as it was when this was made."""

    service: str
    port: int
    session: int
    leader: int
    processes: dict[int, str] = field(default_factory=dict)
    segments: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, site: Site, service: str, index: int = 0) -> Instance:
        """What runs now of an instance."""
        state = site.state(service, index)
        assert state is not None
        base = int(next(s for s in site.services if s["name"] == service)["listen"]["base_port"])
        made = cls(service, base + index, int(state["keeper"]["pid"]), int(state["leader"]["pid"]))
        for process in session_of(made.session):
            made.processes[process["pid"]] = started(process["pid"])
            with contextlib.suppress(OSError):
                made.segments |= shared_memory(process["pid"])
        return made

    def pids(self, kind: str) -> list[int]:
        """Its living processes of one kind, told apart by what ps shows."""
        found = []
        for process in session_of(self.session):
            shown = {
                API: process["pid"] == self.leader,
                KEEPER: process["pid"] == self.session,
                CORE: process["comm"] == "VLLM::EngineCor",
                WORKER: process["comm"].startswith("VLLM::Worker"),
                TRACKER: "multiprocessing.resource_tracker" in process["args"],
            }
            if shown[kind]:
                found.append(process["pid"])
        return found

    def signal(self, kind: str, number: signal.Signals, count: int | None = None) -> list[int]:
        """Send a signal to its processes of one kind (`count`: only so many of them); returns their pids."""
        chosen = self.pids(kind)[:count]
        assert chosen, f"no {kind} in {session_of(self.session)}"
        for pid in chosen:
            os.kill(pid, number)
        return chosen

    def left(self) -> list[str]:
        """Everything of it that is still there, in words; empty when it is gone whole."""
        here = [f"{p['pid']} {p['comm']} in its session" for p in session_of(self.session)]
        here += [f"{pid} of its processes" for pid, start in self.processes.items() if alive(pid) and started(pid) == start]
        here += [f"/dev/shm/{name}" for name in self.segments if Path("/dev/shm", name).exists()]
        return here + ([f"port {self.port} open"] if port_open(self.port) else [])

    def gone_by_itself(self, limit_s: float = 60) -> None:
        """Wait until its processes have ended and its port is closed without anybody's doing."""
        until(lambda: not session_of(self.session) and not port_open(self.port), limit_s, f"the end of {self.service}")


class Strangers:
    """Processes of somebody else that look like the service in one way each; none may ever be ended."""

    def __init__(self, service: str, model: str, port: int, folder: Path) -> None:
        sleep, clean = "sleep 3000", {"PATH": os.environ["PATH"]}
        looks: list[dict[str, Any]] = [
            {"args": f"exec -a 'python vllm serve {model} --port {port}' {sleep}"},
            {"args": f"exec -a VLLM::EngineCore {sleep}"},
            {"args": f"exec {sleep}", "env": {**clean, "MODELYARD_SERVICE": service}},
            {"args": f"exec {sleep}", "cwd": folder},
        ]
        self.processes = [
            subprocess.Popen(["bash", "-c", look.pop("args")], start_new_session=True, **{"env": clean, "cwd": "/", **look})
            for look in looks
        ]

    @property
    def pids(self) -> set[int]:
        """Their process ids."""
        return {p.pid for p in self.processes}

    def unharmed(self) -> bool:
        """Do all of them live?"""
        return all(p.poll() is None for p in self.processes)


@contextlib.contextmanager
def strangers(site: Site, service: str) -> Iterator[Strangers]:
    """Look-alikes of a service beside it."""
    wanted = next(s for s in site.services if s["name"] == service)
    made = Strangers(service, wanted["model"]["path"], wanted["listen"]["base_port"], site.home / "services" / service)
    try:
        yield made
        assert made.unharmed(), "a stranger was ended"
    finally:
        for process in made.processes:
            end(process)


def nothing_left(instances: list[Instance], others: Strangers | None = None) -> None:
    """Fail with everything that is left of the instances, their service's marker included."""
    known = others.pids if others else set()
    here = [words for instance in instances for words in instance.left()]
    here += [f"{pid} has the marker" for service in {i.service for i in instances} for pid in marked(service) - known]
    assert here == []
