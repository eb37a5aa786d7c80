"""The one entry of a service on a scenario's server, as clients and its admin meet it."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from container_site import ENGINE, ContainerSite

#: Asks once or many times, one after the other; prints a list of [status, backend].
ASK = """
import http.client, json, sys
port, count, fields = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
found = []
for _ in range(count):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 2, **fields}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found.append([answer.status, answer.getheader("X-Backend", "")])
    answer.read()
    connection.close()
print(json.dumps(found))
"""
STATUS = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/gateway/status", timeout=5).read().decode())
"""


@dataclass
class Load:
    """What came of the requests of a steady load; empty until it has ended."""

    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def lost(self) -> list[dict[str, Any]]:
        """Those that were accepted and not answered whole with 200."""
        return [one for one in self.requests if not one["refused"] and not (one["status"] == 200 and one["whole"])]

    @property
    def refused(self) -> list[float]:
        """When nobody listened."""
        return sorted(one["at"] for one in self.requests if one["refused"])

    @property
    def backends(self) -> Counter[str]:
        """How many each instance has answered."""
        return Counter(one["backend"] for one in self.requests if one["status"] == 200)


class Entry:
    """A gateway by its port and that of its admin."""

    def __init__(self, server: ContainerSite, service: str, port: int) -> None:
        self.server, self.service, self.port = server, service, port

    def ask(self, count: int = 1, **fields: Any) -> list[tuple[int, str]]:
        """(status, instance) of so many requests, one after the other."""
        said = self.server.must(["python3", "-c", ASK, str(self.port), str(count), json.dumps(fields)])
        return [(status, backend) for status, backend in json.loads(said)]

    def begin(self, **fields: Any) -> subprocess.Popen[str]:
        """One request that takes its time; it prints what `ask` reads. Returns at once."""
        command = [ENGINE, "exec", "--user", self.server.user, self.server.container, "python3", "-c", ASK, str(self.port), "1"]
        return subprocess.Popen([*command, json.dumps(fields)], stdout=subprocess.PIPE, text=True)

    def spread(self, count: int) -> dict[int, int]:
        """How many of so many requests each instance has answered, by index; all of them must have been."""
        seen = self.ask(count)
        assert {status for status, _ in seen} == {200}, seen
        return dict(sorted(Counter(int(backend.rpartition("/")[2]) for _, backend in seen).items()))

    def status(self) -> dict[int, dict[str, Any]]:
        """What our own gateway says of each instance, by index."""
        said = json.loads(self.server.must(["python3", "-c", STATUS, str(self.port + 1)]))
        return {int(one["name"].rpartition("/")[2]): one for one in said["backends"]}

    @contextmanager
    def load(self, workers: int = 3, **fields: Any) -> Iterator[Load]:
        """Steady requests for as long as the block lasts; `fields` of their bodies, else they are small."""
        program = (Path(__file__).parent / "load.py").read_text(encoding="utf-8")
        command = [ENGINE, "exec", "--interactive", "--user", self.server.user, self.server.container]
        command += ["python3", "-c", program, str(self.port), str(workers), json.dumps({"max_tokens": 60, **fields})]
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        found = Load()
        try:
            yield found
        finally:
            said, _ = running.communicate("", timeout=90)
            found.requests = json.loads(said)
        assert found.requests, "the load has asked nothing"
