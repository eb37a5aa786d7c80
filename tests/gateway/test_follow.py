"""One gateway in the place of another one under load, kept as a deploy keeps it: nobody is refused and nothing is lost."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kept_gateway
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import control, doors, place
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, succession, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from gateway.clients import in_background, load
from gateway.conftest import installed
from gateway.kinds import KINDS, Gateway, Stub, request
from harness import alive, free_port, session_of, until

SERVICE = "stub"
WAYS = [("modelyard", "nginx"), ("nginx", "haproxy"), ("haproxy", "modelyard"), *((kind, kind) for kind in KINDS)]


@pytest.fixture
def engines() -> Iterator[Stub]:
    made = Stub(2, 64)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    run.stop_service(
        str(tmp_path), place.name(SERVICE), options={"grace_s": 2, "linger_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0}
    )


class Site:
    """A service's gateway that becomes another one again and again, on the same ports."""

    def __init__(self, home: Path, engines: Stub, kind: str) -> None:
        self.home, self.engines = home, engines
        base = free_port(2)
        self.ports = {"port": base, "admin_port": base + 1}
        self.gateway = self.written(kind)
        kept_gateway.start(self.gateway)
        until(lambda: self.gateway.used() == set(self.gateway.names), 15, "both are in use")

    def written(self, kind: str, **changes: Any) -> Gateway:
        """The files of another gateway, where a deploy writes them."""
        ports = [self.engines.base, self.engines.base + 1]
        made = kept_gateway.write(self.home, SERVICE, kind, ports, **self.ports, **changes)
        made.stub = self.engines
        return made

    def follow(self, kind: str, **changes: Any) -> list[str]:
        """As the role does it."""
        self.gateway, said = self.written(kind, **changes), []
        doors.prepare(str(self.home), SERVICE)
        assert doors.obstacle(str(self.home), SERVICE) == ""
        assert doors.follow(str(self.home), SERVICE, said.append), said
        return said

    @property
    def state(self) -> dict[str, Any]:
        found = layout.state(self.gateway.folder)
        assert found
        return found


def needed(*kinds: str) -> None:
    for kind in kinds:
        if not installed(kind):
            pytest.skip(f"{kind} is not installed")


@pytest.mark.parametrize(("first", "second"), [pytest.param(*way, id="-".join(way)) for way in WAYS])
def test_nobody_is_refused_or_cut_off_while_another_follows(home: Path, engines: Stub, first: str, second: str) -> None:
    needed(first, second)
    site = Site(home, engines, first)
    before = site.state
    with load(site.gateway.port, 8, max_tokens=1) as small, load(site.gateway.port, 8, max_tokens=40, x_ms=50) as streams:
        until(lambda: len(small) > 50, 20, "the load runs")
        site.follow(second, timeout_s=3)
        mark = len(small)
        until(lambda: len(small) > mark + 50, 20, "the load runs on")
    print(f"{first} -> {second}: {len(small)} small requests, {len(streams)} streams")
    lost = [one for one in small if not one.whole(1)] + [one for one in streams if not one.whole(40)]
    assert [(one.status, one.error, one.event) for one in lost] == [], f"{len(lost)} of {len(small)} and {len(streams)}"
    after = site.state
    assert after["keeper"] == before["keeper"] and after["leader"] != before["leader"] and after["retired"] == []
    assert not alive(before["leader"]["pid"])
    assert control.status(site.gateway.folder, site.gateway.spec)["kind"] == second
    assert site.gateway.used() == set(site.gateway.names)


@pytest.mark.parametrize(("first", "second"), [pytest.param(*way, id="-".join(way)) for way in WAYS])
def test_who_is_out_stays_out(home: Path, engines: Stub, first: str, second: str) -> None:
    needed(first, second)
    site = Site(home, engines, first)
    doors.put(str(home), SERVICE, [1], True)
    site.follow(second, timeout_s=3)
    assert site.gateway.used() == {f"{SERVICE}/0"}
    doors.put(str(home), SERVICE, [1], False)
    # What the second one remembers is older than what the first one says.
    doors.put(str(home), SERVICE, [0], True)
    site.follow(first, timeout_s=4)
    assert site.gateway.used() == {f"{SERVICE}/1"}
    doors.put(str(home), SERVICE, [0], False)
    site.follow(second, timeout_s=5)
    assert site.gateway.used() == set(site.gateway.names)


def test_long_streams_end_with_the_one_before_and_the_stop_leaves_nothing(home: Path, engines: Stub) -> None:
    site = Site(home, engines, "modelyard")
    seen: list[Any] = []
    thread = in_background(seen, site.gateway, 4, max_tokens=60, x_ms=100)
    began = time.monotonic()
    said = site.follow("modelyard", timeout_s=3)
    assert time.monotonic() - began > 4, "the streams of the one before were waited for"
    thread.join()
    assert [one.whole(60) for one in seen] == [True] * 4
    assert said[1].endswith("takes no new requests and ends with its last one")
    known = site.state
    done = run.stop_service(str(home), place.name(SERVICE), options={"grace_s": 10, "memory_s": 0})
    assert (done["failed"], done["left"], session_of(known["keeper"]["pid"])) == (False, [], [])
    with pytest.raises(ConnectionRefusedError):
        request(site.gateway.port, "GET", "/health")


def test_a_stop_in_between_cuts_no_request_of_the_one_before(home: Path, engines: Stub) -> None:
    site = Site(home, engines, "modelyard")
    seen: list[Any] = []
    # Longer than the next one takes to begin, on a busy machine too.
    thread = in_background(seen, site.gateway, 4, max_tokens=200, x_ms=100)
    old = site.state["leader"]["pid"]
    site.gateway = site.written("modelyard", timeout_s=3)
    succession.replace(site.gateway.folder, layout.read_json(site.gateway.folder / layout.REQUEST_FILE) or {})
    assert [one["pid"] for one in site.state["retired"]] == [old]
    done = run.stop_service(str(home), place.name(SERVICE), options={"grace_s": 40, "linger_s": 40, "memory_s": 0})
    thread.join()
    assert [one.whole(200) for one in seen] == [True] * 4
    assert not done["failed"] and sum(words.startswith("SIGINT") for words in done["actions"]) == 2
    assert not any(words.startswith(("SIGTERM", "SIGKILL")) for words in done["actions"])


def test_a_gateway_that_does_not_come_changes_nothing(home: Path, engines: Stub) -> None:
    site = Site(home, engines, "modelyard")
    before = site.state
    site.gateway = site.written("modelyard", timeout_s=3)
    (site.gateway.folder / "launch.sh").write_text("#!/bin/bash\necho no room\nexit 7\n", encoding="utf-8")
    with pytest.raises(GatewayError, match=r"the one before serves on: it ended at once \(exit status 7\); its log is /"):
        doors.follow(str(home), SERVICE, print)
    after = site.state
    assert (after["leader"], after["request"]["digest"]) == (before["leader"], before["request"]["digest"])
    assert site.gateway.used() == set(site.gateway.names)
    # The next one that is well is taken.
    site.follow("modelyard", timeout_s=4)
    assert site.gateway.used() == set(site.gateway.names)


def test_what_needs_a_stop_is_said(home: Path, engines: Stub) -> None:
    site = Site(home, engines, "modelyard")
    site.written("modelyard", host="127.0.0.2")
    assert doors.obstacle(str(home), SERVICE) == ""  # kept_gateway writes the address of the entry as it is
    path = site.gateway.folder / layout.REQUEST_FILE
    wanted = layout.read_json(path) or {}
    layout.write_json(path, {**wanted, "port": 1, "supervisor": "screen"})
    assert doors.obstacle(str(home), SERVICE) == "port and supervisor changed"
    state = site.state
    layout.write_json(site.gateway.folder / "run/state.json", {**state, "entry": False})
    assert "earlier version" in doors.obstacle(str(home), SERVICE)
    layout.write_json(site.gateway.folder / "run/state.json", state)


def test_a_crash_closes_the_port(home: Path, engines: Stub) -> None:
    site = Site(home, engines, "modelyard")
    os.kill(site.state["leader"]["pid"], signal.SIGKILL)

    def refused() -> bool:
        try:
            request(site.gateway.port, "GET", "/health")
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
        return False

    until(refused, 5, "nobody waits at a port behind which nobody works")
    until(lambda: session_of(site.state["keeper"]["pid"]) == [], 5, "the keeper has ended")


def test_a_taken_port_is_said_by_the_start(home: Path, engines: Stub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        made = kept_gateway.write(home, SERVICE, "modelyard", [1], port=taken.getsockname()[1])
        with pytest.raises(supervisor.StartError, match=r"cannot listen on 127.0.0.1:\d+: the port is taken by another program"):
            kept_gateway.begin(made)
