"""deploy.yml over a small program in the engine's place: files, starts in waves, what is stopped again. No acceptance."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deployed
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from harness import Run, Site, alive, free_port

NAME = "role-one"
QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0, "release_supervisor": False}


def runtime(folder: Path) -> Path:
    """An environment that the survey takes for one with vLLM 0.32.0."""
    packages = folder / "packages"
    for name in ("torch", "transformers", "vllm", "vllm/entrypoints", "vllm/entrypoints/cli"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text('__version__ = "0.32.0"\nAutoTokenizer = None\n')
    (packages / "vllm/entrypoints/cli/main.py").write_text("")
    (packages / "vllm-0.32.0.dist-info").mkdir()
    (packages / "vllm-0.32.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    (folder / "bin").mkdir()
    (folder / "bin/python").write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    (folder / "bin/vllm").write_text(f"#!{sys.executable}\n{deployed.ENGINE}")
    for name in ("python", "vllm"):
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (model / name).write_text("x")
    made = Site(tmp_path, [])
    made.services = [
        {
            "name": NAME,
            "model": {"id": "tiny", "path": str(model)},
            "topology": {"replicas": 2, "tensor_parallel_size": 1},
            "listen": {"base_port": free_port(2)},
            "runtime_path": str(runtime(tmp_path / "environment")),
            "engine": {"max_model_len": 1024},
            "ready_timeout_s": 60,
        }
    ]
    made.variables["modelyard_checks"] = {"PF-MEMORY": "note", "PF-DISK": "note"}
    yield made
    run.stop_service(str(made.home), NAME, options=QUICK)


def deploy(site: Site, arguments: str = "", **extra: Any) -> Run:
    return site.play("deploy", f"--skip-tags acceptance,card_test {arguments}", **extra)


def test_a_deploy_starts_in_waves_changes_nothing_again_and_knows_starts_by_hand(site: Site) -> None:
    folder = site.home / "services" / NAME
    looked = deploy(site, "--check --diff")
    assert looked.rc == 0, looked.output
    assert not folder.exists()

    first = deploy(site)
    assert first.rc == 0, first.output
    states = [site.state(NAME, index) for index in (0, 1)]
    for index, state in enumerate(states):
        assert alive(state["leader"]["pid"])
        assert f"{NAME}/{index}: started, pid {state['leader']['pid']}" in first.output
        assert state["request"] == json.loads((folder / f"instance-{index}/instance.json").read_text())
    assert states[1]["started_at"] - states[0]["started_at"] >= 5.0
    service_file = json.loads((folder / "service.json").read_text())
    assert (service_file["instances"], service_file["home"]) == ([0, 1], str(site.home))
    assert not (folder / "start.sh").exists()

    second = deploy(site)
    assert (second.rc, second.changed) == (0, 0), second.output
    status = deployed.call(folder, "status_cluster.sh")
    assert status.returncode == 0, status.stdout

    # By hand with other words: the next deploy shows the difference and restarts nothing.
    assert deployed.call(folder, "stop_cluster.sh").returncode == 0
    assert deployed.call(folder, "start_cluster.sh", MAX_LEN="512", STAGGER="0").returncode == 0
    refused = deploy(site)
    assert refused.rc != 0
    assert "--max-model-len: 512 -> 1024" in refused.output
    # A restart proves each instance, whatever tags are skipped, and this engine passes no ladder: the second one is not touched.
    before = layout.state(folder / "instance-1")["leader"]
    restarted = deploy(site, modelyard_restart=True)
    assert restarted.rc != 0
    assert f"the restart of {NAME}/0 failed" in restarted.output
    assert layout.state(folder / "instance-0")["request"]["digest"] == states[0]["request"]["digest"]
    assert layout.state(folder / "instance-1")["leader"] == before
    assert alive(before["pid"])


def test_a_start_that_dies_at_once_ends_the_run_and_starts_no_more(site: Site) -> None:
    engine = site.folder / "environment/bin/vllm"
    engine.write_text(f"#!{sys.executable}\nprint('RuntimeError: made to die')\nraise SystemExit(1)\n")
    done = deploy(site)
    assert done.rc != 0
    assert f"{NAME}/0 ended (exit code 1)" in done.output
    assert "RuntimeError: made to die" in done.output
    assert f"Not started: {NAME}/1" in done.output
    assert site.state(NAME, 1) is None
    assert not (site.home / "lock").exists()


def test_a_deploy_changes_from_plain_to_screen_only_with_a_restart(site: Site) -> None:
    if shutil.which("screen") is None:
        pytest.skip("screen is not installed")
    site.services[0]["supervisor"] = "screen"
    site.services[0]["topology"] = {"replicas": 1, "tensor_parallel_size": 1}
    assert deploy(site).rc == 0
    full = site.state(NAME)["supervised"]["name"]
    assert full.endswith(f".{NAME}")
    assert full in subprocess.run(["screen", "-ls"], capture_output=True, text=True, check=False).stdout
    assert deploy(site).changed == 0
    assert site.play("teardown").rc == 0
