"""Manifest, status and recovery of services that really run: two instances of a stand-in for vLLM, deployed by the playbooks."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BIN, ROOT, RUNTIMES, Run, Site, alive, free_port, session_of, until
from simulators.engine.install import complete_model

stand_in = pytest.importorskip("stand_in", reason="the stand-in for vLLM is not in this checkout")
NAME = "two-in-one"
#: Torch of a real runtime in the place of the stand-in's, so that cards (cores) can really compute.
REAL_TORCH = "import sys\n\ndel sys.modules['torch']\nsys.path.insert(0, {place!r})\nimport torch  # noqa: E402, F401\n"


def real_packages() -> list[Path]:
    """Folders of torch in whole runtimes: beside this, another test may just be making one."""
    whole = [place.parent for place in RUNTIMES.glob("*/modelyard.json")]
    return sorted(torch for folder in whole for torch in folder.glob("lib/python3*/site-packages/torch"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("status")
    machine = stand_in.Machine(folder, "")
    complete_model(machine.model)
    if real_packages():
        (place,) = machine.environment.glob("lib/python3*/site-packages/torch")
        text = REAL_TORCH.format(place=str(real_packages()[-1].parent))
        (place / "__init__.py").write_text(text, encoding="utf-8")
    service = {
        "name": NAME,
        "model": {"id": "tiny", "path": str(machine.model)},
        "topology": {"replicas": 2, "tensor_parallel_size": 1},
        "listen": {"host": "127.0.0.1", "base_port": free_port(2)},
        "engine": {"max_model_len": 4096, "shutdown_timeout": 1},
        "acceptance": {"serial_requests": 2},
        "runtime_path": str(machine.environment),
        "ready_timeout_s": 60,
    }
    made = Site(folder, [service])
    run = made.play("deploy", card_test_enabled=False)
    assert run.rc == 0, run.output[-4000:]
    yield made
    made.services = [service]
    assert made.play("teardown", teardown_service=NAME).rc == 0


def status(site: Site, **more: Any) -> tuple[Run, dict[str, Any]]:
    """(run, what was written for programs about the host)."""
    path = site.folder / "status.json"
    path.unlink(missing_ok=True)
    run = site.play("status", status_json=str(path), **more)
    assert run.changed == 0
    return run, json.loads(path.read_text(encoding="utf-8"))["hosts"]["host-a"]


def drift(host: dict[str, Any]) -> list[tuple[str, Any]]:
    """Kind and instance of each line."""
    return [(item["kind"], item["instance"]) for service in host["services"] for item in service["drift"]]


def folder(site: Site) -> Path:
    return site.home / "services" / NAME


def manifest(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(site) / "manifest.json").read_text(encoding="utf-8"))
    return found


# One story, in this order: each play of a playbook costs seconds, so a test goes on from where the one before has ended.


def test_the_manifest_says_what_who_when_and_which_versions(site: Site) -> None:
    found = manifest(site)
    assert found["schema"] == 2
    assert found["versions"]["vllm"] == "0.32.0"
    assert found["versions"]["kernel"] == os.uname().release
    assert found["versions"]["os"]
    assert found["versions"]["modelyard"]
    assert {"at", "by", "from", "as_user", "playbook"} <= set(found["deployed"])
    assert found["deployed"]["playbook"] == "deploy.yml"
    of_service = {"client.env", "modelyard.pyz", "service.json", "start_cluster.sh", "status_cluster.sh", "stop_cluster.sh"}
    of_instances = {f"instance-{index}/{name}" for index in (0, 1) for name in ("env", "instance.json", "launch.sh")}
    assert set(found["files"]) == of_service | of_instances
    assert [len(instance["digest"]) for instance in found["instances"]] == [16, 16]


def test_nothing_has_drifted_after_a_deploy(site: Site) -> None:
    run, host = status(site, status_strict=True)
    assert run.rc == 0, run.output[-3000:]
    assert drift(host) == []
    assert [instance["state"] for instance in host["services"][0]["instances"]] == ["runs", "runs"]
    assert host["services"][0]["accepted"]["valid"] is True
    assert stat.S_IMODE((site.folder / "status.json").stat().st_mode) == 0o600


def test_check_mode_says_how_the_manifest_would_change_and_changes_nothing(site: Site) -> None:
    before = manifest(site)
    site.services[0]["ready_timeout_s"] = 61
    run = site.play("deploy", "--check --diff", card_test_enabled=False)
    site.services[0]["ready_timeout_s"] = 60
    assert run.rc == 0, run.output[-3000:]
    assert '+    "ready_timeout_s": 61' in run.output or '+ "ready_timeout_s": 61' in run.output
    assert manifest(site) == before


def test_what_people_and_accidents_have_changed_is_a_line_each_and_strict_fails(site: Site) -> None:
    path = folder(site) / "instance-0" / "launch.sh"
    path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    state = site.state(NAME, 1)
    assert state is not None
    os.kill(state["leader"]["pid"], signal.SIGTERM)
    until(lambda: session_of(state["keeper"]["pid"]) == [], 30, "the instance is gone")
    services = site.services
    site.services = [{**services[0], "engine": {"max_model_len": 2048, "shutdown_timeout": 1}}]
    run, host = status(site, status_strict=True)
    site.services = services
    assert run.rc != 0
    assert sorted(drift(host)) == [("file", 0), ("instance", 1), ("inventory", 0), ("inventory", 1)]
    assert [instance["state"] for instance in host["services"][0]["instances"]] == ["runs", "ended"]
    assert f"file  host-a:{NAME}/0" in run.output
    assert f"instance  host-a:{NAME}/1" in run.output
    assert "the inventory wants --max-model-len: 4096 -> 2048" in run.output
    assert "4 line(s) of drift, and status_strict is true" in run.output
    assert alive(site.leader(NAME, 0))


def test_services_are_found_whatever_the_inventory_says_and_a_host_that_cannot_be_looked_at_fails(site: Site) -> None:
    services = site.services
    site.services = [{**services[0], "engine": {"max_modle_len": 2048}}]
    run, _ = status(site)
    site.services = services
    assert f"{NAME}/0" in run.output, "a mistake in the inventory hides nothing of what runs"
    path = site.inventory
    text = path.read_text(encoding="utf-8")
    away = "    away: {ansible_host: 127.0.0.1, ansible_port: 1, ansible_connection: ssh}\n"
    path.write_text(text + away, encoding="utf-8")
    command = [str(BIN / "ansible-playbook"), "-i", str(path), "playbooks/status.yml", "-e", '{"modelyard_services": []}']
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    path.write_text(text, encoding="utf-8")
    assert done.returncode != 0
    assert re.search(r"Status of 2 host\(s\): 2 line\(s\) of drift; not looked at: away\n", done.stdout), done.stdout[-3000:]
    assert f"{NAME}/1" in done.stdout
    assert "PF-UNREACHABLE away" in done.stdout


@pytest.mark.further
def test_a_recovery_goes_from_the_baseline_over_the_cards_to_the_ladder_and_restarts_nothing(site: Site) -> None:
    leader = site.leader(NAME, 0)
    more = {} if real_packages() else {"card_test_enabled": False}
    run = site.play("recover", **more)
    assert run.rc == 0, run.output[-4000:]
    stages = [
        "Baseline of the cards on host-a: passed",
        *([f"Card test of {NAME} on host-a", f"Cards of {NAME} on host-a: passed"] if real_packages() else []),
        f"pass  {NAME}/1 chat",
        f"{NAME} serves tiny on host-a",
    ]
    places = [run.output.index(words) for words in stages]
    assert places == sorted(places)
    assert run.output.count("Card test of") <= 1, "what was tested is not tested again"
    assert f"pass  {NAME}/0 serial: 2 of 2" in run.output, "what ran is proven as well"
    assert site.leader(NAME, 0) == leader
    assert alive(site.leader(NAME, 1))
    run, host = status(site)
    assert drift(host) == []
