"""What is measured of each proxy, and how a load is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import ends_with_me

from bench_gateway import machine
from bench_gateway.proxies import HEADERS, ROOT, Proxy

#: Engines and their slots: a server with eight cards. Where slots are not what is measured there are enough of them.
ENGINES, SLOTS, ENOUGH = 8, 4, 4096
#: A run in which the proxy was ready for more than this share of the time, in percent, and had no core is run again.
DISTURBED, TRIES = 5.0, 3


@dataclass(frozen=True)
class Load:
    """A load of client.py, and how often it is run in each round."""

    name: str
    words: dict[str, Any]
    slots: int = ENOUGH
    repeats: int = 1
    #: Is there a figure without a proxy, too?
    direct: bool = True


def all_loads(quick: bool) -> list[Load]:
    """The loads that are run in rounds."""
    short = {"load": "streams", "tokens": 10, "gap_ms": 50, "spread_s": 0.25}
    long = {"load": "streams", "count": 256, "tokens": 60 if quick else 200, "gap_ms": 50, "spread_s": 0.25}
    fair = {"load": "closed", "tokens": [1, 31], "gap_ms": 4}
    return [
        Load("first token, 64 streams", {**short, "count": 64}, repeats=1 if quick else 3),
        Load("first token, 256 streams", {**short, "count": 256}, repeats=1 if quick else 3),
        Load("256 streams", long),
        Load("small requests", {"load": "closed", "clients": 32, "seconds": 1 if quick else 3, "tokens": [16, 16], "gap_ms": 0}),
        Load("bodies of 2 MiB", {"load": "closed", "clients": 32, "total": 64, "tokens": [1, 1], "gap_ms": 0, "kib": 2048}),
        Load("32 clients", {**fair, "clients": 32, "total": 480}, SLOTS, direct=False),
        Load("48 clients", {**fair, "clients": 48, "total": 480}, SLOTS, direct=False),
    ]


def sick_loads(quick: bool) -> list[Load]:
    """A backend that is killed, and one that answers 500 at once: each once, on a proxy that was just started."""
    words = {"load": "sick", "clients": 32, "tokens": [1, 9], "gap_ms": 4, "after_s": 1, "seconds": 4 if quick else 9}
    return [
        Load("killed", {**words, "backend": 0, "order": "mode=kill"}, direct=False),
        Load("answers 500", {**words, "backend": 1, "order": "mode=fast500"}, direct=False),
    ]


@dataclass
class Bench:
    """The stub engines, and all that was measured so far."""

    base: int
    core: int
    pids: list[int] = field(default_factory=list)
    #: {load: {proxy: [figures of each run]}}
    results: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    stub: subprocess.Popen[bytes] | None = None

    @property
    def engines(self) -> list[int]:
        """The ports of the stub engines."""
        return list(range(self.base, self.base + ENGINES))

    def start(self) -> None:
        """Start the stub engines, and wait until they listen."""
        script = ROOT / "tests" / "gateway" / "stub.py"
        argv = ["taskset", "-c", str(self.core), sys.executable, str(script), str(self.base), str(ENGINES), str(SLOTS)]
        self.stub = subprocess.Popen(argv, stdout=subprocess.PIPE, preexec_fn=ends_with_me.child())  # noqa: PLW1509  no threads
        assert self.stub.stdout
        if not self.stub.stdout.readline():
            raise SystemExit("The stub engines did not start.")
        self.pids = [self.stub.pid, os.getpid()]

    def stop(self) -> None:
        """End the stub engines."""
        if self.stub:
            self.stub.terminate()
            self.stub.wait()

    def control(self, target: str) -> dict[str, Any]:
        """Ask the stub's control port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.base + ENGINES}{target}", timeout=10) as reply:
            found: dict[str, Any] = json.load(reply)
        return found

    def run(self, load: Load, proxy: Proxy) -> None:
        """A load against a proxy that was started; again when others kept the proxy from its core. The best run counts."""
        runs = []
        for _ in range(TRIES):
            runs.append(self.once(load, proxy))
            if runs[-1]["waited_percent"] <= DISTURBED:
                break
        figures = min(runs, key=lambda run: float(run["waited_percent"]))
        self.results.setdefault(load.name, {}).setdefault(proxy.name, []).append(figures)

    def once(self, load: Load, proxy: Proxy) -> dict[str, Any]:
        """The figures of one run."""
        self.control(f"/control?mode=ok&slots={load.slots}")
        self.control("/reset")
        words = {**load.words, "port": proxy.port, "headers": HEADERS, "control": self.base + ENGINES}
        if "order" in words:
            words["order"] = f"/control?port={self.engines[words['backend']]}&{words['order']}"
        argv = ["taskset", "-c", str(self.core), sys.executable, "-m", "bench_gateway.client", json.dumps(words)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
        pid = proxy.process.pid if proxy.process else 0
        window, children, before = machine.Window(self.pids), os.times(), (machine.cpu_s(pid), machine.waited_s(pid))
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
            check=False,
            preexec_fn=ends_with_me.child(),
        )
        if done.returncode:
            raise RuntimeError(f"{load.name} through {proxy.name}: {done.stderr.strip()[-500:]}")
        figures: dict[str, Any] = json.loads(done.stdout)
        after = os.times()
        figures["waited_percent"] = 100 * (machine.waited_s(pid) - before[1]) / figures["wall_s"]
        if pid:
            figures["cpu_s"] = machine.cpu_s(pid) - before[0]
        client_s = sum(after[2:4]) - sum(children[2:4])
        figures["others"] = max(0.0, window.others() - client_s / figures["wall_s"])
        figures["peak"] = max(self.control("/stats")["peak"])
        return figures
