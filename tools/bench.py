"""Figures as ratios in one run on this machine: deploy and teardown against a plain `vllm serve`, and an unchanged deploy.

usage: make bench      (BENCH_ROUNDS=3: plain start and deploy in turn, medians are compared)
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import ends_with_me
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
        engine = subprocess.Popen(
            launch["argv"],
            env=environment,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            preexec_fn=ends_with_me.child(),  # noqa: PLW1509  there are no threads
        )
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


def by_hand_s(site: Site) -> float:
    """Seconds of stop.sh as a whole process: from the order on the host's command line until its exit status."""
    began = time.monotonic()
    script = site.home / "services" / NAME / "stop.sh"
    done = subprocess.run([str(script)], capture_output=True, text=True, check=False, preexec_fn=ends_with_me.child())
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-1000:])
    return time.monotonic() - began


def own_s(stop: Run) -> float:
    """Seconds of a stop by its own clock on the host, as the playbook shows them."""
    found = re.search(r"stopped and verified in ([\d.]+) s", stop.output)
    if not found:
        raise SystemExit(f"the teardown does not say how long the stop took:\n{stop.output[-3000:]}")
    return float(found.group(1))


class Round(NamedTuple):
    """What one round has measured, in seconds."""

    ready: float
    accepted: float
    probes: float
    gone: float
    by_hand: float
    own: float
    task: float
    teardown: float


def measure(site: Site, launch: dict[str, Any], port: int) -> Round:
    """One round, with the service running before it and after it."""
    by_hand = by_hand_s(site)
    ready, gone = plain_s(launch, port, site.folder)
    play(site, "deploy")
    accepted, probes = accepted_after(site)
    stop = play(site, "teardown")
    play(site, "deploy")
    return Round(ready, accepted, probes, gone, by_hand, own_s(stop), stop.task_s[STOP_TASK], stop.seconds)


def main() -> None:
    """Measure and print."""
    ends_with_me.clean_up_on_signals()
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
        rounds: list[Round] = []
        for number in range(1, ROUNDS + 1):
            rounds.append(one := measure(site, launch, port))
            print(
                f"round {number}: plain ready {one.ready:.1f} s; launch to accepted {one.accepted:.1f} s, of it probes "
                f"{one.probes:.1f} s; plain exit {one.gone:.1f} s; stop.sh {one.by_hand:.1f} s; teardown.yml {one.teardown:.1f} s"
            )
        again = [play(site, "deploy") for _ in range(3)]
    finally:
        site.play("teardown")
        for old in folder.glob("runner-*"):
            shutil.rmtree(old)
    mid = Round(*(statistics.median(values) for values in zip(*rounds, strict=True)))
    print(f"\nMedians of {ROUNDS} rounds, vLLM 0.32.0 on CPU, TP=2, tiny model:")
    print(f"  plain vllm serve until ready             {mid.ready:6.1f} s")
    print(f"  deploy.yml from launch to accepted       {mid.accepted:6.1f} s")
    print(f"  of it the probes' own time               {mid.probes:6.1f} s")
    print(f"  (accepted - probes) / plain ready        {(mid.accepted - mid.probes) / mid.ready:6.2f} x   (wanted: at most 1.15)")
    print(f"  plain vllm serve from SIGINT to the end  {mid.gone:6.1f} s")
    print(f"  stop.sh from order to exit, verified     {mid.by_hand:6.1f} s")
    print(f"  stop.sh / plain exit                     {mid.by_hand / mid.gone:6.2f} x   (wanted: at most 1.20)")
    print(f"  the stop in a teardown, its own clock    {mid.own:6.1f} s")
    print(f"  the same with Ansible's way to the host  {mid.task:6.1f} s   (the task)")
    print(f"  the whole teardown.yml                   {mid.teardown:6.1f} s   (with looking at the host before)")
    print(
        f"  unchanged deploy.yml                     {min(r.seconds for r in again):6.1f} s, {again[0].tasks} tasks, "
        f"{again[0].changed} changed   (wanted: under 10 s and 40 tasks)"
    )


if __name__ == "__main__":
    main()
