"""What the end-to-end tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def key() -> str:
    """An API key that cannot stand in any text by accident."""
    return "modelyard-secret-5f2b9c71d0"
