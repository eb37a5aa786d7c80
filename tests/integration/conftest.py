"""What several files of integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import accepting
import pytest
from harness import Site


@pytest.fixture(scope="session")
def accept_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with accepting.deployed(tmp_path_factory.mktemp("accept")) as site:
        yield site


@pytest.fixture
def accept(accept_site: Site, tmp_path: Path) -> accepting.Accept:
    return accepting.Accept(accept_site, tmp_path)
