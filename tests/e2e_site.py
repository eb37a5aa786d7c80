"""Sites with the tiny model on the real engine, and a client. The runtime is made once, by the first deploy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from harness import RUNTIMES, Site, end, free_port

#: The service over two ranks.
TP2 = "tiny-tp2"
ENGINE = {
    "max_model_len": 4096,
    "max_num_seqs": 4,
    "max_logprobs": 20,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 268435456,
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
}


def service(home: str, name: str, port: int, replicas: int, tp: int) -> dict[str, Any]:
    """One service of the tiny model."""
    return {
        "name": name,
        "backend": "cpu",
        "model": {"id": "tiny", "path": f"{home}/models/tiny", "recipe": "tiny_qwen3.py"},
        "topology": {"replicas": replicas, "tensor_parallel_size": tp},
        "listen": {"host": "127.0.0.1", "base_port": port},
        "engine": dict(ENGINE),
        # What vLLM finds out about a model's class takes a process of its own for seconds, once for each cache.
        "environment": {"VLLM_CACHE_ROOT": str(RUNTIMES.parent / "e2e-vllm")},
        "acceptance": {"serial_requests": 5},
    }


def make_site(folder: Any, name: str, replicas: int, tp: int) -> Site:
    """A site with one service on free ports."""
    site = Site(folder, [])
    site.services = [service(str(site.home), name, free_port(replicas), replicas, tp)]
    return site


def runtime_python(folder: Path) -> Path:
    """The Python of the runtime for CPUs; a deploy below `folder` makes it where it is not there yet."""
    name = f"{tables.backend('cpu')['runtime']}-*/modelyard.json"
    if not any(RUNTIMES.glob(name)):
        for site in torn_down(make_site(folder, "tiny-runtime", replicas=1, tp=1)):
            run = site.play("deploy")
            assert run.rc == 0, run.output[-3000:]
    return sorted(RUNTIMES.glob(name))[-1].parent / "bin/python"


def torn_down(site: Site) -> Iterator[Site]:
    """Hand a site to tests and stop what runs on it afterwards, whatever happened."""
    yield site
    run = site.play("teardown")
    assert run.rc == 0, run.output[-3000:]


def start_by_hand(site: Site, service: str) -> None:
    """Start a service of one instance that was deployed before, on the host and without Ansible."""
    folder = site.home / "services" / service
    if (folder / "start.sh").exists():
        command = [str(folder / "start.sh")]
    else:
        command = ["setsid", "--fork", sys.executable, str(folder / "keeper.py"), str(folder / "instance-0")]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ["HOME"], "MODELYARD_SERVICE": service}
    subprocess.run(command, env=environment, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def get(port: int, path: str, key: str = "", body: Any = None) -> tuple[int, Any]:
    """One request as a client would send it; (status, parsed reply)."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Content-Type": "application/json"})
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    if body is not None:
        request.data = json.dumps(body).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as reply:
            text = reply.read().decode()
            status = reply.status
    except urllib.error.HTTPError as exc:
        text, status = exc.read().decode(), exc.code
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def answers(port: int, key: str = "") -> bool:
    """Does the instance on that port complete a tiny chat? /health alone proves nothing about the engine."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    try:
        return get(port, "/v1/chat/completions", key, body)[0] == 200
    except OSError:
        return False


def figure(port: int, name: str) -> float:
    """A figure at /metrics, over all its lines."""
    lines = get(port, "/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


def diagnosed(site: Site, instance: str, at_two: Callable[[], Any], **extra: Any) -> tuple[int, str]:
    """Open a diagnostic window; (exit status, all it said, on one line). `at_two` is called right before two are sent."""
    given = {"confirm_diagnose": f"host-a:{instance}", **extra}
    running = site.begin("diagnose", tuple(word for name, value in given.items() for word in ("-e", f"{name}={value}")))
    said = ""
    try:
        assert running.stdout
        for line in running.stdout:
            said += line
            if "two at once (" in line:
                at_two()
        code = running.wait(timeout=60)
    finally:
        end(running)
    return code, " ".join(said.split())
