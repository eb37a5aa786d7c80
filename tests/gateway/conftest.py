"""The gateways that the contract is tried on: each kind in front of four engines with four slots."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway.kinds import KINDS, PATH, Gateway, Stub
from harness import until

#: What a kind does not do, and why. docs/gateway-kinds.md says the same to admins.
LACKS: dict[str, dict[str, str]] = {
    "modelyard": {},
    "haproxy": {
        "error event": "HAProxy does not write into a reply that an engine broke off; it ends the connection, which clients see",
        "refusal elsewhere": "to repeat a request HAProxy would have to wait for its body before it chooses an engine",
        "chunked limit": "HAProxy compares announced lengths only",
        "listed headers": "HAProxy passes on headers that `Connection` names",
        "early errors": "what HAProxy cannot read as a request gets its own HTML, without an id; there is no setting for it",
    },
    "nginx": {
        "error event": "nginx does not write into a reply that an engine broke off; it ends the connection, which clients see",
        "active health": "nginx (open source) never asks /health; it only counts connections that failed",
        "5xx": "nginx counts a 5xx only where it may send the request again, which POST may not be",
        "refusal elsewhere": "the same, so a 503 goes to the client as it is",
        "listed headers": "nginx passes on headers that `Connection` names",
        "truncated": "nginx's variables do not tell a reply that the engine broke off from a whole one; only its own messages do",
        "queue": "nginx (open source) has no queue; with a limit per engine, what is too much is refused",
    },
}


def lacks(gateway: Gateway, what: str) -> bool:
    """Is it something that this kind is known not to do?"""
    assert any(what in known for known in LACKS.values()), what
    return what in LACKS[gateway.kind]


def installed(kind: str) -> bool:
    """Is the program there?"""
    return kind == "modelyard" or shutil.which(kind, path=PATH) is not None


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    made = Stub(4, 4)
    yield made
    made.process.kill()
    made.process.wait()


# With xdist each kind has a test process of its own.
@pytest.fixture(scope="module", params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS])
def gateway(request: pytest.FixtureRequest, stub: Stub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    stub.set(mode="ok", health="200")
    with Gateway(request.param, tmp_path_factory.mktemp(request.param) / "a folder", stub).running() as made:
        yield made


@pytest.fixture(autouse=True)
def calm(request: pytest.FixtureRequest) -> Iterator[None]:
    """Before each test all engines are well, idle, in use, and their figures begin at zero."""
    if "gateway" in request.fixturenames:
        one: Gateway = request.getfixturevalue("gateway")
        one.stub.set(mode="ok", health="200")
        until(lambda: one.used() == set(one.names), 15, "all engines are in use")
        until(lambda: not any(one.stub.stats["now"]), 15, "all engines are idle")
        one.stub.tell("/reset")
    yield


def with_kinds(changes: dict[str, Any], without: str = "") -> list[Any]:
    """Parameters for `fresh`."""
    return [pytest.param((kind, changes), id=kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS if kind != without]


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A gateway of its own, for what would disturb the others."""
    kind, changes = request.param
    if not installed(kind):
        pytest.skip(f"{kind} is not installed")
    stub = Stub(2, 8)
    try:
        with Gateway(kind, tmp_path, stub, **changes).running() as made:
            yield made
    finally:
        stub.process.kill()
        stub.process.wait()
