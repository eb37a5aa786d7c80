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

stand_in = pytest.importorskip("stand_in", reason="the stand-in for vLLM is not in this checkout")
NAME = "two-in-one"
#: Torch of a real runtime in the place of the stand-in's, so that cards (cores) can really compute.
REAL_TORCH = "import sys\n\ndel sys.modules['torch']\nsys.path.insert(0, {place!r})\nimport torch  # noqa: E402, F401\n"


def real_packages() -> list[Path]:
    return sorted(RUNTIMES.glob("*/lib/python3*/site-packages/torch"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("status")
    machine = stand_in.Machine(folder, "")
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (machine.model / name).write_text("x", encoding="utf-8")
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
    broken(made)
    yield made
    made.services = [service]
    made.play("teardown", teardown_service=NAME)


def broken(site: Site) -> None:
    """The next test begins with a deploy."""
    (site.folder / "broken").touch()


@pytest.fixture
def deployed(site: Site) -> Site:
    """Deployed, running and accepted as the inventory says; after a test that broke something, again."""
    if (site.folder / "broken").exists():
        run = site.play("deploy", card_test_enabled=False, modelyard_restart=True)
        assert run.rc == 0, run.output[-4000:]
        (site.folder / "broken").unlink()
    return site


def status(site: Site, **more: Any) -> tuple[Run, dict[str, Any]]:
    """(run, what was written for programs about the host)."""
    path = site.folder / "status.json"
    path.unlink(missing_ok=True)
    run = site.play("status", status_json=str(path), **more)
    assert run.changed == 0
    return run, json.loads(path.read_text(encoding="utf-8"))["hosts"]["host-a"]


def drift(site: Site) -> list[tuple[str, Any]]:
    """Kind and instance of each line."""
    _, host = status(site)
    return [(item["kind"], item["instance"]) for service in host["services"] for item in service["drift"]]


def folder(site: Site) -> Path:
    return site.home / "services" / NAME


def manifest(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(site) / "manifest.json").read_text(encoding="utf-8"))
    return found


def test_an_unchanged_deploy_leaves_the_manifest_as_it_is_and_nothing_has_drifted(deployed: Site) -> None:
    before = (folder(deployed) / "manifest.json").read_bytes()
    run = deployed.play("deploy", card_test_enabled=False)
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert (folder(deployed) / "manifest.json").read_bytes() == before
    run, host = status(deployed, status_strict=True)
    assert run.rc == 0, run.output[-3000:]
    assert [service["drift"] for service in host["services"]] == [[]]
    assert [instance["state"] for instance in host["services"][0]["instances"]] == ["runs", "runs"]
    assert host["services"][0]["accepted"]["valid"] is True
    assert host["services"][0]["accepted"]["at"] == host["services"][0]["instances"][0]["accepted_at"] > 0
    assert stat.S_IMODE((deployed.folder / "status.json").stat().st_mode) == 0o600


def test_the_manifest_says_what_who_when_and_which_versions(deployed: Site) -> None:
    found = manifest(deployed)
    assert found["schema"] == 2
    assert found["versions"]["vllm"] == "0.32.0"
    assert found["versions"]["kernel"] == os.uname().release
    assert found["versions"]["os"]
    assert found["versions"]["modelyard"]
    assert {"at", "by", "from", "as_user", "playbook"} <= set(found["deployed"])
    assert found["deployed"]["playbook"] == "deploy.yml"
    assert "instance-0/launch.sh" in found["files"]
    assert [len(instance["digest"]) for instance in found["instances"]] == [16, 16]


def test_a_changed_parameter_makes_another_manifest_and_check_mode_says_so(deployed: Site) -> None:
    broken(deployed)
    before = manifest(deployed)
    deployed.services[0]["ready_timeout_s"] = 61
    try:
        run = deployed.play("deploy", "--check --diff", card_test_enabled=False)
        assert run.rc == 0, run.output[-3000:]
        assert '+    "ready_timeout_s": 61' in run.output or '+ "ready_timeout_s": 61' in run.output
        assert manifest(deployed) == before
        run = deployed.play("deploy", card_test_enabled=False)
        assert run.rc == 0
        assert manifest(deployed)["ready_timeout_s"] == 61
    finally:
        deployed.services[0]["ready_timeout_s"] = 60


def test_a_file_that_was_edited_on_the_host_is_one_line_and_strict_fails(deployed: Site) -> None:
    broken(deployed)
    path = folder(deployed) / "instance-1" / "launch.sh"
    path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    assert drift(deployed) == [("file", 1)]
    assert status(deployed)[0].rc == 0
    run, _ = status(deployed, status_strict=True)
    assert run.rc != 0
    assert f"file  host-a:{NAME}/1" in run.output
    assert "1 line(s) of drift, and status_strict is true" in run.output


def test_services_are_found_without_the_inventory_and_another_wish_is_told(deployed: Site) -> None:
    services = deployed.services
    try:
        deployed.services = []
        _, host = status(deployed)
        assert [(service["name"], service["drift"]) for service in host["services"]] == [(NAME, [])]
        deployed.services = [{**services[0], "engine": {"max_model_len": 2048, "shutdown_timeout": 1}}]
        run, _ = status(deployed)
        assert run.rc == 0
        assert "the inventory wants --max-model-len: 4096 -> 2048" in run.output
        deployed.services = [{**services[0], "engine": {"max_modle_len": 2048}}]
        run, _ = status(deployed)
        assert f"{NAME}/0" in run.output, "a mistake in the inventory hides nothing of what runs"
    finally:
        deployed.services = services


def test_a_dead_instance_is_told_with_its_end(deployed: Site) -> None:
    broken(deployed)
    state = deployed.state(NAME, 1)
    assert state is not None
    os.kill(state["leader"]["pid"], signal.SIGTERM)
    until(lambda: session_of(state["keeper"]["pid"]) == [], 30, "the instance is gone")
    assert drift(deployed) == [("instance", 1)]
    run, host = status(deployed)
    assert [instance["state"] for instance in host["services"][0]["instances"]] == ["runs", "ended"]
    assert f"instance  host-a:{NAME}/1" in run.output
    assert alive(deployed.leader(NAME, 0))


def test_a_recovery_proves_what_runs_and_restarts_nothing(deployed: Site) -> None:
    leaders = [deployed.leader(NAME, index) for index in (0, 1)]
    run = deployed.play("recover")
    assert (run.rc, run.changed) == (0, 0), run.output[-4000:]
    assert "no card has to be free" in run.output
    assert f"pass  {NAME}/1 serial: 2 of 2" in run.output
    assert [deployed.leader(NAME, index) for index in (0, 1)] == leaders


@pytest.mark.skipif(not real_packages(), reason="there is no runtime with torch in .cache")
def test_a_recovery_goes_from_the_baseline_over_the_cards_to_the_ladder(deployed: Site) -> None:
    broken(deployed)
    assert deployed.play("teardown").rc == 0
    run = deployed.play("recover")
    assert run.rc == 0, run.output[-4000:]
    stages = [
        "Baseline of the cards on host-a: passed",
        f"Card test of {NAME} on host-a",
        f"Cards of {NAME} on host-a: passed",
        f"pass  {NAME}/0 chat",
        f"{NAME} serves tiny on host-a",
    ]
    places = [run.output.index(words) for words in stages]
    assert places == sorted(places)
    assert run.output.count("Card test of") == 1, "what was tested is not tested again"
    assert drift(deployed) == []


def test_a_host_that_cannot_be_looked_at_fails_the_status_and_is_in_the_table(deployed: Site) -> None:
    path = deployed.inventory
    away = "    away: {ansible_host: 127.0.0.1, ansible_port: 1, ansible_connection: ssh}\n"
    path.write_text(path.read_text(encoding="utf-8") + away, encoding="utf-8")
    command = [str(BIN / "ansible-playbook"), "-i", str(path), "playbooks/status.yml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert re.search(r"Status of 2 host\(s\): 0 line\(s\) of drift; not looked at: away\n", done.stdout)
    assert f"{NAME}/1" in done.stdout
    assert "PF-UNREACHABLE away" in done.stdout
