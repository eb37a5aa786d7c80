"""What the tests of all scenarios share. They run while the scenario's server is up: tools/scenarios.sh."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import testinfra

sys.path.insert(0, str(Path(__file__).parent / "shared"))

from container_site import ENGINE, ContainerSite  # found by the line above
from harness import Run


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> ContainerSite:
    """The server of the scenario that molecule verifies, as it happens to be."""
    return ContainerSite(tmp_path_factory.mktemp("site"), [], scenario=os.environ["MOLECULE_SCENARIO_NAME"])


@pytest.fixture
def site(scenario: ContainerSite) -> Iterator[ContainerSite]:
    """The server with all cards well, before the test and after it."""
    scenario.services, scenario.variables = [], {}
    scenario.sim("reset")
    yield scenario
    scenario.sim("reset")


@pytest.fixture(scope="module")
def server(scenario: ContainerSite) -> Iterator[ContainerSite]:
    """The server as new, before the file and after it; between the tests of the file nothing is reset."""
    scenario.put_back()
    yield scenario
    scenario.put_back()


@pytest.fixture(scope="module")
def deployed(server: ContainerSite) -> Run:
    """The run that deployed what the scenario's inventory wants."""
    run = server.play("deploy")
    assert run.rc == 0, run.output[-4000:]
    return run


@pytest.fixture(scope="session")
def host(scenario: ContainerSite) -> testinfra.host.Host:
    """The server for testinfra, as root."""
    return testinfra.get_host(f"{ENGINE}://{scenario.container}")
