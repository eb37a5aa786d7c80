"""Our gateway beside HAProxy, nginx, vllm-router, a plain aiohttp proxy and no proxy, on loopback, in one run.

usage: make bench-gateway      (ARGS="--quick", ARGS="--json FILE", ARGS="--only modelyard,nginx"; full: 10 minutes, quick: 2)

Each proxy has one core for itself. Stub engines and load generator share the other one, so what goes without a proxy (`direct`)
is what they can do at most; the CPU time of the proxy says more than a rate that is near to it. The proxies take turns in each
round. Before a round the benchmark waits until others leave the machine alone, and says at the end what they used.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import ends_with_me

from bench_gateway import machine, proxies, report
from bench_gateway.loads import DISTURBED, ENGINES, TRIES, Bench, all_loads, sick_loads
from bench_gateway.proxies import ROOT, Proxy

#: Measured only when it is named: what the result log costs.
UNLOGGED = "modelyard-log"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-gateway", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all figures of all runs to this file")
    parser.add_argument("--only", default="", help="these proxies alone, separated by commas")
    parser.add_argument("--loads", default="", help="only loads with one of these words, separated by commas")
    parser.add_argument(
        "--package", type=Path, default=proxies.PACKAGE, help="where modelyard_gateway lies, to compare two versions"
    )
    parser.add_argument("--port", type=int, default=22500, help="the first of 40 free ports")
    parser.add_argument("--quiet-s", type=float, default=60, help="how long to wait for a quiet machine before a round")
    return parser.parse_args()


def competitors(base: int, engines: list[int], folder: Path, package: Path) -> dict[str, Callable[[], Proxy]]:
    """All that is measured, by name, each made when it is needed."""
    router_place = ROOT / ".cache" / "bench" / "vllm-router"
    return {
        "direct": lambda: Proxy("direct", engines[0]),
        "aiohttp": lambda: proxies.plain(base, engines),
        "nginx": lambda: proxies.nginx(base + 2, engines, folder),
        "haproxy": lambda: proxies.haproxy(base + 4, engines, folder),
        "vllm-router": lambda: proxies.router(base + 6, engines, router_place),
        "modelyard": lambda: proxies.ours("modelyard", base + 8, engines, folder, package),
        "modelyard+keys": lambda: proxies.ours("modelyard+keys", base + 10, engines, folder, package, keys=True),
        UNLOGGED: lambda: proxies.ours(UNLOGGED, base + 12, engines, folder, package, log=False),
    }


def check_ports(base: int) -> None:
    """Refuse when somebody listens where we want to."""
    for port in range(base, base + 40):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError as error:
                raise SystemExit(f"Port {port} is in use. Choose others with --port.") from error


def main() -> None:
    """Measure and print."""
    given = arguments()
    ends_with_me.clean_up_on_signals()
    check_ports(given.port)
    folder = ROOT / ".cache" / "bench" / "gateway"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    proxy_core, other_core = machine.cores()
    bench = Bench(given.port + 20, other_core)
    running: list[Proxy] = []
    memory: dict[str, float] = {}
    chosen = [word for word in given.loads.split(",") if word]
    began = time.monotonic()
    try:
        bench.start()
        for name, make in competitors(given.port, bench.engines, folder, given.package).items():
            if name not in given.only.split(",") if given.only else name == UNLOGGED:
                continue
            try:
                proxy = make()
                proxy.start(folder, proxy_core)
                running.append(proxy)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                print(f"{name} is left out: {error}")
        bench.pids += [proxy.process.pid for proxy in running if proxy.process]
        for number in range(1, 2 if given.quick else given.rounds + 1):
            others = machine.wait_until_quiet(bench.pids, given.quiet_s)
            print(f"round {number}, after {time.monotonic() - began:.0f} s; others use {others:.2f} of a core", flush=True)
            for load in all_loads(given.quick):
                if not wanted(load.name, chosen):
                    continue
                for proxy in running[number % len(running) :] + running[: number % len(running)]:
                    if proxy.process or load.direct:
                        for _ in range(load.repeats):
                            bench.run(load, proxy)
        memory = {proxy.name: machine.memory_mib(proxy.process.pid) for proxy in running if proxy.process}
        for proxy in running:
            sicken(bench, proxy, given.quick, chosen, folder, proxy_core)
    finally:
        for proxy in running:
            with contextlib.suppress(OSError):
                proxy.stop()
        bench.stop()
    show(bench, memory, [proxy.name for proxy in running])
    if given.json:
        found = {"results": bench.results, "memory_mib": memory, "wanted": report.verdicts(bench.results)}
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def wanted(name: str, chosen: list[str]) -> bool:
    """Was this load asked for?"""
    return not chosen or any(word in name for word in chosen)


def sicken(bench: Bench, proxy: Proxy, quick: bool, chosen: list[str], folder: Path, core: int) -> None:
    """What becomes of requests when an engine fails, with a proxy that has not seen a failure yet."""
    loads = [load for load in sick_loads(quick) if wanted(load.name, chosen)]
    if not proxy.process or not loads:
        return
    proxy.stop()
    bench.control("/control?mode=ok")
    proxy.start(folder, core)
    bench.pids.append(proxy.process.pid)
    for load in loads:
        bench.run(load, proxy)
    bench.control("/control?mode=ok")
    proxy.stop()


def show(bench: Bench, memory: dict[str, float], names: list[str]) -> None:
    """Print figures and verdicts."""
    print(f"\nMedians; {ENGINES} stub engines on loopback, one core for the proxy, one for engines and load generator:")
    print(report.table(bench.results, memory, names))
    print("\nOurs, as wanted:")
    print(report.lines(report.verdicts(bench.results)))
    runs = [run for found in bench.results.values() for kept in found.values() for run in kept]
    disturbed = sum(run["waited_percent"] > DISTURBED for run in runs)
    others = statistics.median(run["others"] for run in runs) if runs else 0.0
    print(f"\nOther processes used {others:.2f} of a core meanwhile (median). They kept the proxy from its core for more than")
    print(f"{DISTURBED:g} % of the time in {disturbed} of {len(runs)} runs, after {TRIES} tries each: their times say little.")


if __name__ == "__main__":
    main()
