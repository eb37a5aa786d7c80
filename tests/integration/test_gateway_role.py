"""deploy.yml with a gateway in front of stand-ins for vLLM: followed by other kinds under load, stopped where it must be."""

from __future__ import annotations

import json
import shutil
import site as python_site
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import control, place
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from harness import Run, Site, free_port
from stand_in import Machine

NAME = "gateway-role"
QUICK = {"grace_s": 5, "linger_s": 2, "term_s": 1, "kill_s": 5, "memory_s": 0, "release_supervisor": False}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two instances behind our own gateway, deployed."""
    if not all(shutil.which(kind, path="/usr/sbin:/usr/local/sbin:/usr/bin") for kind in ("nginx", "haproxy")):
        pytest.skip("nginx or haproxy is not installed")
    folder = tmp_path_factory.mktemp("gateway-role")
    machine = Machine(folder, "")
    # What our gateway needs is in every environment with vLLM; here it is in that of the tests.
    packages = next(machine.environment.glob("lib/python3*/site-packages"))
    (packages / "tests.pth").write_text("\n".join(python_site.getsitepackages()), encoding="utf-8")
    port = free_port(5)
    made = Site(folder, [])
    made.services = [
        {
            "name": NAME,
            "model": {"id": "tiny", "path": str(machine.model)},
            "runtime_path": str(machine.environment),
            "topology": {"replicas": 2},
            "listen": {"host": "127.0.0.1", "base_port": port},
            "engine": {"max_model_len": 1024},
            "start": {"stagger_s": 0, "wave": 2},
            "acceptance": {"serial_requests": 2},
            "gateway": {"kind": "modelyard", "host": "127.0.0.1", "port": port + 2, "drain_s": 20},
        }
    ]
    made.variables["modelyard_checks"] = {"PF-MEMORY": "note", "PF-DISK": "note"}
    done = deploy(made)
    assert done.rc == 0, done.output[-3000:]
    yield made
    for service in (place.name(NAME), NAME):
        run.stop_service(str(made.home), service, options=QUICK)


def deploy(site: Site, arguments: str = "", **extra: Any) -> Run:
    return site.play("deploy", arguments, card_test_enabled=False, **extra)


def ask(site: Site) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}).encode()
    address = f"http://127.0.0.1:{site.services[0]['gateway']['port']}/v1/chat/completions"
    asked = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=20) as reply:
        assert reply.headers["X-Backend"].startswith(NAME)
        reply.read()


class Load:
    """Requests without a pause, until the block has ended."""

    def __init__(self, site: Site) -> None:
        self._site, self._over = site, threading.Event()
        self.asked, self.lost = 0, list[str]()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            self.asked += 1
            try:
                ask(self._site)
            except (OSError, AssertionError) as exc:
                self.lost.append(repr(exc))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def people(site: Site) -> tuple[int, int]:
    state = site.state(place.name(NAME))
    assert state
    return state["keeper"]["pid"], state["leader"]["pid"]


def kind(site: Site) -> str:
    spec = place.spec(str(site.home), NAME)
    assert spec
    return str(control.status(place.folder(str(site.home), NAME), spec)["kind"])


@pytest.mark.further
def test_another_kind_follows_under_load_and_nobody_is_refused(site: Site) -> None:
    before = people(site)
    site.services[0]["gateway"]["kind"] = "nginx"
    refused = deploy(site)
    assert refused.rc != 0 and "PF-RESTART-NEEDED" in refused.output and people(site) == before
    checked = deploy(site, "--check", modelyard_restart=True)
    assert checked.rc == 0, checked.output[-3000:]
    assert people(site) == before and kind(site) == "modelyard"
    with Load(site) as load:
        for wanted in ("nginx", "haproxy", "modelyard"):
            site.services[0]["gateway"]["kind"] = wanted
            done = deploy(site, modelyard_restart=True)
            assert done.rc == 0, done.output[-3000:]
            assert kind(site) == wanted
    assert load.lost == [] and load.asked > 100
    after = people(site)
    assert after[0] == before[0] and after[1] != before[1]
    again = deploy(site)
    assert (again.rc, again.changed) == (0, 0), again.output[-3000:]
    assert people(site) == after


def test_another_port_needs_a_stop_in_between(site: Site) -> None:
    before = people(site)
    site.services[0]["gateway"]["port"] += 1
    site.services[0]["gateway"]["admin_port"] = site.services[0]["gateway"]["port"] + 1
    done = deploy(site, modelyard_restart=True)
    assert done.rc == 0, done.output[-3000:]
    assert people(site)[0] != before[0]
    ask(site)
