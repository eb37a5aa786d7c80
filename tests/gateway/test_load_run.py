"""The process of a load test by itself, over engines of stub.py: to its end, unwatched, ended, on a full disk; with sim cards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.load import detached, look, place, runner
from ansible_collections.modelyard.core.plugins.module_utils.plan import load_test, tables
from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from gateway.kinds import Stub
from harness import alive, until
from simulators.install import install
from unit.load_inputs import USUAL
from unit.load_records import NO_LIMITS

NAME = "stub"


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    made = Stub(2, 4)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "services" / NAME).mkdir(parents=True)
    return tmp_path


def instances(stub: Stub, devices: list[list[dict[str, Any]]]) -> list[look.Running]:
    found = []
    for index in range(stub.count):
        me = dict(zip(("pid", "start"), proc.identity(stub.process.pid), strict=True))
        request = {"host": "127.0.0.1", "port": stub.base + index, "digest": "d", "launch": {"argv": ["--max-num-seqs", "4"]}}
        state = {"request": request, "leader": me, "keeper": me, "log": "engine.log"}
        found.append(look.Running({"index": index, "cards": [[index]], "devices": devices[index]}, state))
    return found


class Test:
    """A test that was begun."""

    __test__ = False

    def __init__(self, home: Path, stub: Stub, cards: Any = None, devices: Any = None, **options: Any) -> None:
        self.home = home
        wanted = {
            **USUAL,
            "tool": "own",
            "input_tokens": 20,
            "output_tokens": 5,
            "concurrency": [2, 4],
            "requests": 40,
            **options,
        }
        service = {"name": NAME, "backend": "cpu", "gateway": {}, "instances": [], "metrics": {}, "load": {"limits": NO_LIMITS}}
        service.update(model={"id": "stub", "path": "/m"}, runtime={"path": "/rt", "vllm_release": "0.32.0"})
        request = load_test.request(service, wanted, [], {}, cards or {"entry": {}, "sysroot": "/"}, "0.1.0")
        running = instances(stub, devices or [[], []])
        plan = {
            "id": "mine",
            "running": running,
            "addresses": [one.address for one in running],
            "words": 15,
            "key": "",
            "notes": [],
        }
        plan["entry"] = {"kind": "instance", "host": "127.0.0.1", "port": stub.base}
        plan["measured"] = look.deployed(str(home), request, running)
        self.folder = place.prepare(str(home), NAME, "mine")
        (self.folder / place.WATCH).touch()
        lock = place.take(str(home), {"service": NAME})
        self.pid, _ = detached.begin(str(home), request, plan, self.folder, lock)
        os.close(lock)

    def ended(self, limit_s: float = 30) -> dict[str, Any]:
        """The last that it wrote, when it has gone."""
        until(lambda: not place.is_held(str(self.home)), limit_s, "the lock is free")
        until(lambda: not alive(self.pid), 5, "it has gone")
        found = place.progress(self.folder)
        assert found is not None
        return found


def endless(home: Path, stub: Stub) -> tuple[Test, list[int]]:
    """(a test that does not end by itself, its processes)."""
    test = Test(home, stub, concurrency=[2], requests=10**6)
    children = Path(f"/proc/{test.pid}/task/{test.pid}/children")
    until(lambda: bool(children.read_text(encoding="ascii")), 10, "the generator runs")
    return test, [test.pid, *map(int, children.read_text(encoding="ascii").split())]


def test_a_run_to_its_end_leaves_a_record_and_no_process(home: Path, stub: Stub) -> None:
    last = Test(home, stub).ended()
    assert last["ended"] is True
    record = last["record"]
    assert (record["passed"], record["slots"], record["instances"]) == (True, 8, 2)
    assert [level["completed"] for level in record["levels"]] == [40, 40]
    assert record["levels"][0]["server"]["running_max"] is None  # these engines have no /metrics
    assert place.records(place.folder(str(home), NAME)) == [record]
    assert sorted(path.name for path in place.run_folder(str(home), NAME).iterdir()) == ["progress.json", "runner.log", "watch"]


def test_a_run_that_nobody_watches_ends(home: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WATCHED_S", 2.0)
    test, processes = endless(home, stub)
    for _ in range(4):
        time.sleep(1)
        (test.folder / place.WATCH).touch()
    assert all(alive(pid) for pid in processes)  # it was watched for longer than that
    last = test.ended(15)
    assert last["stopped"].startswith("nobody has watched for 2 s")
    assert not any(alive(pid) for pid in processes)
    assert place.records(place.folder(str(home), NAME)) == []


def test_a_run_that_is_told_to_end_ends(home: Path, stub: Stub) -> None:
    for end, words in (
        (lambda t: place.ask_to_end(t.folder, "mine"), "asked to end"),
        (lambda t: os.kill(t.pid, 15), "signal 15"),
    ):
        test, processes = endless(home, stub)
        place.ask_to_end(test.folder, "another")
        time.sleep(0.5)
        assert all(alive(pid) for pid in processes)
        end(test)
        assert words in test.ended(10)["stopped"]
        assert not any(alive(pid) for pid in processes)


def test_a_runner_that_is_killed_takes_its_generator_with_it(home: Path, stub: Stub) -> None:
    test, processes = endless(home, stub)
    os.kill(test.pid, 9)
    until(lambda: not any(alive(pid) for pid in processes), 5, "both have gone")
    assert not place.is_held(str(home))


def test_figures_are_told_although_the_record_cannot_be_written(home: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, "keep", full)
    last = Test(home, stub).ended()
    assert [level["completed"] for level in last["record"]["levels"]] == [40, 40]
    assert last["not_kept"].endswith("No space left on device")


def test_a_run_without_room_for_its_progress_ends_all_the_same(home: Path, stub: Stub) -> None:
    test = Test(home, stub)
    test.folder.rename(test.folder.with_name("away"))
    until(lambda: not place.is_held(str(home)), 30, "the lock is free")
    assert not alive(test.pid)
    assert len(place.records(place.folder(str(home), NAME))) == 1


def test_simulated_cards_are_looked_at_while_it_runs(home: Path, stub: Stub, tmp_path: Path) -> None:
    sim = install(tmp_path / "sim", "2x4090")
    entry = {**tables.accelerators()["nvidia"], "tool_places": ["/usr/bin"]}
    devices = [[{"index": 1, "bus_id": "0000:02:00.0", "uuid": ""}], []]
    cards = {"entry": entry, "sysroot": str(sim.root)}
    record = Test(home, stub, cards, devices, concurrency=[2], requests=0, seconds=5.0).ended()["record"]
    (card,) = record["levels"][0]["cards"]
    assert (card["index"], card["memory_used_max_mib"]) == (1, 4)
    assert card["utilization_median"] is not None
