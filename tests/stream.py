"""A client with a long answer open, in a process of its own.

usage: stream.py PORT TOKENS [again]      (the API key, if any, in KEY; prints how it ended as JSON; again: until it is killed)
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from footprint import WORKER, Instance
from harness import until


@dataclass
class Answer:
    """How a stream ended."""

    finish_reason: str = ""
    whole: bool = False  # the closing [DONE] came


class Stream:
    """One streamed chat of a fixed number of tokens."""

    def __init__(self, port: int, tokens: int, key: str = "", again: bool = False) -> None:
        command = [sys.executable, __file__, str(port), str(tokens), *(["again"] if again else [])]
        self.process = subprocess.Popen(command, env={**os.environ, "KEY": key}, stdout=subprocess.PIPE, text=True)

    def answer(self, limit_s: float) -> Answer:
        """Wait until it has ended, or fail."""
        try:
            said, _ = self.process.communicate(timeout=limit_s)
        finally:
            self.process.kill()
        return Answer(**json.loads(said))


def held(instance: Instance, tokens: int, key: str = "") -> Stream:
    """A stream that is open for certain: one worker of the instance is held (SIGSTOP) before the client asks."""
    instance.signal(WORKER, signal.SIGSTOP, count=1)
    stream = Stream(instance.port, tokens, key)
    until(lambda: connections(instance.port) > 0, 30, "the client has asked")
    time.sleep(1)  # and the server has read it
    return stream


def connections(port: int) -> int:
    """How many clients have a connection to that port."""
    rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return sum(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "01" for row in rows)


def read(port: int, tokens: int, key: str) -> Answer:
    """Ask and read to the end, or to where it is cut off."""
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "ignore_eos": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    answer = Answer()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError), contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps({**chat, "stream": True}), headers)
        for line in connection.getresponse():
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                answer.whole = True
                break
            choices = json.loads(line[6:]).get("choices") or [{}]
            answer.finish_reason = choices[0].get("finish_reason") or answer.finish_reason
    return answer


if __name__ == "__main__":
    asked = (int(sys.argv[1]), int(sys.argv[2]), os.environ["KEY"])
    said = read(*asked)
    while said.whole and sys.argv[3:] == ["again"]:
        said = read(*asked)
    print(json.dumps(vars(said)))
