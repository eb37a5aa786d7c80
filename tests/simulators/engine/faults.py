"""Faults that strike an engine that serves: `faults.json` in the environment's folder, looked at with each request.

So they are switched on and off without a restart. What may stand in the file is in ../README.md.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

GETS = {"/health": "health", "/v1/models": "models", "/metrics": "metrics"}
PORT_EVERY_S = 0.1
TOKEN_S = 0.05  # of a request that generates without an end


def kind(path, body) -> str:
    """What a POST asks for; the file names faults after it."""
    if path != "/v1/chat/completions":
        return path.rpartition("/")[2]
    if body.get("stream"):
        return "stream"
    if body.get("response_format"):
        return "schema"
    if body.get("logprobs"):
        return "logprobs"
    contents = [message.get("content") for message in body.get("messages", ()) if isinstance(message, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return "image" if any(isinstance(part, dict) and part.get("type") == "image_url" for part in parts) else "chat"


class Faults:
    """Those of the instance at one port."""

    def __init__(self, port):
        self._path, self._port = Path(sys.prefix) / "faults.json", str(port)
        self._lock = threading.Lock()
        self._version, self._all, self._asked = None, {}, Counter()

    def now(self):
        """{kind: fault} at this moment."""
        with contextlib.suppress(OSError, ValueError):  # half written: in a moment it is whole
            stat = self._path.stat() if self._path.exists() else None
            version = stat and (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if version != self._version:
                found = json.loads(self._path.read_text(encoding="utf-8")) if stat else {}
                self._all = {**found, **found.get("ports", {}).get(self._port, {})}
                self._version = version
                self._asked.clear()
        return self._all

    def strike(self, what):
        """What is wrong with this request; empty for nothing. Its `do` is run, for the first that is struck."""
        with self._lock:
            fault = self.now().get(what) or {}
            self._asked[what] += 1
            count = self._asked[what] - int(fault.get("from", 1))
        if count < 0:
            return {}
        if count == 0 and fault.get("do"):
            # What it prints stands in the engine's log.
            subprocess.run(fault["do"], shell=True, stdin=subprocess.DEVNULL, stdout=2, check=False)
        return fault

    def holds(self, what, how) -> bool:
        """Do such requests still hang?"""
        with self._lock:
            return (self.now().get(what) or {}).get("hang") == how

    def follow(self, listener) -> None:
        """Close the port and open it again, as the file says."""
        is_closed = False
        while True:
            time.sleep(PORT_EVERY_S)
            with self._lock:
                wanted = self.now().get("port") == "closed"
            if wanted and not is_closed:
                listener.shutdown(socket.SHUT_RDWR)  # it stays bound
            elif is_closed and not wanted:
                listener.listen(128)
            is_closed = wanted


def hold(instance, what, how, is_open) -> None:
    """A request that is not answered, until the fault is over or, but for `stands`, the client has gone."""
    is_in_work = how != "lost"
    with instance.lock:
        instance.running += is_in_work
    try:
        while instance.faults.holds(what, how) and (how == "stands" or is_open()):
            time.sleep(TOKEN_S)
            with instance.lock:
                instance.generated += how == "generates"
    finally:
        with instance.lock:
            instance.running -= is_in_work
