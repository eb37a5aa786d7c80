"""What the end-to-end tests share: a key, and the service over two ranks, which is deployed once for all files of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_site import TP2, make_site, torn_down
from harness import Site


@pytest.fixture(scope="session")
def key() -> str:
    """An API key that cannot stand in any text by accident."""
    return "modelyard-secret-5f2b9c71d0"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, key: str) -> Iterator[Site]:
    """One service over two ranks; a file that needs another one has a fixture of this name."""
    made = make_site(tmp_path_factory.mktemp("tp2"), TP2, replicas=1, tp=2)
    made.variables["modelyard_api_keys"] = {TP2: key}
    yield from torn_down(made)


@pytest.fixture(scope="session")
def port(site: Site) -> int:
    return int(site.services[0]["listen"]["base_port"])


@pytest.fixture(scope="session")
def first(site: Site) -> str:
    """Output of the first deploy, as talkative as it gets."""
    run = site.play("deploy", "-vvv --diff")
    assert run.rc == 0, run.output[-4000:]
    return run.output
