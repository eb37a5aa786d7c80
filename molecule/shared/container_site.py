"""A scenario's server, as tests use it: set faults, run commands inside, run the project's playbooks against it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from harness import ROOT, Run, Site, until

ENGINE = os.environ.get("CONTAINER_ENGINE", "podman")
INVENTORY = ROOT / "molecule" / "shared" / "inventory"
#: Where the simulated cards are installed on the server. It is the sysroot, too.
SIM = PurePosixPath("/sim")


@dataclass
class Look:
    """What a preflight saw, from its JSON file."""

    run: Run
    findings: list[dict[str, str]]  # id, severity, where, what, do
    plan: dict[str, Any] | None
    survey: dict[str, Any] | None

    @property
    def ids(self) -> list[str]:
        """Ids of the findings, each once, in the order of the alphabet."""
        return sorted({finding["id"] for finding in self.findings})

    @property
    def serious(self) -> list[str]:
        """Ids of what refuses or warns, each once, in the order of the alphabet."""
        return sorted({finding["id"] for finding in self.findings if finding["severity"] != "note"})

    def text(self, id: str) -> str:
        """Place, what was found and advice of all findings of one id; it must have been found."""
        found = [f"{f['where']}: {f['what']} -> {f['do']}" for f in self.findings if f["id"] == id]
        assert found, f"{id} was not found, but {self.ids}"
        return " | ".join(found)


@dataclass
class ContainerSite(Site):
    """`services` and `variables` come on top of the scenario's group_vars, anew for each run of a playbook."""

    scenario: str = ""

    def __post_init__(self) -> None:
        """Find the scenario's one host, and who playbooks work as there."""
        hosts = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))[self.scenario]["hosts"]
        ((self.host, values),) = hosts.items()
        self.user: str = values["ansible_user"]

    @property
    def container(self) -> str:
        """Name of the container; molecule/shared/inventory has the same rule."""
        return f"{self.host}-{hashlib.sha1(str(ROOT.resolve()).encode()).hexdigest()[:8]}"

    @property
    def home(self) -> PurePosixPath:  # type: ignore[override]
        """The project's folder on the server."""
        return PurePosixPath("/root" if self.user == "root" else f"/home/{self.user}") / "modelyard"

    @property
    def inventory(self) -> Path:
        """What comes on top of the scenario's inventory, written anew before each run."""
        path = self.folder / "hosts.yml"
        values: dict[str, Any] = {"modelyard_home": str(self.home), **self.variables}
        if self.services:
            values["modelyard_services"] = self.services
        path.write_text(yaml.safe_dump({"all": {"hosts": {self.host: values}}}), encoding="utf-8")
        return path

    def variant(self, **changes: Any) -> dict[str, Any]:
        """The scenario's service with other values; a mapping changes only what it names."""
        text = (INVENTORY / "group_vars" / f"{self.scenario}.yml").read_text(encoding="utf-8")
        (service,) = yaml.safe_load(text)["modelyard_services"]
        merged = {k: {**service.get(k, {}), **v} if isinstance(v, dict) else v for k, v in changes.items()}
        return {**service, **merged}

    def play(self, playbook: str, arguments: str = "", **extra: Any) -> Run:
        """Run a playbook against this server, to its end. Seconds: about 2."""
        # The runner names `inventory` after these, and what comes later wins.
        return super().play(playbook, f"-i {INVENTORY} --limit {self.host} {arguments}", **extra)

    @property
    def inventories(self) -> list[Path]:
        """The scenario's own comes first: variables of it name its folder, and the first one is a host's `inventory_dir`."""
        return [INVENTORY, self.inventory]

    def begin(self, playbook: str, arguments: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start a playbook in a session of its own and return at once."""
        return super().begin(playbook, ("--limit", self.host, *arguments))

    def drift(self, **extra: Any) -> list[tuple[str, str]]:
        """(kind, what) of each line that the status prints."""
        path = self.folder / "status.json"
        run = self.play("status", status_json=str(path), **extra)
        assert run.rc == 0, run.output[-3000:]
        host = json.loads(path.read_text(encoding="utf-8"))["hosts"][self.host]
        lines = [*host["drift"], *(line for service in host["services"] for line in service["drift"])]
        return [(line["kind"], line["what"]) for line in lines]

    def look(self, **extra: Any) -> Look:
        """Run the preflight. What it refuses is for the test to judge."""
        path = self.folder / "look.json"
        path.unlink(missing_ok=True)
        run = self.play("preflight", preflight_json=str(path), **extra)
        assert path.exists(), run.output[-3000:]
        host = json.loads(path.read_text(encoding="utf-8"))["hosts"][self.host]
        return Look(run, host["findings"], host["plan"], host["survey"])

    def run(self, argv: Sequence[str], user: str = "", text: str = "", limit_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as `user` (empty: the playbooks'), with `text` as its input. Its exit status is not judged."""
        command = [ENGINE, "exec", "--interactive", "--user", user or self.user, self.container, *argv]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=limit_s, check=False)

    def must(self, argv: Sequence[str], user: str = "", text: str = "") -> str:
        """Like `run`, but fail unless it exits with 0. What it printed."""
        done = self.run(argv, user, text)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def restart(self) -> None:
        """Shut the server down as one does, and boot it again. Seconds: about 10."""
        subprocess.run([ENGINE, "restart", "--time=30", self.container], capture_output=True, check=True, timeout=90)
        until(
            lambda: self.run(["systemctl", "is-system-running"], "root").stdout.strip() in ("running", "degraded"), 60, "a boot"
        )

    def sim(self, *arguments: str) -> str:
        """Change the simulated cards, as root: `sim("set", "lost", "--card", "1")`, `sim("reset")`. See tests/simulators."""
        return self.must([str(SIM / "bin" / "simctl"), *arguments], user="root")

    @contextmanager
    def file(self, path: str, text: str) -> Iterator[None]:
        """A file that root has written, and what was there before afterwards."""
        before = self.run(["cat", path], user="root")
        self.must(["mkdir", "-p", str(PurePosixPath(path).parent)], user="root")
        self.must(["tee", path], user="root", text=text)
        try:
            yield
        finally:
            if before.returncode == 0:
                self.must(["tee", path], user="root", text=before.stdout)
            else:
                self.must(["rm", "-f", path], user="root")

    def state(self, service: str, index: int = 0) -> dict[str, Any] | None:
        """What the keeper wrote about the newest start; None before the first."""
        done = self.run(["cat", str(self.home / "services" / service / f"instance-{index}" / "run" / "state.json")])
        return json.loads(done.stdout) if done.returncode == 0 else None

    def steps(self, service: str) -> list[tuple[str, int, bool]]:
        """(step, instance, passed) of what each accepted instance was accepted by, in order."""
        accepted = json.loads(self.must(["cat", str(self.home / "services" / service / "accepted.json")]))["instances"]
        results = {path: json.loads(self.must(["cat", path])) for path in {one["result"] for one in accepted}}
        return [
            (step["id"], step["instance"], step["passed"])
            for one in accepted
            for step in results[one["result"]]["steps"]
            if step["instance"] == one["index"]
        ]

    def leaders(self, service: str, count: int) -> list[dict[str, int]]:
        """Pid and start time of each instance's API server, as the keepers have written them down."""
        files = [str(self.home / "services" / service / f"instance-{index}" / "run" / "state.json") for index in range(count)]
        # One command: each takes a third of a second.
        texts = self.must(["bash", "-c", 'for f; do cat "$f"; printf "\\0"; done', "bash", *files]).split("\0")
        return [json.loads(text)["leader"] for text in texts if text]

    def comms(self, service: str, index: int = 0) -> list[str]:
        """Names of the living processes in the session of an instance's keeper, as ps has them."""
        state = self.state(service, index)
        assert state is not None
        shown = self.run(["ps", "-o", "stat=,comm=", "--sid", str(state["keeper"]["pid"])], user="root").stdout.splitlines()
        return sorted(line.split(None, 1)[1] for line in shown if not line.startswith("Z"))

    def put_back(self) -> None:
        """All services down, no home, all cards well, and what the scenario's inventory says."""
        self.services, self.variables = [], {}
        runs = f"""grep -qs '"ended": null' {self.home}/services/*/instance-*/run/state.json || pgrep VLLM"""
        units = "rm -f /etc/systemd/system/modelyard-* /home/*/.config/systemd/user/modelyard-*; systemctl daemon-reload"
        if self.run(["bash", "-c", runs], user="root").returncode == 0:
            run = self.play("teardown")
            assert run.rc == 0, run.output[-3000:]
        self.must(["bash", "-c", f"rm -rf {self.home}; {units}"], user="root")
        self.sim("reset")

    @contextmanager
    def process(self, argv: Sequence[str], user: str = "", holds: Sequence[str] = (), port: int = 0) -> Iterator[int]:
        """A process in a session of its own, with the files in `holds` open, and once it listens where it has a port.

        Its pid inside; it is ended afterwards.
        """
        # The files are opened before there is a process, so that nobody needs to wait for them. Its parent is process 1.
        script = (
            'n=$1; shift; for f in "${@:1:n}"; do exec {fd}<>"$f"; done; shift "$n"; '
            'said=$(mktemp); setsid "$@" </dev/null >"$said" 2>&1 & echo "$! $said"'
        )
        shown, said = self.must(["bash", "-c", script, "bash", str(len(holds)), *holds, *argv], user).split()
        pid = int(shown)
        try:
            if port:
                until(lambda: self._listens(port, pid, said), 20, f"it listens on {port}")
            yield pid
        finally:
            self.run(["kill", "-9", str(pid)], user="root")
            self.run(["rm", "-f", said], user="root")

    def _listens(self, port: int, pid: int, said: str) -> bool:
        lives = self.run(["kill", "-0", str(pid)], user="root").returncode == 0
        assert lives, f"it ended before it listened on {port}: {self.run(['cat', said], user='root').stdout}"
        return self.run(["ss", "-Hltn", f"sport = :{port}"]).stdout.strip() != ""
