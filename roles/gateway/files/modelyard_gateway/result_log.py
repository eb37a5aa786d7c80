"""The result log: one line of JSON for each request, written by a thread of its own.

The traffic never waits for the disk and never fails with it: a line that cannot be kept is counted, and when writing works again
a line says how many are missing and why.
"""

from __future__ import annotations

import collections
import functools
import json
import threading
import time
from typing import Any, Deque, Dict, Mapping

from modelyard_gateway.rotating import Rotating

#: Lines and bytes that may wait for the disk.
QUEUE_LINES = 10_000
QUEUE_BYTES = 16 * 1024 * 1024
#: Lines of so many seconds are written together.
BATCH_S = 0.1
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
#: Between two attempts when the log cannot be written, in seconds.
RETRY_S = 1.0
CLOSING_RETRY_S = 0.05
#: The keys of a line, in this order.
KEYS = (
    *("time", "id", "user", "model", "path", "client", "key", "backend", "tries", "status", "finish_reason"),
    *("prompt_tokens", "completion_tokens", "thinking", "snippet", "queue_s", "ttft_s", "duration_s", "bytes_in", "bytes_out"),
    *("stream", "truncated", "client_gone", "error"),
)
SECONDS = ("queue_s", "ttft_s", "duration_s")
#: What others have chosen: clients, engines, the inventory.
TEXTS = ("id", "user", "model", "path", "client", "key", "backend", "finish_reason", "snippet")
_NOTHING: Dict[str, Any] = dict.fromkeys(KEYS)
#: Longest of those texts. The gateway has cut an error already.
TEXT = 1000


def moment(unix: float) -> str:
    """`2026-11-29T17:00:00.123Z`."""
    thousandths = int(unix * 1000)
    return f"{_second(thousandths // 1000)}.{thousandths % 1000:03d}Z"


@functools.lru_cache(maxsize=16)
def _second(unix: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix))


def entry(at: float, **values: Any) -> Dict[str, Any]:
    """A line with all keys in their order; what is not given is None.

    :param at: when the request came, as a Unix time
    :raises TypeError: a key that a line does not have, so that nothing gets in that nobody has thought about, like a header
    """
    line = {**_NOTHING, **values}
    if len(line) > len(KEYS):
        raise TypeError(f"a line of the result log has no {', '.join(sorted(set(values) - set(KEYS)))}")
    for key in SECONDS:
        if line[key] is not None:
            line[key] = round(line[key], 4)
    for key in TEXTS:
        if line[key]:
            line[key] = _safe(line[key])
    line["time"] = moment(at)
    return line


def _safe(value: Any) -> Any:
    """A text stands on one line of bounded length."""
    if not isinstance(value, str):
        return value
    value = value[:TEXT]
    return value if value.isprintable() else "".join(c if c.isprintable() else " " for c in value)


class ResultLog:
    """Takes lines at any speed; `write` never blocks and never raises."""

    def __init__(self, path: str, limit_bytes: int, keep: int, retry_s: float = RETRY_S) -> None:
        """`limit_bytes` is the size of one file; `keep` files with `path` among them (`.1`, `.2`, ...)."""
        self._file = Rotating(path, limit_bytes, keep)
        self._retry_s = retry_s
        self._queue: Deque[bytes] = collections.deque()
        self._waiting = self._bytes = 0
        self._written = self._dropped = self._missing = 0
        self._reason = self._problem = ""
        self._closing = False
        self._give_up_at = 0.0
        self._changed = threading.Condition()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="result-log", daemon=True)
        self._thread.start()

    def write(self, line: Mapping[str, Any]) -> None:
        """Hand a line to the writer. It is dropped and counted when too many wait already or it is no JSON."""
        try:
            data = _JSON.encode(line).encode("utf-8", "replace") + b"\n"
        except Exception as exc:  # whatever it is, the request goes on
            with self._changed:
                self._drop(f"a line is no JSON ({exc})")
            return
        with self._changed:
            if self._closing:
                self._drop("the log was closed")
            elif self._waiting >= QUEUE_LINES or self._bytes + len(data) > QUEUE_BYTES:
                self._drop(self._problem or "the disk is too slow")
            else:
                self._queue.append(data)
                self._waiting += 1
                self._bytes += len(data)
                if len(self._queue) == 1:
                    self._changed.notify()

    def state(self) -> Dict[str, Any]:
        """`path`, lines `written` and `dropped` since the start, `problem`: why the log cannot be written just now, or empty."""
        with self._changed:
            return {"path": self._file.path, "written": self._written, "dropped": self._dropped, "problem": self._problem}

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what waits, at most for so long; was all of it written?"""
        with self._changed:
            self._closing = True
            self._give_up_at = time.monotonic() + timeout_s
            self._changed.notify()
        self._hurry.set()
        self._thread.join(timeout_s + self._retry_s)
        with self._changed:
            return not self._waiting and not self._missing

    def _drop(self, reason: str) -> None:
        """Count a lost line. The lock is held."""
        self._dropped += 1
        self._missing += 1
        self._reason = reason

    def _run(self) -> None:
        """The writer's life: lines first, then a note about those that are missing."""
        lines: Deque[bytes] = collections.deque()
        while True:
            with self._changed:
                while not (lines or self._queue or self._missing or self._closing):
                    self._changed.wait()
                if not lines:
                    lines, self._queue = self._queue, lines
                missing = 0 if lines else self._missing
                if not lines and not missing:
                    break
                note = self._note()
            if self._worked(lines or collections.deque([note]), missing):
                # Many lines at once: waking this thread for each would take more of the requests' time than the lines do.
                if not lines:
                    self._hurry.wait(BATCH_S)
                continue
            with self._changed:
                if self._closing and time.monotonic() >= self._give_up_at:
                    break
                closing = self._closing
            if closing:
                time.sleep(CLOSING_RETRY_S)
            else:
                # Not woken by new lines: on a full disk that would be one attempt a request.
                self._hurry.wait(self._retry_s)
        self._file.close()

    def _worked(self, lines: Deque[bytes], missing: int) -> bool:
        """Write some lines and take them away, or the note that stands for `missing` ones; False when it does not work."""
        try:
            count, problem = self._file.append(lines), ""
        except OSError as exc:
            count, problem = 0, f"{exc.strerror or exc} ({self._file.path})"
        size = sum(len(lines.popleft()) for _ in range(count))
        with self._changed:
            self._problem = problem
            if missing and count:
                self._missing -= missing
            elif count:
                self._written += count
                self._waiting -= count
                self._bytes -= size
        return count > 0

    def _note(self) -> bytes:
        """The line about what is missing. The lock is held."""
        text = f"{self._missing} lines were lost: {self._reason}"
        return json.dumps({"time": moment(time.time()), "note": text}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
