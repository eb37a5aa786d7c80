"""A running gateway of any kind, told and asked in one way.

`folder` is the gateway's folder on the host (services/NAME/gateway), `spec` what the templates are made from (`gateway` in
roles/gateway). All of these raise GatewayError with words for the admin.

haproxy.cfg | nginx.conf | gateway.json   the configuration      proxy.json   for modelyard_gateway.proxy
run/    gateway.pid, sockets, temporary files, who is drained    logs/        results.jsonl
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.gateway import connections, haproxy, nginx, own, token
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc

CONFIG = {"modelyard": "gateway.json", "haproxy": "haproxy.cfg", "nginx": "nginx.conf"}
PID_FILE = "gateway.pid"
#: Settings that only our own gateway knows, and that nobody may believe to be in force.
KEYS = ("keys_file", "backend_key_file")
PLAIN = re.compile(r"[\w.:/@+,=~ -]*")
STEP_S, RELOAD_S, CHECK_S = 0.1, 15.0, 20.0
#: A reload that is not seen by then is asked for once more; twice does no harm.
AGAIN_S = 5.0
Spec = Mapping[str, Any]


def start_command(folder: Path, spec: Spec) -> Tuple[List[str], Dict[str, str]]:
    """(words, environment) that start it in the foreground, from folder/run."""
    environment = {"PYTHONPATH": str(spec["package_dir"])}
    if spec["kind"] == "modelyard":
        return [spec["python"], "-m", "modelyard_gateway", "--config", str(folder / CONFIG["modelyard"])], environment
    return [spec["python"], "-m", "modelyard_gateway.proxy", str(folder / "proxy.json")], environment


def unfit(spec: Spec) -> List[str]:
    """Texts that would not stay what they are in the configuration of HAProxy or nginx: quotes, dollars, ends of lines."""
    texts = [(name, value) for name, value in spec.items() if isinstance(value, str)]
    for backend in spec["backends"]:
        texts += [(f"backends.{backend['index']}.{name}", backend[name]) for name in ("name", "host")]
    return [
        f"{name}: {value!r} has characters that no gateway's configuration can hold"
        for name, value in texts
        if not PLAIN.fullmatch(value)
    ]


def prepare(folder: Path, spec: Spec) -> str:
    """Make ready what a start or a reload needs besides the configuration; what is wrong with that, as check_config says it.

    nginx reads who is out from the file of its engines, so what a deploy has written is brought together with what it has now.
    """
    for name in ("run", "logs"):
        if not (folder / name).exists():
            (folder / name).mkdir()
            layout.give(folder / name)
    if spec["kind"] == "modelyard" and spec["admin_token_file"]:
        token.make(Path(spec["admin_token_file"]), folder.parents[2])
    if spec["kind"] == "nginx":
        run_dir = folder / "run"
        try:
            before = nginx.drained(nginx.read(run_dir))
        except GatewayError:
            before = {}
        text = nginx.read(folder)
        for name, out in before.items():
            text = nginx.changed(text, name, out) if name in nginx.drained(text) else text
        nginx.write(run_dir, text)
    return check_config(folder, spec)


def check_config(folder: Path, spec: Spec) -> str:
    """What is wrong with the configuration, as a rule in the program's own words; empty when nothing is."""
    keys = [name for name in KEYS if spec["kind"] != "modelyard" and spec[name]]
    if keys:
        return f"{' and '.join(keys)}: {spec['kind']} passes API keys through and checks none; only kind modelyard does"
    mistakes = unfit(spec)
    if mistakes:
        return "; ".join(mistakes)
    path, environment = str(folder / CONFIG[spec["kind"]]), dict(os.environ)
    if spec["kind"] == "haproxy":
        words = [spec["program"], "-c", "-f", path]
    elif spec["kind"] == "nginx":
        words = [spec["program"], "-t", "-q", "-e", "stderr", "-p", str(folder / "run"), "-c", path]
    else:
        words, more = start_command(folder, spec)
        words, environment = [*words, "--check"], {**environment, **more}
    try:
        done = subprocess.run(
            words,
            cwd=str(folder / "run"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{words[0]} could not be asked: {exc}"
    said = done.stdout.decode("utf-8", "replace").strip()
    return "" if done.returncode == 0 else said or f"{words[0]} ended with {done.returncode}"


def leader(folder: Path) -> int:
    """The gateway's first process: what it wrote down itself, else what its keeper did. GatewayError when it does not run."""
    try:
        pid = int((folder / "run" / PID_FILE).read_text(encoding="ascii"))
        if proc.read(pid):
            return pid
    except (OSError, ValueError):
        pass
    known = layout.state(folder)
    if known and layout.leader_alive(known):
        return int(known["leader"]["pid"])
    raise GatewayError(f"no gateway runs in {folder}")


def drain(folder: Path, spec: Spec, name: str, wait_s: float = 0.0) -> Dict[str, Any]:
    """No new requests to an engine; waits up to `wait_s` until none is left there: {draining, in_flight}."""
    _set(folder, spec, name, True)
    limit = time.monotonic() + wait_s
    while True:
        count = in_flight(folder, spec, name)
        if count == 0 or time.monotonic() >= limit:
            return {"draining": True, "in_flight": count}
        time.sleep(STEP_S)


def undrain(folder: Path, spec: Spec, name: str) -> Dict[str, Any]:
    """Requests to an engine again: {draining, in_flight}."""
    _set(folder, spec, name, False)
    return {"draining": False, "in_flight": in_flight(folder, spec, name)}


def in_flight(folder: Path, spec: Spec, name: str) -> int:
    """Requests that an engine has from this gateway now, those of processes before a reload included."""
    if spec["kind"] == "modelyard":
        return int(next(one["in_flight"] for one in status(folder, spec)["backends"] if one["name"] == name))
    backend = _backend(spec, name)
    return connections.to(backend["host"], backend["port"], leader(folder))


def status(folder: Path, spec: Spec) -> Dict[str, Any]:
    """{kind, backends: [{name, state, why, draining, in_flight, ...}]}; of our own gateway all that its status page has.

    nginx does not say what it thinks of an engine: `state` is then "unknown".
    """
    run_dir = folder / "run"
    if spec["kind"] == "modelyard":
        return {"kind": "modelyard", **own.ask(spec, "GET", "/gateway/status")}
    pid = leader(folder)
    if spec["kind"] == "haproxy":
        names = {f"b{backend['index']}": backend["name"] for backend in spec["backends"]}
        rows = haproxy.servers(haproxy.ask(run_dir, "show stat"))
        found = [haproxy.described(row, names.get(row["svname"], row["svname"])) for row in rows]
    else:
        why = "nginx shows nothing of what it thinks of an engine"
        taken_out = nginx.drained(nginx.read(run_dir))
        found = [{"name": name, "state": "unknown", "why": why, "draining": out} for name, out in taken_out.items()]
    places = {backend["name"]: (backend["host"], backend["port"]) for backend in spec["backends"]}
    for one in found:
        if one["name"] in places:
            one["in_flight"] = connections.to(*places[one["name"]], pid)
    return {"kind": spec["kind"], "pid": pid, "backends": found}


def reload(folder: Path, spec: Spec) -> None:
    """Take over a changed configuration; requests in flight end where they are. What is drained stays so."""
    problem = check_config(folder, spec)
    if problem:
        raise GatewayError(f"the configuration is not taken over: {problem}")
    run_dir, pid = folder / "run", leader(folder)
    if spec["kind"] == "haproxy":
        haproxy.save(run_dir)
        before = haproxy.worker(run_dir)
        _tell(pid, lambda: haproxy.worker(run_dir) not in (0, before))
    elif spec["kind"] == "nginx":
        old = set(nginx.workers(pid))
        _tell(pid, lambda: bool(set(nginx.workers(pid)) - old) and not old & set(nginx.workers(pid)))
    else:
        _tell(pid, None)


def _tell(pid: int, done: Optional[Callable[[], bool]]) -> None:
    began = asked = time.monotonic()
    os.kill(pid, signal.SIGHUP)
    while done and not done():
        now = time.monotonic()
        if now > began + RELOAD_S:
            raise GatewayError(f"the gateway did not take over its configuration within {RELOAD_S:.0f} s; its log says why")
        if now > asked + AGAIN_S:
            asked = now
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)
        time.sleep(STEP_S)


def _set(folder: Path, spec: Spec, name: str, out: bool) -> None:
    run_dir, backend = folder / "run", _backend(spec, name)
    if spec["kind"] == "modelyard":
        own.ask(spec, "POST", "/gateway/drain" if out else "/gateway/undrain", backend=name)
    elif spec["kind"] == "haproxy":
        haproxy.set_weight(run_dir, backend["index"], 0 if out else 1)
    else:
        before = nginx.read(run_dir)
        if nginx.drained(before).get(name) != out:
            nginx.write(run_dir, nginx.changed(before, name, out))
            reload(folder, spec)


def _backend(spec: Spec, name: str) -> Dict[str, Any]:
    found = [one for one in spec["backends"] if one["name"] == name]
    if not found:
        raise GatewayError(f"there is no engine {name}; there are {', '.join(one['name'] for one in spec['backends'])}")
    return dict(found[0])
