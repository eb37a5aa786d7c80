"""A service on this machine as the role `service` writes it, with a small program in the engine's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.plugins.filter.core import FilterModule
from ansible_collections.modelyard.core.plugins.module_utils.plan import files
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from ansible_collections.modelyard.core.plugins.plugin_utils import program
from harness import ROOT
from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = ROOT / "roles/service/templates"
QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0, "release_supervisor": False}
#: Answers /health on its port, says what it is doing, and ends at SIGINT and SIGTERM. Its own words come before the port.
ENGINE = r"""
import http.server, os, signal, sys, threading, time
words = sys.argv[1:]
def value(name, usual):
    found = [words[i + 1] for i, word in enumerate(words) if word == name]
    return found[-1] if found else usual
print("engine", os.getpid(), "words", words, flush=True)
if value("--die", ""):
    print("RuntimeError: made to die", flush=True)
    sys.exit(int(value("--die", "")))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *more):
        pass
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *more: os._exit(0))
time.sleep(float(value("--late", "0")))
http.server.ThreadingHTTPServer(("127.0.0.1", int(value("--port", "0"))), Handler).serve_forever()
"""


def rendered(template: str, *items: Any) -> str:
    """As the template module renders: blocks are trimmed, the last newline stays, an unknown name is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters.update(FilterModule().filters())
    item = list(items) if len(items) > 1 else items[0]
    return environment.get_template(template).render(
        ansible_managed="Written by Modelyard.\nChanges are lost.", service_item=item
    )


def host(home: Path, **changes: Any) -> files.Host:
    """Where the files go; `changes` to its fields."""
    base = files.Host(str(home), f"{home}/runtimes", "/", [], "llm", sys.executable, "0.1.0", 2.0, {"cpu": {}})
    return base._replace(**changes)


def service(home: Path, name: str, port: int, replicas: int = 1, words: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """A service of a plan whose engine is ENGINE; `changes` replace whole keys."""
    runtime = home / "runtimes" / "stand-in"
    (runtime / "bin").mkdir(parents=True, exist_ok=True)
    (runtime / "bin" / "vllm").write_text(f"#!{sys.executable}\n{ENGINE}", encoding="utf-8")
    (runtime / "bin" / "vllm").chmod(0o755)
    instances = [
        {
            "name": f"{name}/{index}",
            "index": index,
            "port": port + index,
            "cards": [[index]],
            "argv": [f"{runtime}/bin/vllm", "serve", "--port", str(port + index), "--max-model-len", "4096", *words],
            "environment": {"MODELYARD_SERVICE": name, "MODELYARD_INSTANCE": str(index)},
            "digest": f"digest-{index}",
            "action": "start",
            "session": name if replicas == 1 else f"{name}-{index}",
            "devices": [],
        }
        for index in range(replicas)
    ]
    return {
        "name": name,
        "backend": "cpu",
        "supervisor": "plain",
        "topology": {"replicas": replicas, "tensor_parallel_size": 1},
        "listen": {"host": "127.0.0.1", "base_port": port},
        "model": {"id": "tiny", "fingerprint": "f"},
        "ready_timeout_s": 30,
        "shutdown_timeout_s": 0,
        "secured": False,
        "runtime": {"path": str(runtime)},
        "eager_off": ["--no-enforce-eager"],
        "action": "start",
        "instances": instances,
        "start": {"stagger_s": 0.1, "wave": 4},
        "logs": {"cap_mib": 256, "keep": 20},
        "stop": {"drain_command": "", "drain_s": 30, "memory_s": 120},
        **changes,
    }


def write(home: Path, planned: dict[str, Any]) -> dict[str, Any]:
    """Write the files of a planned service; what the filter gives."""
    made = files.of_service(planned, host(home))
    for wanted in [*made["texts"], *(text for one in made["rolled"] for text in one["texts"])]:
        path = Path(wanted["path"])
        if wanted.get("program"):
            path.write_bytes(program.build())
            continue
        if wanted.get("state") == "absent":
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        item = wanted.get("vars", {}).get("service_item")
        items = item if isinstance(item, list) else [item]
        text = wanted["content"] if "content" in wanted else rendered(wanted["template"], *items)
        path.write_text(text, encoding="utf-8")
        path.chmod(int(wanted["mode"], 8))
    return made


def call(folder: Path, script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts as a person does, from elsewhere and with a shell full of other things."""
    return subprocess.run(
        [str(folder / script), *words],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def interrupted(folder: Path, script: str, when: str, *words: str, **environment: str) -> tuple[int, str]:
    """Ctrl-C, as a terminal sends it, once a line with `when` was said; (exit status, what it said)."""
    process = subprocess.Popen(
        [str(folder / script), *words],
        env={"PATH": "/usr/bin:/bin", "HOME": "/root", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background lets them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  there are no threads
    )
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if when in line:
            os.killpg(process.pid, signal.SIGINT)
            break
    said += process.stdout.read()
    return process.wait(timeout=20), said


def stopped_afterwards(home: Path) -> Iterator[Path]:
    """Hand a home to a test, and stop all its services afterwards."""
    yield home
    for name in layout.services(str(home)):
        run.stop_service(str(home), name, options=QUICK)
