"""Eight instances beside one, in one run on this machine: how long until all answer, and what an unchanged deploy of eight costs.

usage: make bench

The engines are stand-ins (tests/simulators/README.md) on simulated cards. Each only waits for LOAD_S seconds before it is ready.
So the ratio says whether a deploy starts instances side by side, and nothing about how eight real engines share a server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ends_with_me
import yaml
from harness import ROOT, Run, Site, free_port
from stand_in import Machine

NAME = "bench-instances"
LOAD_S = 10.0
COUNT = 8


def site_for(machine: Machine, folder: Path, port: int, replicas: int) -> Site:
    """A host with eight simulated cards and one service on `replicas` of them."""
    assert machine.sim is not None
    service: dict[str, Any] = {
        "name": NAME,
        "backend": "hygon",
        "model": {"id": NAME, "path": str(machine.model)},
        "topology": {"replicas": replicas},
        "listen": {"base_port": port},
        "runtime_path": str(machine.environment),
        "environment": {"STAND_IN": f'{{"load_s": {LOAD_S}}}'},
        **no_stagger(),
    }
    variables = {
        "modelyard_sysroot": str(machine.sim.root),
        "modelyard_tool_path": [str(machine.sim.bin)],
        "card_test_enabled": False,
        # Eight real engines would want more main memory and shared memory than this machine has.
        "modelyard_checks": {"PF-MEMORY": "off", "PF-SHM": "off"},
    }
    return Site(folder, [service], variables)


def no_stagger() -> dict[str, Any]:
    """Starts that wait for each other on purpose would be measured as well; empty where the inventory has no such key."""
    specs = yaml.safe_load((ROOT / "roles/plan/meta/argument_specs.yml").read_text(encoding="utf-8"))
    keys = specs["argument_specs"]["main"]["options"]["modelyard_services"]["options"]
    return {"start": {"stagger_s": 0}} if "start" in keys else {}


def play(site: Site, playbook: str) -> Run:
    """A playbook that must succeed."""
    run = site.play(playbook)
    if run.rc:
        raise SystemExit(run.output[-3000:])
    return run


@contextlib.contextmanager
def watch(ports: range) -> Iterator[dict[int, float]]:
    """{port: when it was first seen to answer}, filled while the block runs."""
    seen: dict[int, float] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            for port in set(ports) - set(seen):
                with contextlib.suppress(OSError, urllib.error.URLError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                    seen[port] = time.time()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def ready_s(site: Site, port: int, replicas: int) -> float:
    """Seconds from the start of the first instance until the last one answers."""
    with watch(range(port, port + replicas)) as seen:
        play(site, "deploy")
    states = [site.state(NAME, index) for index in range(replicas)]
    return max(seen.values()) - min(state["started_at"] for state in states if state)


def main() -> None:
    """Measure and print."""
    ends_with_me.clean_up_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="modelyard-bench-"))
    machine = Machine(folder, "8xk100ai")
    port = free_port(COUNT)
    site = site_for(machine, folder, port, 1)
    try:
        one = ready_s(site, port, 1)
        play(site, "teardown")
        site.services = site_for(machine, folder, port, COUNT).services
        eight = ready_s(site, port, COUNT)
        again = [play(site, "deploy") for _ in range(3)]
    finally:
        site.play("teardown")
        shutil.rmtree(folder)
    fastest = min(run.seconds for run in again)
    print(f"\nStand-ins that wait {LOAD_S:.0f} s, {COUNT} simulated cards, {os.cpu_count()} cores, stagger 0:")
    print(f"  one instance until it answers           {one:6.1f} s")
    print(f"  {COUNT} instances until all answer            {eight:6.1f} s")
    print(f"  ratio                                   {eight / one:6.2f} x   (wanted: at most 1.3)")
    print(f"  unchanged deploy.yml of {COUNT}               {fastest:6.1f} s, {again[0].changed} changed   (wanted: under 15 s)")


if __name__ == "__main__":
    main()
