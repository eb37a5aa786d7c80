"""The triage of a large log beside `grep -c` for five words on the same file, in one run on this machine.

usage: make bench      (BENCH_LOG_MIB=1024, BENCH_ROUNDS=3; medians are compared)
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ends_with_me
from harness import ROOT

MIB = int(os.environ.get("BENCH_LOG_MIB", "1024"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
FAILURE = "tests/fixtures/triage/021-illegal-memory-then-minus-15.log"
WORDS = "error|exception|out of memory|died|timed out"


def row(number: int) -> str:
    """A line of a busy server; its figures differ from line to line."""
    if number % 10:
        return f'(APIServer pid=1) INFO:     10.0.0.{number % 251}:{number % 65000} "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    return (
        f"(APIServer pid=1) INFO 11-29 {clock} [loggers.py:123] Engine 000: Avg prompt throughput: {number % 977 / 10} tokens/s, "
        f"Avg generation throughput: {number % 7919 / 10} tokens/s, Running: {number % 61} reqs, Waiting: {number % 7} reqs, "
        f"GPU KV cache usage: {number % 1000 / 10}%\n"
    )


def busy_log(file: Path) -> None:
    """A log of a busy server with a failure at its end."""
    number = 0
    with file.open("wb") as log:
        while log.tell() < MIB << 20:
            log.write("".join(map(row, range(number, number + 2000))).encode())
            number += 2000
        log.write((ROOT / FAILURE).read_bytes())


def seconds(argv: list[str]) -> float:
    """Wall time of a command that must succeed."""
    began = time.monotonic()
    subprocess.run(argv, check=True, capture_output=True, cwd=ROOT, preexec_fn=ends_with_me.child())
    return time.monotonic() - began


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache") as folder:
        file = Path(folder) / "busy.log"
        busy_log(file)
        size = file.stat().st_size / 2**20
        ours, grep = [], []
        for _ in range(ROUNDS):
            ours.append(seconds([sys.executable, "-m", "modelyard", "triage", str(file)]))
            grep.append(seconds(["grep", "-ciE", WORDS, str(file)]))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    mid, beside = statistics.median(ours), statistics.median(grep)
    print(f"\nTriage of a log of {size:.0f} MiB, medians of {ROUNDS} rounds:")
    print(f"  modelyard triage                         {mid:6.1f} s, {size / mid:.0f} MiB/s, at most {peak:.0f} MiB of memory")
    print(f"  grep -ciE for five words                 {beside:6.1f} s, {size / beside:.0f} MiB/s")
    print(f"  triage / grep                            {mid / beside:6.2f} x")


if __name__ == "__main__":
    main()
