"""The diagnostic window on the host: send requests at the same moment, and watch the engine meanwhile. Changes nothing by itself.

Watched, about once a second and sooner at the beginning: the engine's counters, the state of each of its processes, its cards;
afterwards what its log and the kernel's have got.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge import engine_log
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import cards, engine_metrics, http, kernel_log, probe

SAMPLE_S = 1.0
#: The first looks come sooner: short requests are over within a second.
FIRST_S = (0.2, 0.3, 0.5)
#: Vendors' tools wake cards up, and some crash when they are asked often.
CARDS_S = 2.0
#: A death can show a moment after the last answer.
SETTLE_S = 4.0
KERNEL_LIMIT_S = 1.0
#: What is kept of a log, and what is read of it at most.
LOG_BYTES, READ_BYTES = 256 * 1024, 4 * 2**20
TICKS = os.sysconf("SC_CLK_TCK")


class Watched:
    """An instance, as its keeper has written it down."""

    def __init__(self, home: str, service: str, index: int, names: Mapping[str, str], backends: Mapping[str, Any], sysroot: str):
        self.home, self.service, self.names, self.backends, self.sysroot = home, service, names, backends, sysroot
        self.state = layout.state(layout.instance_dir(home, service, index))
        request: Mapping[str, Any] = self.state["request"] if self.state else {"host": "", "port": 0}
        self.address = (str(request["host"]), int(request["port"]))
        self._cards: List[Dict[str, Any]] = []
        self._cards_at = float("-inf")

    def counters(self) -> Optional[Dict[str, float]]:
        """Of /metrics; None when it does not answer."""
        return engine_metrics.ask(self.address, self.names)

    def pids(self) -> List[int]:
        """Its processes."""
        found: List[int] = probe.processes(self.home, self.service, self.state)["pids"] if self.state else []
        return found

    def cards(self) -> List[Dict[str, Any]]:
        """Memory and health of the cards of its kind; of some seconds ago when they were asked just now."""
        if self.backends and time.monotonic() - self._cards_at > CARDS_S:
            found, _, _ = cards.look(self.backends, self.sysroot, lambda paths: {})
            keys = ("index", "memory_used_mib", "utilization_pct", "health")
            self._cards = [{key: card.get(key) for key in keys} for kind in found.values() for card in kind]
            self._cards_at = time.monotonic()
        return self._cards

    def kernel(self) -> Dict[str, Any]:
        """The kernel's log, as survey.kernel_log reads it."""
        place = kernel_log.KMSG if self.sysroot in ("", "/") else self.sysroot.rstrip("/") + kernel_log.KMSG
        return kernel_log.read(KERNEL_LIMIT_S, bool(self.backends), place)


def look(watched: Watched) -> Dict[str, Any]:
    """Is it there, and does it do anything for others? Two looks at its counters, a second apart."""
    if watched.state is None:
        return {"started": False, "alive": False, "health": 0, "counters": [None, None], "log": "", "fatal": [], "sample": {}}
    first = watched.counters()
    time.sleep(SAMPLE_S)
    return {
        "started": True,
        "alive": layout.leader_alive(watched.state),
        "health": http.status(watched.address, "/health"),
        "counters": [first, watched.counters()],
        "log": watched.state["log"],
        "fatal": engine_log.fatal_lines(_log(watched.state["log"], None)),
        "sample": sample(watched, watched.pids(), 0.0),
    }


def ask(watched: Watched, bodies: Sequence[Dict[str, Any]], key: str, limit_s: float) -> Dict[str, Any]:
    """Send all requests at the same moment and watch until each is answered or its time is up, and a little longer.

    {answers: [as survey.http has them], samples, log (what it has written meanwhile), fatal, alive, health, kernel, kernel_why}
    """
    assert watched.state is not None
    log, pids = watched.state["log"], watched.pids()
    offset = Path(log).stat().st_size if Path(log).exists() else 0
    known = {event["line"] for event in watched.kernel()["events"]}
    answers: List[Dict[str, Any]] = [{"status": 0, "body": None, "error": "not sent", "seconds": 0.0} for _ in bodies]
    gate = threading.Barrier(len(bodies))

    def send(place: int) -> None:
        gate.wait()
        answers[place] = http.request(watched.address, "POST", "/v1/chat/completions", bodies[place], key, limit_s)

    threads = [threading.Thread(target=send, args=(place,), daemon=True) for place in range(len(bodies))]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    samples = [sample(watched, pids, 0.0)]
    settled = None
    while settled is None or time.monotonic() < settled:
        taken = len(samples) - 1
        until = time.monotonic() + (FIRST_S[taken] if taken < len(FIRST_S) else SAMPLE_S)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if settled is None and not any(thread.is_alive() for thread in threads):
            settled = time.monotonic() + SETTLE_S
        elif settled is not None:
            time.sleep(SAMPLE_S)
        samples.append(sample(watched, pids, time.monotonic() - began))
    kernel, text = watched.kernel(), _log(log, offset)
    return {
        "answers": answers,
        "samples": samples,
        "log": text[-LOG_BYTES:],
        "fatal": engine_log.fatal_lines(text),
        "alive": layout.leader_alive(watched.state),
        "health": http.status(watched.address, "/health"),
        "kernel": [event["line"] for event in kernel["events"] if event["line"] not in known],
        "kernel_why": kernel["why"],
        "seconds": round(time.monotonic() - began, 2),
    }


def sample(watched: Watched, pids: Sequence[int], at: float) -> Dict[str, Any]:
    """One look: counters (None for no answer), processes and cards."""
    return {
        "at": round(at, 2),
        "counters": watched.counters(),
        "processes": [process(pid) for pid in pids],
        "cards": watched.cards(),
    }


def process(pid: int) -> Dict[str, Any]:
    """State, what it waits for in the kernel, and its processor time in seconds; state `gone` for none."""
    found = proc.read(pid)
    if found is None:
        return {"pid": pid, "comm": "", "state": "gone", "waits_in": "", "cpu_s": None}
    return {"pid": pid, "comm": found.comm, "state": found.state, "waits_in": _waits_in(pid), "cpu_s": _cpu_s(pid)}


def _cpu_s(pid: int) -> Optional[float]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return round((int(fields[11]) + int(fields[12])) / TICKS, 2)
    except (OSError, IndexError, ValueError):
        return None


def _waits_in(pid: int) -> str:
    try:
        said = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return "" if said == "0" else said


def _log(path: str, offset: Optional[int]) -> str:
    """What stands in a log from there on; of the whole log its end."""
    try:
        with Path(path).open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LOG_BYTES) if offset is None else offset)
            return stream.read(READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
