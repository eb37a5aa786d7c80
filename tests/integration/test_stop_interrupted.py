"""Ctrl-C in each part of a stop, by hand and by the playbook: nothing is half written or held, the next stop does the rest."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import deployed
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from cases import always
from harness import ROOT, Site, alive, end, free_port, session_of, until
from simulators.install import install
from trees import QUICK, deployed_on_cards

NAME = "interrupted"
#: Obeys SIGTERM only, and not at once; has the card's file open. Both are noted in files beside it.
ENGINE = r"""
import os, signal, sys, time
words = sys.argv[1:]
place = words[words.index("--place") + 1]
device = open(words[words.index("--device") + 1])
def ends(*more):
    open(f"{place}/asked", "w").close()
    time.sleep(LATE_S)
    os._exit(0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, ends)
open(f"{place}/up", "w").close()
while True:
    time.sleep(60)
"""
LATE_S = 3
DRAIN = f"sleep {10**6 + os.getpid()}"
#: A disk on which each file of a report takes a second.
SLOW_DISK = r"""
import pathlib, time
write_text = pathlib.Path.write_text
def slowly(self, *more, **named):
    if "/evidence/" in str(self):
        pathlib.Path(PLACE, "writing").touch()
        time.sleep(1)
    return write_text(self, *more, **named)
pathlib.Path.write_text = slowly
"""


class Case:
    """One service that runs, how it is told to stop, and how far that has come."""

    def __init__(self, folder: Path, sim: Any, drain: bool) -> None:
        self.sim, self.place = sim, folder / "place"
        self.place.mkdir()
        self.site = Site(folder, [])
        self.site.home.mkdir()
        self.home = self.site.home
        words = ("--place", str(self.place), "--device", f"{sim.root}/dev/nvidia0")
        planned = deployed.service(self.home, NAME, free_port(), words=words)
        engine = f"#!{sys.executable}\n{ENGINE.replace('LATE_S', str(LATE_S))}"
        (self.home / "runtimes/stand-in/bin/vllm").write_text(engine)
        stop: dict[str, Any] = {"grace_s": 1, "term_s": 10, "memory_s": 30}
        if drain:
            stop.update(drain_command=f"sh -c 'touch {self.place}/draining; exec {DRAIN}'", drain_s=20)
        self.folder = deployed_on_cards(self.home, sim, [0], planned, **stop)
        request = layout.read_json(self.folder / layout.REQUEST_FILE)
        assert request is not None
        state = supervisor.start_once(self.folder, request, sys.executable)
        self.keeper, self.leader = state["keeper"]["pid"], state["leader"]["pid"]
        until((self.place / "up").exists, 10, "the engine is up")
        (self.place / "sitecustomize.py").write_text(SLOW_DISK.replace("PLACE", repr(str(self.place))))

    def has(self, name: str) -> Callable[[], bool]:
        """Has this file been made?"""
        return (self.place / name).exists

    def began_to_wait_for_memory(self) -> bool:
        """All processes are gone, and the tool has been asked since."""
        return session_of(self.keeper) == [] and not alive(self.leader)

    def begin(self, how: str) -> subprocess.Popen[str]:
        """Begin the stop, in a session of its own as at a terminal."""
        environment = {**os.environ, "PYTHONPATH": str(self.place), "ANSIBLE_NOCOLOR": "1"}
        if how == "stop.sh":
            words, cwd = [str(self.folder.parent / "stop.sh")], "/"
        else:
            self.site.services = [{"name": NAME, "model": {"id": "tiny", "path": "/nowhere"}}]
            self.site.variables = {
                "modelyard_sysroot": str(self.sim.root),
                "modelyard_tool_path": [str(self.sim.bin)],
                "modelyard_runtimes_dir": str(self.home / "runtimes"),
                "teardown_grace_s": 1,
            }
            ansible = str(Path(sys.executable).parent / "ansible-playbook")
            words, cwd = [ansible, "-i", str(self.site.inventory), "playbooks/teardown.yml"], str(ROOT)
        out = (self.place / f"{how}.out").open("w")
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            text=True,
            # A shell that runs the tests in the background lets them ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  there are no threads
        )

    def told(self, **stop: Any) -> None:
        """Change what service.json says about stops."""
        path = self.folder.parent / layout.SERVICE_FILE
        known = layout.read_json(path) or {}
        layout.write_json(path, {**known, "stop": {**known["stop"], **stop}})

    def said(self, how: str) -> str:
        """What it has printed."""
        return (self.place / f"{how}.out").read_text()

    def is_free(self) -> bool:
        """Does no stop hold the instance's folder?"""
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
        return True

    def half_written(self) -> list[str]:
        """Names of temporary files, and JSON files that are not whole."""
        found = [str(path) for path in self.home.rglob(".*.[0-9]*")]
        for path in [*self.home.rglob("services/**/*.json"), *self.home.rglob("evidence/**/*.json")]:
            try:
                json.loads(path.read_text())
            except ValueError:
                found.append(str(path))
        return found


@pytest.fixture
def case(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
    made = Case(tmp_path, install(tmp_path / "sim", "2x4090", python=sys.executable), drain=request.param == "draining")
    yield made
    made.sim.clear()
    run.stop_service(str(made.home), NAME, options=QUICK)


#: Part of the stop -> what shows that it has been reached.
PARTS: dict[str, Callable[[Case], Callable[[], bool]]] = {
    "draining": lambda case: case.has("draining"),
    "asked to end": lambda case: case.has("asked"),
    "waiting for memory": lambda case: case.began_to_wait_for_memory,
    "writing the report": lambda case: case.has("writing"),
}


def each_part(parts: Iterable[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("case", "part"), parts, indirect=["case"], ids=list(PARTS))


BOTH = [(part, part) for part in PARTS]


def reports(case: Case) -> list[Path]:
    return sorted(case.home.glob("evidence/*"))


def interrupt(case: Case, part: str, how: str) -> int:
    """Begin a stop, press Ctrl-C in this part of it; the exit status."""
    if part in ("waiting for memory", "writing the report"):
        case.sim.set("memory_stays", 20000, card=0)
    if part == "writing the report":
        case.told(memory_s=0)
    first = case.begin(how)
    try:
        until(PARTS[part](case), 120, f"{part}: {case.said(how)}")
        time.sleep(0.3)
        os.killpg(first.pid, signal.SIGINT)
        code = first.wait(30)
        until(case.is_free, 30, "the folder is free")
    finally:
        end(first)
    case.sim.clear()
    case.told(drain_command="")
    return code


def check_what_is_left(case: Case, part: str) -> None:
    """After a stop that was interrupted in this part."""
    assert case.half_written() == []
    assert alive(case.leader) == (part in ("draining", "asked to end"))
    drains = subprocess.run(["pgrep", "-f", f"^{DRAIN}$"], capture_output=True, text=True, check=False).stdout
    assert drains == "", "the drain command has ended with the stop"
    if part != "writing the report":
        assert reports(case) == []
        return
    (report,) = reports(case)
    assert (report / "report.txt").read_text().endswith("remove that file.\n")
    assert layout.read_json(case.folder.parent / layout.NEEDS_ADMIN)["report"] == str(report)


def check_the_next(case: Case, part: str, how: str) -> None:
    """The next stop does what is left to do, and finds no trace of the first that is in its way."""
    second = case.begin(how)
    assert second.wait(120) == 0, case.said(how)
    assert "stopped and verified in " in case.said(how)
    assert session_of(case.keeper) == []
    assert not (case.folder.parent / layout.NEEDS_ADMIN).exists()
    assert len(reports(case)) == (part == "writing the report")
    assert not (case.home / "lock").exists()


@each_part(BOTH)
def test_ctrl_c_in_stop_sh(case: Case, part: str) -> None:
    code = interrupt(case, part, "stop.sh")
    said = case.said("stop.sh")
    assert "Traceback" not in said
    if part == "writing the report":  # the last step: it is carried out
        assert code == 1, said
        assert "needs an admin: card 0 (0000:01:00.0): 20004 MiB in use" in said
    else:
        assert code == 130, said
        assert "Run the stop again, it goes on from there; status.sh shows what runs" in said
    check_what_is_left(case, part)
    check_the_next(case, part, "stop.sh")


@each_part(always(2, BOTH))
def test_ctrl_c_in_the_teardown(case: Case, part: str) -> None:
    assert interrupt(case, part, "teardown") != 0
    assert "User interrupted execution" in case.said("teardown")
    assert (case.home / "lock").exists(), "nobody was left to give it back"
    check_what_is_left(case, part)
    check_the_next(case, part, "teardown")
