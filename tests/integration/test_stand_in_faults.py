"""Faults of the stand-in that come and go while it serves: each does what the README of the simulators says, and ends."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import until
from stand_in import Engine, Machine

FORM = {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("faults"), "")


@pytest.fixture(scope="module")
def engine(made: Machine) -> Iterator[Engine]:
    with made.engine("--served-model-name", "m") as engine:
        yield engine.ready()


@pytest.fixture
def faults(made: Machine) -> Iterator[Any]:
    """Switch faults on; all are off afterwards."""
    path = Path(made.environment) / "faults.json"
    yield lambda **some: path.write_text(json.dumps(some), encoding="utf-8")
    path.unlink(missing_ok=True)


def said(engine: Engine, **more: Any) -> Any:
    return engine.chat(**more)[1]["choices"][0]["message"]["content"]


def figures(engine: Engine) -> list[float]:
    lines = engine.ask("/metrics")[1].splitlines()
    names = ("vllm:num_requests_running{", "vllm:generation_tokens_total{")
    return [float(line.split()[-1]) for name in names for line in lines if line.startswith(name)]


def listens(engine: Engine) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", engine.port)) == 0


def test_an_answer_is_another_one_while_the_fault_is_on(engine: Engine, faults: Any) -> None:
    faults(schema={"said": "no"}, health={"status": 500}, models={"fields": {"id": "other"}})
    assert said(engine, **FORM) == "no"
    assert said(engine) != "no", "another kind of request is spared"
    assert engine.get("/health") == 500
    assert engine.ask("/v1/models")[1]["data"][0]["id"] == "other"
    faults(ports={"1": {"schema": {"said": "no"}}})
    assert said(engine, **FORM) != "no", "another instance is meant"
    assert engine.get("/health") == 200


def test_the_first_requests_are_spared_and_a_command_is_run_once(engine: Engine, faults: Any, tmp_path: Path) -> None:
    faults(chat={"from": 3, "status": 503, "body": "no", "do": f"echo struck; echo x >> {tmp_path}/ran"})
    assert [engine.chat()[0] for _ in range(4)] == [200, 200, 503, 503]
    assert (tmp_path / "ran").read_text() == "x\n"
    assert "struck\n" in engine.log


@pytest.mark.parametrize(("how", "running", "tokens"), [("lost", 0, False), ("generates", 1, True), ("stands", 1, False)])
def test_a_request_hangs_until_the_fault_is_off(engine: Engine, faults: Any, how: str, running: int, tokens: bool) -> None:
    before = figures(engine)[1]
    faults(chat={"hang": how})
    client = threading.Thread(target=lambda: engine.chat(timeout_s=1))
    client.start()
    if running:
        until(lambda: figures(engine)[0] == 1, 5, "it is in work")
    client.join()
    assert (figures(engine)[1] > before) is tokens
    if how == "stands":
        assert figures(engine)[0] == 1, "although the client has gone"
    faults()
    until(lambda: figures(engine)[0] == 0, 5, "it is let go")
    assert engine.chat()[0] == 200


def test_the_port_is_closed_and_opened_again(engine: Engine, faults: Any) -> None:
    faults(port="closed")
    until(lambda: not listens(engine), 5, "closed")
    assert engine.process.poll() is None
    faults()
    until(lambda: listens(engine), 5, "open again")
    assert engine.chat()[0] == 200
