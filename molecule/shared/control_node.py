"""A scenario's server as a control node: playbooks and `modelyard` run inside, as an admin runs them, over SSH at itself."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from container_site import ENGINE, INVENTORY, ContainerSite

CHECKOUT = "/opt/modelyard"
BIN = f"{CHECKOUT}/.venv/bin"
INVENTORIES = "/etc/modelyard"
SHOWN = "LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,TimersCalendar"
HOST = "server1"
Done = subprocess.CompletedProcess[str]
LOAD = (Path(__file__).parent / "load.py").read_text(encoding="utf-8")


class ControlNode:
    """`server`: the container. Its users are named in each call; inventories lie below INVENTORIES."""

    def __init__(self, server: ContainerSite) -> None:
        self.server = server
        group = INVENTORY / "group_vars" / f"{server.scenario}.yml"
        values = yaml.safe_load(group.read_text(encoding="utf-8"))
        self.values: dict[str, Any] = {key: value for key, value in values.items() if not key.startswith("scenario_")}
        self.values |= {"ansible_host": "127.0.0.1", "ansible_user": "llm", "ansible_managed": "Written by Modelyard"}
        self.values |= {"modelyard_sysroot": "/sim", "card_test_enabled": False}
        # Some of these engines' numbers are those of real cards, and this machine is small.
        self.values["modelyard_checks"] = {"PF-MEMORY": "note", "PF-DISK": "note"}

    @property
    def service(self) -> dict[str, Any]:
        """The one service of the inventory."""
        found: dict[str, Any] = self.values["modelyard_services"][0]
        return found

    def sh(self, script: str, user: str = "root", limit_s: float = 90) -> Done:
        """A script of the shell inside. Its exit status is not judged."""
        return self.server.run(["bash", "-c", script], user, limit_s=limit_s)

    def must(self, script: str, user: str = "root") -> str:
        """Like `sh`, but fail unless it exits with 0. What it printed."""
        done = self.sh(script, user)
        assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str, mode: str = "0644") -> str:
        """A file for everybody to read. Its path."""
        self.server.must(["bash", "-c", f"mkdir -p $(dirname {path}); cat > {path}; chmod {mode} {path}"], "root", text)
        return path

    def inventory(self, name: str, more: Mapping[str, Any] | None = None, **acceptance: Any) -> str:
        """An inventory that wants the service; `acceptance`: what it asks for otherwise; `more`: further hosts. Its folder."""
        service = {**self.service, "acceptance": {**self.service["acceptance"], **acceptance}}
        hosts = {HOST: {**self.values, "modelyard_services": [service]}, **(more or {})}
        self.write(f"{INVENTORIES}/{name}/hosts.yml", yaml.safe_dump({"all": {"hosts": hosts}}))
        return f"{INVENTORIES}/{name}"

    def play(self, playbook: str, words: str = "", inventory: str = "lab", user: str = "root") -> Done:
        """Run a playbook of the checkout to its end, with an environment as small as that of a login without a terminal."""
        command = f"{BIN}/ansible-playbook -i {INVENTORIES}/{inventory} playbooks/{playbook}.yml {words}"
        return self.sh(f"cd {CHECKOUT} && {command}", user, limit_s=180)

    def schedule(self, inventory: str = "lab", user: str = "root", check: bool = False, **wanted: Any) -> tuple[bool, str]:
        """(did it change something, what it printed) of playbooks/schedule.yml, which must succeed. `wanted`: its variables."""
        given = json.dumps({f"schedule_{key}": value for key, value in wanted.items()})
        done = self.play("schedule", f"--diff {'--check' if check else ''} -e {shlex.quote(given)}", inventory, user)
        assert done.returncode == 0, done.stdout + done.stderr
        return "changed=0" not in done.stdout, done.stdout

    def records(self, state: str) -> list[dict[str, Any]]:
        """The records of a state folder, oldest first."""
        code = "import json,sys,pathlib as p; print(json.dumps([json.loads(f.read_text()) for f in "
        code += "sorted(p.Path(sys.argv[1]).glob('runs/*.json'))]))"
        found: list[dict[str, Any]] = json.loads(self.server.must(["python3", "-c", code, state], "root"))
        return found

    def unit(self, name: str, user: str = "root") -> dict[str, str]:
        """What systemd says of a unit: of the system, or of that user's own."""
        own = "" if user == "root" else "XDG_RUNTIME_DIR=/run/user/$(id -u) "
        flag = "" if user == "root" else "--user"
        shown = self.must(f"{own}systemctl {flag} show -p {SHOWN} {name}", user)
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)

    @contextmanager
    def users(self, port: int, workers: int, **fields: Any) -> Iterator[list[dict[str, Any]]]:
        """So many users who ask one instance without a pause; at the end the list holds what came of each request (load.py)."""
        command = [ENGINE, "exec", "--interactive", "--user", "llm", self.server.container]
        command += ["python3", "-c", LOAD, str(port), str(workers), json.dumps(fields)]
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        found: list[dict[str, Any]] = []
        try:
            yield found
        finally:
            said, _ = running.communicate("", timeout=90)
            found += json.loads(said)
        print(f"{len(found)} requests of users", file=sys.stderr)

    @contextmanager
    def halted(self, index: int) -> Iterator[None]:
        """An instance that does not answer: its processes are halted, and go on afterwards."""
        state = self.server.state(self.service["name"], index)
        assert state is not None
        session = state["leader"]["pid"]
        self.must(f"kill -STOP $(ps -o pid= --sid $(ps -o sid= -p {session}))")
        try:
            yield
        finally:
            self.must(f"kill -CONT $(ps -o pid= --sid $(ps -o sid= -p {session}))")
