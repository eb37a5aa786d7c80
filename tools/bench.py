"""Figures as ratios in one run on this machine: deploy and teardown against a plain `vllm serve`, and an unchanged deploy.

usage: make bench      (BENCH_ROUNDS=3: plain start and deploy in turn, medians are compared)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from e2e_site import service
from harness import ROOT, Run, Site, free_port, session_of, until

NAME = "bench-tp2"
#: The task of roles/teardown that gives the order and returns when the stop has been verified.
STOP_TASK = "Stop the services"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
LIMIT_S = 600


def healthy(port: int) -> bool:
    """Does /health answer 200?"""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def plain_s(launch: dict[str, Any], port: int, folder: Path) -> tuple[float, float]:
    """Seconds of a plain `vllm serve` with the very words and environment of the deploy.

    (from its start until /health answers, from SIGINT until the last of its processes is gone).
    """
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ["HOME"], **launch["environment"]}
    environment.pop("MODELYARD_SERVICE")
    with (folder / "plain.log").open("wb") as log:
        began = time.monotonic()
        engine = subprocess.Popen(launch["argv"], env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            while not healthy(port):
                if engine.poll() is not None or time.monotonic() - began > LIMIT_S:
                    raise SystemExit(f"plain vllm serve did not get ready; see {folder / 'plain.log'}")
                time.sleep(0.1)
            ready = time.monotonic() - began
            ordered = time.monotonic()
            engine.send_signal(signal.SIGINT)
            engine.wait(timeout=60)
            until(lambda: not session_of(engine.pid), 60, "all processes of the plain vllm serve are gone")
            gone = time.monotonic() - ordered
        finally:
            if engine.poll() is None:
                os.killpg(engine.pid, signal.SIGKILL)
                engine.wait()
    return ready, gone


def play(site: Site, playbook: str) -> Run:
    """A playbook that must succeed."""
    run = site.play(playbook)
    if run.rc:
        raise SystemExit(run.output[-3000:])
    return run


def accepted_after(site: Site) -> tuple[float, float]:
    """(seconds from launch to accepted, the probes' own seconds) of the deploy that ran last."""
    (accepted,) = json.loads((site.home / "services" / NAME / "accepted.json").read_text(encoding="utf-8"))["instances"]
    steps = json.loads(Path(accepted["result"]).read_text(encoding="utf-8"))["steps"]
    state = site.state(NAME)
    assert state is not None
    return accepted["at"] - state["started_at"], sum(step["seconds"] for step in steps)


def main() -> None:
    """Measure and print."""
    folder = ROOT / ".cache" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    site = Site(folder, [])
    port = free_port()
    site.services = [service(str(site.home), NAME, port, replicas=1, tp=2)]
    try:
        print("Warming up: one deploy that is not counted (makes the runtime when it is not there)")
        play(site, "teardown")  # what an interrupted run may have left
        play(site, "deploy")
        launch = site.state(NAME)["request"]["launch"]  # type: ignore[index]
        rounds = []
        for number in range(1, ROUNDS + 1):
            stop = play(site, "teardown")
            ready, gone = plain_s(launch, port, folder)
            play(site, "deploy")
            accepted, probes = accepted_after(site)
            rounds.append((ready, accepted, probes, gone, stop.task_s[STOP_TASK], stop.seconds))
            print(
                f"round {number}: plain ready {ready:.1f} s; launch to accepted {accepted:.1f} s, of it probes {probes:.1f} s; "
                f"plain exit {gone:.1f} s; stopped and verified {stop.task_s[STOP_TASK]:.1f} s"
            )
        again = [play(site, "deploy") for _ in range(3)]
    finally:
        site.play("teardown")
        for old in folder.glob("runner-*"):
            shutil.rmtree(old)
    base, total, own, gone, stopped, teardown = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(f"\nMedians of {ROUNDS} rounds, vLLM 0.32.0 on CPU, TP=2, tiny model:")
    print(f"  plain vllm serve until ready             {base:6.1f} s")
    print(f"  deploy.yml from launch to accepted       {total:6.1f} s")
    print(f"  of it the probes' own time               {own:6.1f} s")
    print(f"  (accepted - probes) / plain ready        {(total - own) / base:6.2f} x   (wanted: at most 1.15)")
    print(f"  plain vllm serve from SIGINT to the end  {gone:6.1f} s")
    print(f"  a stop from order to verified clean      {stopped:6.1f} s")
    print(f"  stop / plain exit                        {stopped / gone:6.2f} x   (wanted: at most 1.20)")
    print(f"  the whole teardown.yml                   {teardown:6.1f} s")
    print(
        f"  unchanged deploy.yml                     {min(r.seconds for r in again):6.1f} s, {again[0].tasks} tasks, "
        f"{again[0].changed} changed   (wanted: under 10 s and 40 tasks)"
    )


if __name__ == "__main__":
    main()
