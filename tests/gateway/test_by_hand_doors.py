"""The scripts in a service's folder, where the service has a gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import deployed
import kept_gateway
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors, place
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from gateway.conftest import installed
from gateway.kinds import KINDS, Gateway
from harness import free_port, until

NAME = "hand-doors"
INSTANCES = [f"{NAME}/0", f"{NAME}/1"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from deployed.stopped_afterwards(tmp_path)


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS])
def made(request: pytest.FixtureRequest, home: Path) -> Gateway:
    """A service of two instances and its gateway, deployed and not started."""
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    base = free_port(6)
    deployed.write(home, deployed.service(home, NAME, base, replicas=2))
    return kept_gateway.write(home, NAME, request.param, [base, base + 1], port=base + 3, admin_port=base + 4)


def drained(home: Path) -> list[bool]:
    return [door.draining for door in doors.look(str(home), NAME)]


def test_start_look_and_stop_of_a_service_with_its_gateway(made: Gateway, home: Path) -> None:
    folder = layout.service_dir(str(home), NAME)
    assert "gateway: " in deployed.call(folder, "status_cluster.sh").stdout
    began = deployed.call(folder, "start_cluster.sh", STAGGER="0")
    assert began.returncode == 0, began.stdout + began.stderr
    assert began.stdout.index(f"{NAME}/1: started") < began.stdout.index(f"{place.name(NAME)}/0: started")
    until(lambda: kept_gateway.serves(made), 10, "the gateway serves")

    looked = deployed.call(folder, "status_cluster.sh")
    assert looked.returncode == 0, looked.stdout
    shown = "2 instance(s), it does not say how they are" if made.kind == "nginx" else "2 of 2 instance(s) up"
    assert f"gateway: http://127.0.0.1:{made.port} {made.kind} ready; {shown}" in looked.stdout

    stopped = deployed.call(folder, "stop_cluster.sh", "1")
    assert stopped.returncode == 0, stopped.stdout
    assert f"gateway: {NAME}/1 takes no new requests, 0 in flight" in stopped.stdout
    assert drained(home) == [False, True]
    found = json.loads(deployed.call(folder, "status_cluster.sh", "--json").stdout)
    assert (found["gateway"]["out"], found["exit"]) == ([f"{NAME}/1"], 1)

    again = deployed.call(folder, "start_cluster.sh", STAGGER="0")
    assert again.returncode == 0, again.stdout
    assert f"gateway: {NAME}/1 may get requests again" in again.stdout
    assert drained(home) == [False, False]

    stopped = deployed.call(folder, "stop_cluster.sh")
    assert stopped.returncode == 0, stopped.stdout
    assert stopped.stdout.index(f"stopping {place.name(NAME)}: no new requests") < stopped.stdout.index(f"stopping {NAME}/0")
    assert not place.runs(str(home), NAME)
    assert deployed.call(folder, "status_cluster.sh").returncode == 3


def test_who_was_out_when_the_gateway_ended_comes_in_with_its_start(made: Gateway, home: Path) -> None:
    folder = layout.service_dir(str(home), NAME)
    assert deployed.call(folder, "start_cluster.sh", STAGGER="0").returncode == 0
    assert deployed.call(folder, "stop_cluster.sh", "0").returncode == 0
    assert not run.stop_service(str(home), place.name(NAME), options=deployed.QUICK)["failed"]
    looked = deployed.call(folder, "status_cluster.sh", "1")
    assert (looked.returncode, f" {made.kind} not running" in looked.stdout) == (0, True)
    again = deployed.call(folder, "start_cluster.sh", "0")
    assert again.returncode == 0, again.stdout
    assert drained(home) == [False, False]


def test_a_stop_that_is_broken_off_says_who_gets_no_requests(made: Gateway, home: Path) -> None:
    folder = layout.service_dir(str(home), NAME)
    info = layout.read_json(folder / layout.SERVICE_FILE) or {}
    layout.write_json(folder / layout.SERVICE_FILE, {**info, "stop": {**info["stop"], "drain_command": "sleep 20"}})
    assert deployed.call(folder, "start_cluster.sh", STAGGER="0").returncode == 0
    code, said = deployed.interrupted(folder, "stop_cluster.sh", f"{NAME}/1 takes no new requests", "1")
    assert (code, "Traceback" in said) == (130, False), said
    assert f"gateway: {NAME}/1 gets no requests. Run the stop again, or let it in with" in said
    assert drained(home) == [False, True]


def test_an_instance_on_another_port_is_not_let_in_and_that_is_said(made: Gateway, home: Path) -> None:
    folder = layout.service_dir(str(home), NAME)
    assert deployed.call(folder, "start_cluster.sh", STAGGER="0").returncode == 0
    assert deployed.call(folder, "stop_cluster.sh", "1").returncode == 0
    port = made.spec["backends"][1]["port"]
    done = deployed.call(folder, "start_cluster.sh", "1", BASE_PORT=str(port + 4))
    assert done.returncode == 1, done.stdout
    assert f"{NAME}/1: gets no requests from the gateway, which knows port {port} and not {port + 5}" in done.stdout
    assert drained(home) == [False, True]
