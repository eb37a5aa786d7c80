"""Process trees of this machine that stand in for an engine, and stops of them. The rest is the real thing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import deployed
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from ansible_collections.modelyard.core.plugins.plugin_utils import program
from harness import WORKER, session_of, until

SERVICE = f"tree-{WORKER}"
SOON = {"grace_s": 5, "term_s": 1, "kill_s": 5, "memory_s": 3}
QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0}
# A server with a child of its own; both end at SIGINT.
OBEDIENT = "sleep 300 & child=$!\ntrap 'kill $child; exit 0' INT TERM\nwait\n"
# A server whose child ignores everything but KILL, and which leaves it behind.
STUBBORN = "bash -c 'trap \"\" INT TERM HUP; while :; do sleep 0.2; done' &\ntrap 'exit 0' INT TERM\nwait\n"


def start(home: Path, script: str, service: str = SERVICE, index: int = 0, **more: Any) -> dict[str, Any]:
    """Start an instance whose launch script is `script`."""
    folder = layout.instance_dir(str(home), service, index)
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / layout.PROGRAM).write_bytes(program.build())
    marker = f"MODELYARD_SERVICE={service} MODELYARD_INSTANCE={index}"
    text = f'#!/bin/bash\ncd "$(dirname "$0")/run"\nexport {marker}\n{script}'
    (folder / "launch.sh").write_text(text, encoding="utf-8")
    request = {"service": service, "host": "127.0.0.1", "port": 1 + index, "digest": "d", "runtime": str(home / "runtime")}
    request.update(
        marker={"MODELYARD_SERVICE": service}, launch={"argv": ["x"], "environment": {}, "model": ""}, index=index, **more
    )
    return supervisor.Plain().start(folder, request, sys.executable)


def settled(state: dict[str, Any]) -> None:
    """Wait until the launch script is past its own helpers: a process that is just ending shows fewer signs."""
    comms = ["bash", "python3", "sleep"]
    until(
        lambda: sorted(p["comm"] for p in session_of(state["keeper"]["pid"])) in (comms, ["bash", "python", "sleep"]),
        5,
        "settled",
    )


def stopped(home: Path, service: str = SERVICE, indexes: list[int] | None = None, **options: Any) -> run.Stop:
    """Stop a service and expect nothing of it to be left."""
    stopper = run.Stop(str(home), service, indexes, {**SOON, **options})
    result = stopper.run()
    assert (result["left"], result["failed"], result["needs_admin"]) == ([], False, ""), result
    return stopper


def words(stopper: run.Stop) -> list[str]:
    """What a stop said it did."""
    return [said for _, said in stopper.actions]


def with_cards(home: Path, sim: Any, cards: list[int], service: str = SERVICE, index: int = 0, **stop: Any) -> list[str]:
    """Write down that an instance has these simulated cards; returns their device files."""
    backend = sim.machine["vendor"]
    found = [sim.machine["cards"][card] for card in cards]
    files = [f"/dev/nvidia{card['minor']}" if backend == "nvidia" else f"/dev/dri/renderD{card['render']}" for card in found]
    devices = [
        {"index": card, "uuid": one["uuid"], "bus_id": one["bus_id"], "device_files": [file]}
        for card, one, file in zip(cards, found, files, strict=True)
    ]
    folder = layout.instance_dir(str(home), service, index)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"schema": 1, "service": service, "home": str(home), "sysroot": str(sim.root), "backend": backend, "stop": stop}
    settings.update(tool_path=[str(sim.bin)], backends={backend: tables.backend(backend)}, instances=[index])
    layout.write_json(folder.parent / "service.json", settings)
    layout.write_json(folder / "instance.json", {"schema": 1, "service": service, "index": index, "devices": devices})
    return [f"{sim.root}{file}" for file in files]


def deployed_on_cards(home: Path, sim: Any, cards: list[int], planned: dict[str, Any], **stop: Any) -> Path:
    """Write the files of a planned service with one instance on these simulated cards; the folder of the instance."""
    with_cards(home, sim, cards, planned["name"], **stop)
    folder = layout.instance_dir(str(home), planned["name"], 0)
    service, instance = folder.parent / layout.SERVICE_FILE, folder / layout.REQUEST_FILE
    settings, devices = layout.read_json(service), (layout.read_json(instance) or {})["devices"]
    deployed.write(home, planned)
    layout.write_json(service, {**layout.read_json(service), **settings})
    layout.write_json(instance, {**layout.read_json(instance), "devices": devices})
    return folder
