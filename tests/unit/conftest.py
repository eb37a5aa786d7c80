"""What the unit tests share. Property tests take the same examples each time: a failure is a change and no weather."""

import os

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from hypothesis import HealthCheck, settings
from ladder_stub import Engine
from unit import spoilt

settings.register_profile(
    "unit",
    # Under a second Python the code is the same, and so are the examples: a part of them is enough (tools/test.sh).
    max_examples=int(os.environ.get("TEST_EXAMPLES", "100")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unit")


@pytest.fixture
def figures(monkeypatch):
    """Round memory figures for the backend `cpu`: what was last measured is data, how it is added up is tested."""
    real = tables.backend
    cpu = {**real("cpu"), "memory_mib": {"server": 1500, "worker": 1850}, "kv_cache_default_mib": 1024}
    monkeypatch.setattr(tables, "backend", lambda name: cpu if name == "cpu" else real(name))


@pytest.fixture
def engine():
    """An engine's HTTP side in this process, whose answers a test spoils."""
    made = Engine()
    yield made
    made.close()


@pytest.fixture
def home(tmp_path, engine, monkeypatch):
    """A home in which this very process, with `engine`, is the only instance."""
    return spoilt.make_home(tmp_path, engine, monkeypatch)
