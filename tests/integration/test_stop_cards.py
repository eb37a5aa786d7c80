"""The guarded stop on simulated cards: holders, memory that comes back late or never, strangers, tools that hang, full disks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import cards, preview, run, signals
from harness import alive, end, session_of, until
from simulators.install import install
from trees import OBEDIENT, QUICK, SERVICE, SOON, STUBBORN, start, stopped, with_cards, words


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    yield folder
    for name in layout.services(str(folder)):
        run.stop_service(str(folder), name, options=QUICK)


@pytest.fixture
def sim(tmp_path: Path) -> Any:
    return install(tmp_path / "sim", "2x4090", python=sys.executable)


def holding(files: list[str], script: str = OBEDIENT) -> str:
    """A launch script whose processes have device files open."""
    opened = "\n".join(f"exec {10 + number}<{file}" for number, file in enumerate(files))
    return f"{opened}\n{script}"


def holder(file: str, **more: Any) -> subprocess.Popen[bytes]:
    """Somebody else's process with a device file open."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import time; f = open({file!r}); time.sleep(300)"],
        start_new_session=True,
        env={"PATH": os.environ["PATH"]},
        cwd="/",
        **more,
    )


def nvidia_smi(sim: Any) -> None:
    """One look with the tool: the simulator notes who is on the cards."""
    subprocess.run([str(sim.bin / "nvidia-smi"), "-q", "-x"], capture_output=True, check=True, timeout=30)


def test_memory_that_is_back_is_checked_and_said(home: Path, sim: Any) -> None:
    state = start(home, holding(with_cards(home, sim, [0, 1])))
    nvidia_smi(sim)
    stopper = stopped(home)
    assert not alive(state["leader"]["pid"])
    said = [line for line in words(stopper) if line.startswith("memory of card")]
    assert said == [
        "memory of card 0 (0000:01:00.0): back: 4 MiB in use, idle is 64 MiB (assumed)",
        "memory of card 1 (0000:02:00.0): back: 4 MiB in use, idle is 64 MiB (assumed)",
    ]


def test_memory_that_comes_back_late_is_waited_for(home: Path, sim: Any) -> None:
    start(home, holding(with_cards(home, sim, [0])))
    sim.set("late_release", 3, card=0)
    nvidia_smi(sim)
    began = time.monotonic()
    stopper = stopped(home, memory_s=30)
    assert time.monotonic() - began > 3
    assert any(line.startswith("waiting up to 30 s for memory: card 0") for line in words(stopper))
    assert words(stopper)[-2].startswith("memory of card 0 (0000:01:00.0): back")


def test_one_of_eight_dcus_is_given_back_late_and_the_others_are_not_looked_at(home: Path, tmp_path: Path) -> None:
    dcus = install(tmp_path / "dcus", "8xk100ai", python=sys.executable)
    kfd = f"{dcus.root}/dev/kfd"
    others = start(home, holding([kfd, *with_cards(home, dcus, [1], index=1)]), index=1)
    start(home, holding([kfd, *with_cards(home, dcus, [0])]))
    dcus.set("late_release", 3, card=0)
    dcus.set("memory_stays", card=5)
    subprocess.run([str(dcus.bin / "hy-smi"), "--showmeminfo", "vram"], capture_output=True, check=True, timeout=30)
    stopper = stopped(home, indexes=[0], memory_s=30)
    assert any(line.startswith("waiting up to 30 s for memory: card 0 (0000:05:00.0): 28002 MiB") for line in words(stopper))
    assert [line for line in words(stopper) if line.startswith("memory of")] == [
        "memory of card 0 (0000:05:00.0): back: 2 MiB in use, idle is 16 MiB (assumed)"
    ]
    assert alive(others["leader"]["pid"])


def test_memory_that_stays_is_handed_to_an_admin_with_choices(home: Path, sim: Any) -> None:
    start(home, holding(with_cards(home, sim, [0])))
    layout.write_json(home / "cards.json", {sim.machine["cards"][0]["uuid"]: {"memory_mib": 7}})
    sim.set("memory_stays", card=0)
    result = run.stop_service(str(home), SERVICE, options=SOON)
    assert (result["failed"], result["left"]) == (True, [])
    assert "card 0 (0000:01:00.0): 30004 MiB in use, idle is 7 MiB; no living process is known to use the rest" in result["msg"]
    known = layout.read_json(home / "services" / SERVICE / "needs_admin.json")
    assert known["processes"] == []
    assert [(c["backend"], c["index"], c["idle_mib"], c["used_mib"]) for c in known["cards"]] == [("nvidia", 0, 7, 30004)]
    report = Path(result["needs_admin"], "report.txt").read_text()
    for line in ("sudo nvidia-smi --gpu-reset -i 0", "In use by another client", "Reload the driver", "Reboot, after asking"):
        assert line in report
    whole = json.loads(Path(result["needs_admin"], "report.json").read_text())
    assert whole["choices"][0]["do"].startswith("Look again")
    sim.clear()
    stopper = stopped(home)
    assert "needs_admin.json removed" in words(stopper)[-1]


def test_the_memory_of_a_card_that_another_instance_had_clears_nothing(home: Path, sim: Any) -> None:
    start(home, holding(with_cards(home, sim, [0])))
    sim.set("memory_stays", card=0)
    assert run.stop_service(str(home), SERVICE, options=SOON)["failed"]
    start(home, holding(with_cards(home, sim, [1], index=1)), index=1)
    stopped(home, indexes=[1])
    assert (home / "services" / SERVICE / "needs_admin.json").exists()


def test_a_stranger_on_the_card_is_named_and_left_alone(home: Path, sim: Any) -> None:
    files = with_cards(home, sim, [0])
    stranger = holder(files[0])
    state = start(home, holding(files))
    try:
        until(lambda: stranger.pid in cards.holders(cards.place(str(home), SERVICE), proc.processes()), 5, "it is on the card")
        shown = preview.preview(str(home), SERVICE)
        assert [other["pid"] for other in shown["others"]] == [stranger.pid]
        assert any("would wait up to 120 s until the memory of card 0 is back" in said for said in shown["actions"])
        stopper = stopped(home)
        assert not alive(state["leader"]["pid"])
        assert stranger.poll() is None
        left = next(line for line in words(stopper) if line.startswith("left alone: pid"))
        assert f"pid {stranger.pid} of user" in left
        assert left.endswith("has /dev/nvidia0 open")
    finally:
        end(stranger)


def test_a_holder_of_another_instance_is_no_stranger(home: Path, sim: Any) -> None:
    files = with_cards(home, sim, [0])
    start(home, holding(files))
    with_cards(home, sim, [1], index=1)
    other = start(home, holding(files), index=1)  # it has the files of all cards open, as many programs do
    for pid in [p.pid for p in proc.processes().values() if p.sid == other["keeper"]["pid"]]:
        sim.memory(pid, 0)
    stopper = stopped(home, indexes=[0])
    assert alive(other["leader"]["pid"])
    assert any(line.startswith("left alone of another instance of this service: pid") for line in words(stopper))


def test_a_tool_that_hangs_bounds_no_stop_and_is_for_an_admin(home: Path, sim: Any) -> None:
    state = start(home, holding(with_cards(home, sim, [0])))
    sim.set("hang")
    began = time.monotonic()
    result = run.stop_service(str(home), SERVICE, options={**SOON, "memory_s": 1})
    assert time.monotonic() - began < 30
    assert not alive(state["leader"]["pid"])
    assert result["failed"]
    assert "nvidia-smi hangs" in result["msg"]


def test_a_tool_that_fails_for_a_reason_of_its_own_is_said_and_no_failure(home: Path, sim: Any) -> None:
    start(home, holding(with_cards(home, sim, [0])))
    sim.set("version_mismatch")
    stopper = stopped(home)
    assert any("unchecked: its memory could not be looked at" in line for line in words(stopper))


def test_a_worker_that_stopped_being_in_the_session_is_found_and_ended_before_the_memory_is_judged(home: Path, sim: Any) -> None:
    files = with_cards(home, sim, [0])
    runtime = home / "runtime"
    runtime.mkdir()
    subprocess.run(["cp", "/bin/sleep", str(runtime / "sleep")], check=True)
    state = start(home, holding(files, f"setsid {runtime}/sleep 300 &\ntrap 'exit 0' INT\nwhile :; do sleep 0.1; done\n"))
    place = cards.place(str(home), SERVICE)

    def away() -> list[int]:
        table = proc.processes()
        return [
            pid for pid in cards.holders(place, table) if table[pid].sid not in (state["keeper"]["pid"], state["leader"]["pid"])
        ]

    until(lambda: any(proc.command(pid) == f"{runtime}/sleep 300" for pid in away()), 5, "it has a session of its own")
    moved = next(pid for pid in away() if proc.command(pid) == f"{runtime}/sleep 300")
    stopper = stopped(home)
    assert moved in {s["pid"] for s in stopper.signalled}
    assert not alive(moved)


#: Where a worker's first thread was seen that nothing could end: it goes round inside the driver and never looks for a signal.
SPINS = [("uvm_spin_loop", "nvidia_uvm"), ("uvm_va_range_destroy", "nvidia_uvm"), ("do_exit", "")]


@pytest.fixture(params=["frozen", "deaf"])
def spinning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes a real process one that no signal ends and that the kernel shows in R inside a driver.

    `frozen`: the kernel's own freezer holds every signal back, SIGKILL too. `deaf`: the signals are taken, and go nowhere.
    """
    chosen: list[int] = []
    read, threads, frames, send = proc.read, proc.threads, proc.frames, signals.send
    group = Path(f"/sys/fs/cgroup/freezer/modelyard-spin-{os.getpid()}")
    if request.param == "frozen":
        try:
            group.mkdir()
        except OSError:
            pytest.skip("needs the freezer of cgroups version 1, and root")

    def in_r(process: Any) -> Any:
        spins = process is not None and process.state not in "ZX" and (process[0] in chosen)
        return process._replace(state="R") if spins else process

    def sent(pid: int, start: int, number: int) -> str:
        return signals.SENT if pid in chosen and request.param == "deaf" else send(pid, start, number)

    monkeypatch.setattr(proc, "read", lambda *more: in_r(read(*more)))
    monkeypatch.setattr(proc, "threads", lambda *more: [in_r(thread) for thread in threads(*more)])
    monkeypatch.setattr(proc, "frames", lambda pid, *more: SPINS if pid in chosen else frames(pid, *more))
    monkeypatch.setattr(signals, "send", sent)

    def spin(pid: int) -> None:
        if request.param == "frozen":
            (group / "cgroup.procs").write_text(str(pid))
            (group / "freezer.state").write_text("FROZEN")
            until(lambda: read(pid).state == "D", 5, "it is frozen")
        chosen.append(pid)

    yield spin
    for pid in chosen:
        if request.param == "deaf":
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    chosen.clear()
    if request.param == "frozen":
        (group / "freezer.state").write_text("THAWED")

        def removed() -> bool:
            with contextlib.suppress(OSError):
                group.rmdir()
            return not group.exists()

        until(removed, 10, "the group is empty")


def test_a_worker_that_goes_round_in_the_driver_is_killed_once_and_handed_over_in_time(
    home: Path, sim: Any, spinning: Callable[[int], None]
) -> None:
    state = start(home, holding(with_cards(home, sim, [0]), STUBBORN))
    until(lambda: len(session_of(state["keeper"]["pid"])) >= 4, 5, "the worker runs")
    worker = next(p["pid"] for p in session_of(state["keeper"]["pid"]) if p["args"].startswith("bash -c"))
    nvidia_smi(sim)
    spinning(worker)
    began = time.monotonic()
    result = run.stop_service(str(home), SERVICE, options={**QUICK, "kill_s": 2, "memory_s": 60})
    took = time.monotonic() - began
    assert took < 50, "neither for its end nor for its memory is waited beyond the limit"
    assert [words.split()[0] for words in result["actions"] if f" to {worker} (" in words] == ["SIGTERM", "SIGKILL"]
    assert not any(words.startswith(f"SIGKILL to {state['keeper']['pid']} ") for words in result["actions"]), "it has to reap it"
    assert (result["failed"], result["stopped"]) == (True, False)
    assert f"{worker} bash (state R, user {proc.user_name(os.geteuid())}) did not end when killed" in result["msg"]
    # Where the worker is a real one it goes on, and begins a sleep now and then.
    assert {p["pid"] for p in result["left"] if p["comm"] != "sleep"} == {worker, state["keeper"]["pid"]}
    assert [v["verdict"] for v in result["cards"]] == ["held"]
    report = Path(result["needs_admin"], "report.txt").read_text()
    about = report[report.index(f"pid {worker} of user") : report.index("Cards")]
    assert "state R" in about
    assert "in the kernel: uvm_spin_loop < uvm_va_range_destroy < do_exit" in about
    assert "has open: /dev/nvidia0" in about
    assert f"pid {worker}" in report[report.index("Cards") : report.index("What was tried")]
    order = [
        report.index(words) for words in ("Save where they hang", "Serve from other cards", "Reset the cards", "Reboot, after")
    ]
    assert order == sorted(order)
    assert f"for p in {worker}; do sudo grep -H . /proc/$p/task/*/stack" in report
    known = layout.read_json(home / "services" / SERVICE / "needs_admin.json")
    assert (worker, "R") in {(p["pid"], p["state"]) for p in known["processes"]}
    again = run.stop_service(str(home), SERVICE, options={**QUICK, "kill_s": 1, "memory_s": 60})
    assert (again["failed"], worker in {p["pid"] for p in again["left"]}) == (True, True), "the next stop knows it again"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    yield folder
    run.stop_service(str(folder), SERVICE, options=QUICK)
    until(lambda: subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode == 0, 10, "unmounted")


def test_a_report_that_finds_no_room_is_part_of_the_answer(small: Path, sim: Any) -> None:
    start(small, holding(with_cards(small, sim, [0])))
    sim.set("memory_stays", card=0)
    fill = os.open(str(small / "fill"), os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(fill, b"x" * 4096)
    os.close(fill)
    result = run.stop_service(str(small), SERVICE, options=SOON)
    assert result["failed"]
    assert "could not be written whole" in result["msg"]
    assert "No space left on device" in result["msg"]
    assert "sudo nvidia-smi --gpu-reset -i 0" in result["report"]
    (small / "fill").unlink()


def test_a_half_ended_worker_on_a_card_is_ended_through_its_living_thread(home: Path, sim: Any) -> None:
    files = with_cards(home, sim, [0])
    half = (
        "import ctypes, threading, time\n"
        "ctypes.CDLL(None).prctl(15, b'VLLM::Worker_TP', 0, 0, 0)\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\nctypes.CDLL(None).pthread_exit(None)"
    )
    (home / "half.py").write_text(half)
    state = start(home, holding(files, f"{sys.executable} {home}/half.py &\nwhile :; do sleep 0.1; done\n"))
    table: dict[int, proc.Process] = {}

    def half_ended() -> list[int]:
        table.update(proc.processes())
        return [p.pid for p in table.values() if p.sid == state["keeper"]["pid"] and proc.half_ended(p)]

    until(half_ended, 10, "its first thread has ended")
    pid = half_ended()[0]
    assert pid in cards.holders(cards.place(str(home), SERVICE), table)
    os.kill(state["leader"]["pid"], signal.SIGKILL)
    stopper = stopped(home)
    assert pid in {s["pid"] for s in stopper.signalled}
    assert cards.holders(cards.place(str(home), SERVICE), proc.processes()) == {}
