"""What is measured: how each proxy is configured, started and ended. HAProxy and nginx run as the role configures them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ends_with_me
import gateway_files

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "roles" / "gateway" / "files"
ROUTER = "vllm-router==0.1.17"
#: The key of all requests. Only one of the measured proxies checks it.
KEY = "bench-gateway"
HEADERS = {"Authorization": f"Bearer {KEY}"}
START_LIMIT_S = 30


@dataclass
class Proxy:
    """A way to the engines. Without `argv` the clients speak to an engine directly."""

    name: str
    port: int
    argv: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, core: int) -> None:
        """Start on that core, and wait until it answers."""
        if not self.argv:
            return
        with (folder / f"{self.name}.log").open("wb") as log:
            argv = ["taskset", "-c", str(core), *self.argv]
            environment = {**os.environ, **self.environment}
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
                preexec_fn=ends_with_me.child(),  # noqa: PLW1509  there are no threads
            )
        end = time.monotonic() + START_LIMIT_S
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError((folder / f"{self.name}.log").read_text(encoding="utf-8", errors="replace").strip()[-300:])
            time.sleep(0.1)

    def stop(self) -> None:
        """End it and wait."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def answers(port: int) -> bool:
    """Does an engine behind it answer a chat?"""
    body = json.dumps({"model": "stub", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as wire:
            wire.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            return wire.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


def values(kind: str, port: int, engines: list[int], folder: Path, **more: Any) -> dict[str, Any]:
    """What a deploy gives for these engines, everything switched on, with all its files in one folder."""
    places = {"run_dir": str(folder), "log_dir": str(folder), "drain_s": 1}
    return gateway_files.values(kind, "bench", port, engines, folder, **{**places, **more})


def ours(name: str, port: int, engines: list[int], folder: Path, package: Path, keys: bool = False, log: bool = True) -> Proxy:
    """Our gateway with result log, metrics and ids."""
    own = folder / name
    own.mkdir(exist_ok=True)
    keys_file = own / "keys"
    keys_file.write_text(f"{hashlib.sha256(KEY.encode()).hexdigest()} bench\n", encoding="ascii")
    keys_file.chmod(0o600)
    gateway = values("modelyard", port, engines, own, keys_file=str(keys_file) if keys else "")
    config = gateway_files.render("gateway.json.j2", gateway, own / "gateway.json")
    if not log:
        config.write_text(json.dumps({**json.loads(config.read_text(encoding="utf-8")), "log": {}}), encoding="utf-8")
    argv = [sys.executable, "-m", "modelyard_gateway", "--config", str(config)]
    return Proxy(name, port, argv, {"PYTHONPATH": str(package)})


def haproxy(port: int, engines: list[int], folder: Path) -> Proxy:
    """HAProxy as the role sets it up."""
    own = folder / "haproxy"
    own.mkdir(exist_ok=True)
    config = gateway_files.render("haproxy.cfg.j2", values("haproxy", port, engines, own), own / "haproxy.cfg")
    return Proxy("haproxy", port, [program("haproxy"), "-db", "-f", str(config), "-C", str(own)])


def nginx(port: int, engines: list[int], folder: Path) -> Proxy:
    """The web server nginx as the role sets it up."""
    own = folder / "nginx"
    own.mkdir(exist_ok=True)
    gateway = values("nginx", port, engines, own)
    gateway_files.render("backends.conf.j2", gateway, own / "backends.conf")
    config = gateway_files.render("nginx.conf.j2", gateway, own / "nginx.conf")
    return Proxy("nginx", port, [program("nginx"), "-c", str(config), "-p", str(own)])


def plain(port: int, engines: list[int]) -> Proxy:
    """The plain aiohttp proxy of this folder."""
    argv = [sys.executable, "-m", "bench_gateway.plain_proxy", str(port), *map(str, engines)]
    return Proxy("aiohttp", port, argv, {"PYTHONPATH": str(ROOT / "tools")})


def router(port: int, engines: list[int], place: Path) -> Proxy:
    """vllm-router from PyPI, in an environment of its own at `place`, made when it is not there."""
    command = place / "bin" / "vllm-router"
    if not command.exists():
        print(f"Installing {ROUTER} into {place}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-qq", "install", ROUTER]
        subprocess.run(pip, check=True)
    urls = [f"http://127.0.0.1:{engine}" for engine in engines]
    argv = [str(command), "--host", "127.0.0.1", "--port", str(port), "--policy", "power_of_two", "--log-level", "error"]
    argv += ["--prometheus-port", str(port + 1), "--max-concurrent-requests", "4096", "--worker-urls", *urls]
    return Proxy("vllm-router", port, argv)


def program(name: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not found:
        raise RuntimeError(f"not installed (Debian: apt-get install {name})")
    return found
