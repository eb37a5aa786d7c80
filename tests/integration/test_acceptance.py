"""The acceptance as an admin runs it, over the stand-in for vLLM on simulated cards: what passes, and what is said when not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from harness import Site, alive, free_port
from stand_in import Machine

NAME, KEY = "proof-tp2", "modelyard-secret-77c1e0"
QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0, "release_supervisor": False}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("proof"), "2x4090")


@pytest.fixture
def site(machine: Machine, tmp_path: Path) -> Iterator[Site]:
    """A host with one service over both cards, not deployed yet."""
    made = Site(tmp_path, [])
    service: dict[str, Any] = {
        "name": NAME,
        "backend": "nvidia",
        "model": {"id": "tiny", "path": str(machine.model)},
        "runtime_path": str(machine.environment),
        "topology": {"preset": "tp2"},
        "cards": [0, 1],
        "listen": {"base_port": free_port(3)},
        "engine": {"max_model_len": 1024, "gpu_memory_utilization": 0.6},
        "ready_timeout_s": 60,
        "acceptance": {"serial_requests": 2, "request_timeout_s": 4, "busy_wait_s": 1},
    }
    made.services = [service]
    made.variables.update(modelyard_sysroot=str(machine.sim.root), modelyard_tool_path=[str(machine.sim.root / "bin")])
    made.variables["modelyard_checks"] = {"PF-MEMORY": "note", "PF-DISK": "note"}
    made.variables["modelyard_api_keys"] = {NAME: KEY}
    yield made
    machine.sim.clear()
    run.stop_service(str(made.home), NAME, options=QUICK)


def deploy(site: Site, arguments: str = "", **extra: Any) -> Any:
    return site.play("deploy", f"--skip-tags card_test {arguments}", **extra)


def results(site: Site) -> list[dict[str, Any]]:
    folder = site.home / "services" / NAME / "acceptance"
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def evidence(site: Site, reason: str) -> Path:
    (folder,) = (site.home / "evidence").glob(f"*-{NAME}-{reason}")
    return folder


def accepted(site: Site) -> bool:
    return (site.home / "services" / NAME / "accepted.json").exists()


def test_the_whole_ladder_with_cards_and_a_schema_of_ones_own_and_no_key_anywhere(site: Site) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
    site.services[0]["acceptance"].update(also=["completions", "image"], schemas=[{"name": "person", "schema": schema}])
    first = deploy(site, "-vvv --diff")
    assert first.rc == 0, first.output[-4000:]
    assert f"pass  {NAME}/0 memory: card 0 29484 MiB, card 1 29484 MiB; planned 29484 of 49140" in first.output
    assert f"pass  {NAME}/0 image: 64 tokens for a picture" in first.output
    assert f"pass  {NAME}/0 completions: 16 tokens" in first.output
    assert f"skip  {NAME}/0 gateway: the service has no gateway" in first.output
    assert "; and person" in first.output
    assert accepted(site)

    quick = site.play("acceptance", "-vvv", acceptance_depth="quick")
    assert quick.rc == 0, quick.output[-4000:]
    chosen = site.play("acceptance", "", acceptance_steps=["memory", "embeddings"])
    assert chosen.rc == 0, chosen.output[-4000:]
    assert f"skip  {NAME}/0 embeddings: the service does not declare it" in chosen.output
    whole, short, two = results(site)
    assert [one["depth"] for one in (whole, short, two)] == ["full", "quick", "chosen"]
    assert [step["id"] for step in short["steps"]] == ["process", "port", "health", "models", "chat", "schema"]
    assert all(one["passed"] and one["schema"] == 1 and one["asked"] == [0] for one in (whole, short, two))
    assert accepted(site), "less than the whole ladder takes nothing away"

    for output in (first.output, quick.output, chosen.output):
        assert KEY not in output
    holders = [path.name for path in site.home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert set(holders) == {"api_key"}


def test_a_lost_card_ends_the_ladder_and_nothing_is_restarted(site: Site, machine: Machine) -> None:
    assert deploy(site).rc == 0
    leader = site.leader(NAME)
    machine.sim.set("needs_reset", card=1)
    ran = site.play("acceptance", "", modelyard_checks={"PF-CARD-NEEDS-RESET": "note"})
    assert ran.rc != 0
    assert "card 1 is needs reset" in ran.output, ran.output[-4000:]
    assert "A restart would not help." in ran.output
    assert alive(leader)
    assert site.leader(NAME) == leader
    assert not accepted(site)
    assert json.loads((evidence(site, "failed_process") / "cards.json").read_text())[1]["health"] == "needs_reset"


def test_a_deploy_is_not_accepted_while_an_engine_answers_wrongly_and_runs_on_a_disk_that_became_read_only(
    site: Site, machine: Machine
) -> None:
    (machine.environment / "faults.json").write_text(json.dumps({"schema": {"said": "{}"}}), encoding="utf-8")
    try:
        ran = deploy(site)
    finally:
        (machine.environment / "faults.json").unlink()
    assert ran.rc != 0
    assert (
        f"{NAME} was not accepted: step schema failed on instance 0: the reply does not fit the schema: $: answer is missing"
        in (ran.output)
    ), ran.output[-4000:]
    assert not accepted(site)
    folder = evidence(site, "failed_schema")
    assert KEY not in "".join(path.read_text(errors="replace") for path in folder.iterdir())
    (result,) = results(site)
    assert (result["passed"], result["steps"][-1]["id"]) == (False, "schema")

    # A mount of its own over the first: the engine's log is open for writing, which keeps that one writable.
    home = str(site.home)
    if subprocess.run(["mount", "--bind", home, home], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a folder read-only (root)")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
        ran = site.play("acceptance")
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)
    assert ran.rc != 0
    assert f"pass  {NAME}/0 serial: 2 of 2" in ran.output, ran.output[-4000:]
    assert f"{NAME}: not written down: the result of the acceptance: [Errno 30] Read-only file system" in ran.output
    assert not accepted(site)


@pytest.mark.further
def test_an_engine_that_pools_is_asked_for_vectors(site: Site, machine: Machine) -> None:
    site.services[0]["engine"]["runner"] = "pooling"
    ran = deploy(site)
    assert ran.rc == 0, ran.output[-4000:]
    assert f"pass  {NAME}/0 embeddings: 2 vectors of 8 numbers" in ran.output
    assert f"{NAME}/0 chat" not in ran.output
    assert accepted(site)
    (machine.environment / "faults.json").write_text(json.dumps({"embeddings": {"vector": [0.0] * 8}}), encoding="utf-8")
    try:
        ran = site.play("acceptance")
    finally:
        (machine.environment / "faults.json").unlink()
    assert ran.rc != 0
    assert f"{NAME} was not accepted: step embeddings failed on instance 0: " in ran.output, ran.output[-4000:]


def test_a_schema_that_could_not_be_checked_is_refused_before_anything_is_done(site: Site) -> None:
    site.services[0]["acceptance"]["schemas"] = [{"name": "x", "schema": {"type": "array", "contains": {"type": "string"}}}]
    ran = deploy(site)
    assert ran.rc != 0
    assert "the keyword contains is not known here" in ran.output
    assert not site.home.exists()
