"""A deployed service that is spoilt while it serves, and what the acceptance says about it then.

The engines are stand-ins and look at a file for their faults with each request, so a fault comes and goes without a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from container_site import ContainerSite
from harness import Run

FAULTS = "/opt/stand-in/faults.json"
#: What the services of these tests ask for. It may stand in no output and in no evidence.
KEY = "spoilt-secret-5d8e21f0a7"
#: Files of each folder of evidence, besides those of the instances.
FILES = {"verdicts.json", "replies.json", "processes.json", "cards.json", "kernel.log", "counters.json", "manifest.json"}
LOOK = """
import json, pathlib, sys
home, name, key = sys.argv[1:]
base = pathlib.Path(home, "services", name)
read = lambda path: json.loads(path.read_text()) if path.exists() else {}
folders = sorted(pathlib.Path(home).glob("evidence/*"))
files = [path for folder in folders for path in folder.iterdir()]
states = [read(path) for path in sorted(base.glob("instance-*/run/state.json"))]
print(json.dumps({
    "result": read(max((base / "acceptance").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)),
    "accepted": [one["index"] for one in read(base / "accepted.json").get("instances", [])],
    "evidence": {folder.name: [path.name for path in folder.iterdir()] for folder in folders},
    "leaking": [str(path) for path in files if key in path.read_text(errors="replace")],
    "leaders": [state["leader"] for state in states],
    "keepers": [state["keeper"]["pid"] for state in states],
}))
"""


@dataclass(frozen=True)
class Fault:
    """What is wrong, and what must be said: the step, the cause, words of the message, what to do next, whether to restart.

    `engine`: for faults.json.  `simctl`: changes of the cards, a line of words each; `undo` takes them back, and what an engine's
    `do` has changed.  `steps`: those to ask for, else all.  `reason`: in the name of the evidence, where it is not the step.
    """

    step: str
    cause: str
    words: str
    next: str
    restart: bool = False
    engine: dict[str, Any] = field(default_factory=dict)
    simctl: Sequence[str] = ()
    undo: Sequence[str] = ()
    steps: Sequence[str] = ()
    reason: str = ""

    def about(self, pids: Sequence[str]) -> Fault:
        """The same about these processes, which it calls PID0, PID1 ..."""
        text = json.dumps(asdict(self))
        for place, pid in enumerate(pids):
            text = text.replace(f"PID{place}", pid)
        return Fault(**json.loads(text))


def table(path: Path) -> dict[str, Fault]:
    """The faults of a file, by what they are called."""
    return {name: Fault(**values) for name, values in yaml.safe_load(path.read_text(encoding="utf-8")).items()}


@dataclass
class Said:
    """A run of the acceptance, and what it left on the host. `new`: the folders of evidence that it made."""

    run: Run
    seconds: float
    result: dict[str, Any]
    accepted: list[int]
    evidence: dict[str, list[str]]
    new: list[str]
    leaking: list[str]
    leaders: list[dict[str, int]]
    keepers: list[int]

    def of(self, index: int) -> list[tuple[str, str]]:
        """(step, verdict) of an instance, in order."""
        return [(step["id"], step["verdict"]) for step in self.result["steps"] if step["instance"] == index]

    def last(self, index: int) -> dict[str, Any]:
        """The last step that an instance was asked for."""
        found: dict[str, Any] = [step for step in self.result["steps"] if step["instance"] == index][-1]
        return found


class Spoilt:
    """One service of a server."""

    def __init__(self, server: ContainerSite, name: str) -> None:
        self.server, self.name = server, name
        self.seen: set[str] = set()
        server.variables["modelyard_api_keys"] = {name: KEY}
        run = server.play("deploy")
        assert run.rc == 0, run.output[-4000:]
        self.leaders = self.look()["leaders"]

    def look(self) -> dict[str, Any]:
        """What the host has of it now."""
        found: dict[str, Any] = json.loads(
            self.server.must(["python3", "-c", LOOK, str(self.server.home), self.name, KEY], user="root")
        )
        return found

    def accept(self, arguments: str = "", **extra: Any) -> Said:
        """Play the acceptance. Neither its output nor the evidence may hold the key."""
        run = self.server.play("acceptance", arguments, **extra)
        found = self.look()
        new = sorted(set(found["evidence"]) - self.seen)
        self.seen.update(new)
        assert KEY not in run.output
        assert found["leaking"] == []
        return Said(run, run.seconds, new=new, **found)

    @contextmanager
    def engine(self, faults: dict[str, Any]) -> Iterator[None]:
        """Engines with these faults."""
        if faults:
            self.server.must(["tee", FAULTS], user="root", text=json.dumps(faults))
        try:
            yield
        finally:
            if faults:
                self.server.must(["rm", "-f", FAULTS], user="root")

    @contextmanager
    def spoilt(self, fault: Fault) -> Iterator[None]:
        """All that a fault names."""
        with self.engine(fault.engine):
            try:
                for words in fault.simctl:
                    self.server.sim(*words.split())
                yield
            finally:
                for words in fault.undo:
                    self.server.sim(*words.split())

    def cores(self) -> list[str]:
        """Pid of each instance's EngineCore, in their order."""
        shown = self.server.must(["ps", "-eo", "pid=,sid=,comm="], user="root").splitlines()
        found = {line.split()[1]: line.split()[0] for line in shown if line.endswith("VLLM::EngineCor")}
        return [found[str(keeper)] for keeper in self.look()["keepers"]]

    def answers(self, port: int) -> bool:
        """Does an instance say that it is well?"""
        code = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/health', timeout=5)"
        return self.server.run(["python3", "-c", code]).returncode == 0


def holds_to(fault: Fault, said: Said, name: str, ladder: list[str], index: int = 0) -> None:
    """The run says what this fault is, and nothing but that."""
    output, last = said.run.output, said.last(index)
    assert said.run.rc != 0, output[-3000:]
    assert (last["id"], last["verdict"], last["cause"], last["restart"]) == (fault.step, "fail", fault.cause, fault.restart), last
    before = ladder[: ladder.index(fault.step)]
    assert [(step, verdict) for step, verdict in said.of(index) if verdict != "skipped"][:-1] == [
        (step, "pass") for step in before
    ], "all before it were asked and passed, and none after it was asked"
    assert fault.words in last["detail"]
    assert fault.next in last["next"]
    assert f"{name} was not accepted: step {fault.step} failed on instance {index}: " in output
    assert last["detail"].rstrip(".") in output
    assert ("A restart of the instance may help after that." if fault.restart else "A restart would not help.") in output
    assert "The service was left as it is." in output
    (folder,) = said.new
    assert folder.endswith(f"-{name}-{fault.reason or f'failed_{fault.step}'}")
    assert set(said.evidence[folder]) >= FILES
    assert f"evidence/{folder}" in output
    assert index not in said.accepted
