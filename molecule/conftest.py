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


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> ContainerSite:
    """The server of the scenario that molecule verifies."""
    return ContainerSite(tmp_path_factory.mktemp("site"), [], scenario=os.environ["MOLECULE_SCENARIO_NAME"])


@pytest.fixture
def site(server: ContainerSite) -> Iterator[ContainerSite]:
    """The server with all cards well, before the test and after it."""
    server.services, server.variables = [], {}
    server.sim("reset")
    yield server
    server.sim("reset")


@pytest.fixture(scope="session")
def host(server: ContainerSite) -> testinfra.host.Host:
    """The server for testinfra, as root."""
    return testinfra.get_host(f"{ENGINE}://{server.container}")
