"""A service and its gateway on one host: stops that take instances out first, and the stop of the gateway itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kept_gateway
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import doors, place
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed as by_hand
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import stopping
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import preview, run
from gateway.clients import streams
from gateway.conftest import installed
from gateway.kinds import KINDS, Gateway, Stub
from harness import alive, session_of, until
from trees import OBEDIENT, QUICK, SERVICE, start

SOON = {"grace_s": 5, "term_s": 1, "kill_s": 5, "memory_s": 3}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in layout.services(str(tmp_path)):
        run.stop_service(str(tmp_path), name, options={**QUICK, "linger_s": 1})


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS])
def kept(request: pytest.FixtureRequest, home: Path, stub: Stub) -> Gateway:
    """A running gateway of SERVICE, whose two instances are a tree of processes here and an engine of the stub for requests."""
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    stub.set(mode="ok", health="200")
    for index in (0, 1):
        start(home, OBEDIENT, index=index)
    made = kept_gateway.write(home, SERVICE, request.param, [stub.base, stub.base + 1])
    made.stub = stub
    kept_gateway.start(made)
    until(lambda: made.used() == set(made.names), 15, "both are in use")
    return made


def begun(kept: Gateway, **fields: Any) -> tuple[threading.Thread, list[Any]]:
    """Four streams, two at each engine, that go on while the test does something."""
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(streams(kept.port, 4, **fields)))
    thread.start()
    until(lambda: kept.stub.stats["now"][:2] == [2, 2], 10, "two streams at each engine")
    return thread, seen


def test_an_instance_is_empty_before_it_is_stopped_and_stays_out(kept: Gateway, home: Path) -> None:
    thread, seen = begun(kept, max_tokens=30, x_ms=100)
    shown = preview.preview(str(home), SERVICE, [0], SOON)["actions"]
    assert shown[0].startswith(f"would take {SERVICE}/0 out of the gateway and wait 30 s at most")
    assert not any(door.draining for door in doors.look(str(home), SERVICE))
    done = run.stop_service(str(home), SERVICE, [0], SOON)
    assert not done["failed"], done
    assert done["actions"][0] == f"gateway: {SERVICE}/0 takes no new requests, 2 in flight"
    assert done["actions"][1].startswith(f"gateway: {SERVICE}/0 empty after ")
    assert done["actions"][2].startswith("SIGINT")
    thread.join()
    assert [one.whole(30) for one in seen] == [True] * 4
    assert kept.used() == {f"{SERVICE}/1"}
    # Once more is nothing new, and it comes in only by order.
    assert doors.put(str(home), SERVICE, [0], True) == []
    assert doors.put(str(home), SERVICE, [0, 1], False) == [f"{SERVICE}/0"]
    until(lambda: kept.used() == set(kept.names), 15, "both are in use")


def test_requests_that_last_longer_are_not_waited_for(kept: Gateway, home: Path) -> None:
    thread, _ = begun(kept, max_tokens=60, x_ms=100)
    done = run.stop_service(str(home), SERVICE, [0], {**SOON, "drain_s": 1})
    assert done["actions"][1].startswith(f"gateway: {SERVICE}/0 still 2 in flight after ")
    assert not done["failed"]
    thread.join()


def test_requests_end_before_the_gateway_does_and_nobody_gets_a_second_signal(kept: Gateway, home: Path) -> None:
    thread, seen = begun(kept, max_tokens=100, x_ms=100)
    known = layout.state(kept.folder)
    assert known
    began = time.monotonic()
    done = run.stop_service(str(home), place.name(SERVICE), options=SOON)
    assert time.monotonic() - began > 6  # longer than an engine's API server may be alone
    thread.join()
    assert [one.whole(100) for one in seen] == [True] * 4
    assert [words for words in done["actions"] if words.startswith("SIG")] == [
        f"SIGINT to {known['leader']['pid']} ({done['found'][1]['comm']}): asked to stop"
    ]
    assert (done["failed"], done["left"], session_of(known["keeper"]["pid"])) == (False, [], [])
    assert not place.runs(str(home), SERVICE)
    # Without a gateway the rest stops as ever.
    rest = run.stop_service(str(home), SERVICE, options=SOON)
    assert not any("gateway" in words for words in rest["actions"])


def test_a_gateway_that_does_not_answer_stops_no_stop(home: Path) -> None:
    state = start(home, OBEDIENT)
    made = kept_gateway.write(home, SERVICE, "haproxy", [1])
    (made.folder / "launch.sh").write_text(f'#!/bin/bash\ncd "$(dirname "$0")/run"\n{OBEDIENT}', encoding="utf-8")
    kept_gateway.begin(made)
    done = run.stop_service(str(home), SERVICE, options=SOON)
    assert not done["failed"]
    assert done["actions"][0].startswith("gateway: HAProxy does not answer on ")
    assert done["actions"][0].endswith("; stopping all the same")
    assert not alive(state["leader"]["pid"])
    (made.folder / place.SPEC_FILE).write_text("{", encoding="utf-8")
    state = start(home, OBEDIENT)
    done = run.stop_service(str(home), SERVICE, options=SOON)
    assert "spec.json is not there or not whole: deploy the service again; stopping all the same" in done["actions"][0]
    assert not alive(state["leader"]["pid"])


def unit_stop(home: Path, service: str, index: int = 0, **stop: Any) -> tuple[int, list[str]]:
    """ExecStop of an instance's unit: (exit code, what it said)."""
    folder = layout.instance_dir(str(home), service, index)
    if not (folder / layout.REQUEST_FILE).exists():
        known = layout.state(folder)
        assert known
        wanted = {"name": f"{service}/{index}", "index": index, "supervisor": "systemd", "session": service}
        layout.write_json(folder / layout.REQUEST_FILE, {**known["request"], **wanted})
        info = {"schema": 1, "service": service, "home": str(home), "instances": [index], "stop": {**SOON, **stop}}
        layout.write_json(folder.parent / layout.SERVICE_FILE, info)
    said: list[str] = []
    return stopping.for_supervisor(by_hand.load(folder.parent), folder, False, said.append), said


def test_the_stop_of_a_unit_takes_its_instance_out_only_for_as_long_as_it_stops(kept: Gateway, home: Path) -> None:
    thread, seen = begun(kept, max_tokens=30, x_ms=100)
    code, said = unit_stop(home, SERVICE)
    assert code == 0, said
    assert said[0] == f"gateway: {SERVICE}/0 takes no new requests, 2 in flight"
    assert said[1].startswith(f"gateway: {SERVICE}/0 empty after ")
    assert said[2].startswith("SIGINT")
    assert said[-1] == f"gateway: {SERVICE}/0 gets requests again as soon as it answers"
    thread.join()
    assert [one.whole(30) for one in seen] == [True] * 4
    until(lambda: kept.used() == set(kept.names), 15, "both are in use")
    # One that a person, or the stop that this one is a part of, has taken out before is not let in.
    start(home, OBEDIENT)
    doors.put(str(home), SERVICE, [0], True)
    code, said = unit_stop(home, SERVICE)
    assert (code, [words for words in said if "again" in words]) == (0, [])
    assert kept.used() == {f"{SERVICE}/1"}


def test_a_unit_waits_for_long_requests_no_longer_than_it_may(kept: Gateway, home: Path) -> None:
    thread, _ = begun(kept, max_tokens=100, x_ms=100)
    code, said = unit_stop(home, SERVICE, drain_s=1)
    assert thread.is_alive(), "it was over before the streams were"
    assert code == 0, said
    assert said[1].startswith(f"gateway: {SERVICE}/0 still 2 in flight after ")
    assert said[1].endswith(" s: going on")
    thread.join()


def test_the_stop_of_the_gateways_own_unit_lets_requests_end(kept: Gateway, home: Path) -> None:
    thread, seen = begun(kept, max_tokens=80, x_ms=100)
    code, said = unit_stop(home, place.name(SERVICE))
    assert code == 0, said
    thread.join()
    assert [one.whole(80) for one in seen] == [True] * 4
    assert [words.split(" ")[0] for words in said if words.startswith("SIG")] == ["SIGINT"]
    assert not place.runs(str(home), SERVICE)
