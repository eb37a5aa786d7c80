"""Refusals by deploy.yml on this machine: their text, all at once, and a host on which nothing was changed. No engine needed."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Run, Site, end, free_port
from simulators.engine.install import complete_model


def service(site_home: Path, **changes: Any) -> dict[str, Any]:
    """A service that only lacks its model; `changes` replace whole keys."""
    return {
        "name": "refused-one",
        "model": {"id": "tiny", "path": f"{site_home}/models/none"},
        "listen": {"base_port": free_port(2)},
        **changes,
    }


#: A Python that another user may run; a virtual environment below root's home is closed to it.
BASE_PYTHON = "/usr/bin/python3"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, [])
    # A runtime of its own, so that none is there and none is made.
    made.variables["modelyard_runtimes_dir"] = str(tmp_path / "runtimes")
    made.services = [service(made.home)]
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder that is complete as far as names go."""
    folder = tmp_path / "model"
    folder.mkdir()
    complete_model(folder, max_position_embeddings=4096)
    return folder


@pytest.fixture
def listener() -> Iterator[tuple[int, int]]:
    """(pid, port) of somebody else's server."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield process.pid, port
    assert process.poll() is None, "the stranger was ended"
    end(process)


def refused(site: Site) -> Run:
    """Deploy, expect a refusal and an untouched host."""
    run = site.play("deploy")
    assert run.rc != 0, run.output[-3000:]
    assert run.changed == 0
    assert not site.home.exists()
    assert not (site.folder / "runtimes").exists()
    return run


@pytest.mark.further
def test_a_missing_model_folder(site: Site) -> None:
    run = refused(site)
    assert f"PF-MODEL-MISSING  host-a:{site.home}/models/none" in run.output
    assert "put tiny there, or correct model.path" in run.output
    assert "was refused: PF-MODEL-MISSING." in run.output


@pytest.mark.further
def test_a_model_without_tokenizer_names_the_files(site: Site, model: Path) -> None:
    (model / "tokenizer.json").unlink()
    (model / "tokenizer_config.json").unlink()
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)})]
    run = refused(site)
    assert "PF-MODEL-INCOMPLETE" in run.output
    assert "tokenizer.json or tokenizer.model or vocab.json+merges.txt" in run.output
    assert "tokenizer_config.json" in run.output


@pytest.mark.further
def test_an_unknown_engine_key_names_the_nearest(site: Site, model: Path) -> None:
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)}, engine={"max_modle_len": 4096})]
    run = refused(site)
    assert "vLLM 0.32.0 has no option max_modle_len; did you mean max_model_len?" in run.output


@pytest.mark.further
def test_a_removed_engine_key_names_its_successor(site: Site, model: Path) -> None:
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)}, engine={"guided_decoding_backend": "x"})]
    assert "write structured_outputs_config: {backend: ...}" in refused(site).output


def test_a_misspelt_service_key_names_the_nearest(site: Site) -> None:
    site.services = [service(site.home, topolgy={"replicas": 2})]
    run = refused(site)
    assert "topolgy is not a key that is known there; did you mean topology?" in run.output
    assert "modelyard_services[refused-one].topolgy" in run.output


def test_a_misspelt_variable_names_the_nearest(site: Site) -> None:
    site.variables["modelyard_runtime_dir"] = "/tmp"
    assert "modelyard_runtime_dir is not read by anything; did you mean modelyard_runtimes_dir?" in refused(site).output


@pytest.mark.further
def test_tensor_parallel_size_over_the_cards(site: Site, model: Path) -> None:
    many = len(os.sched_getaffinity(0)) + 1
    site.services = [
        service(site.home, model={"id": "tiny", "path": str(model)}, topology={"tensor_parallel_size": many}, cards=["0"])
    ]
    run = refused(site)
    assert f"1 x tensor_parallel_size {many} needs {many} CPU core(s), 1 given (0)" in run.output


def test_a_port_of_somebody_else_names_pid_and_user(site: Site, model: Path, listener: tuple[int, int]) -> None:
    pid, port = listener
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)}, listen={"base_port": port})]
    run = refused(site)
    assert f"PF-PORT-BUSY  host-a:{port}" in run.output
    assert f"pid {pid} of user {getpass.getuser()}" in run.output
    assert "http.server" in run.output


@pytest.mark.further
def test_too_little_memory(site: Site, model: Path) -> None:
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)}, engine={"kv_cache_memory_bytes": 9 * 2**40})]
    run = refused(site)
    assert "PF-MEMORY" in run.output
    assert "about 9439084 MiB of main memory are needed for refused-one" in run.output


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.further
def test_too_little_disk(site: Site, model: Path, small_disk: Path) -> None:
    site.variables["modelyard_runtimes_dir"] = str(small_disk / "runtimes")
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)})]
    run = refused(site)
    assert f"PF-DISK  host-a:{small_disk}" in run.output
    assert "making the runtime needs about 3600 MiB, 64 MiB are free" in run.output


def test_a_runtime_that_cannot_import_vllm(site: Site, model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(broken)], check=True)
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)}, runtime_path=str(broken))]
    run = refused(site)
    assert "PF-RUNTIME-BROKEN" in run.output
    assert "this runtime cannot import vllm: ModuleNotFoundError: No module named 'torch'" in run.output


@pytest.mark.further
def test_a_home_that_is_no_folder(site: Site, model: Path) -> None:
    (site.folder / "file").write_text("x", encoding="utf-8")
    site.variables["modelyard_home"] = str(site.folder / "file" / "home")
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)})]
    run = refused(site)
    assert f"cannot work there: {site.folder / 'file'} is not a folder" in run.output


def test_a_home_without_rights(site: Site, model: Path) -> None:
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        closed = site.folder / "closed"
        closed.mkdir(mode=0o700)
        code = (
            "import os, sys; os.setgid({0}); os.setuid({0}); sys.path.insert(0, {1!r});"
            "from ansible_collections.modelyard.core.plugins.module_utils.survey import host; print(host.home_problem({2!r}))"
        ).format(user.pw_uid, str(ROOT / "collections"), str(closed.parent / "closed" / "home"))
        for folder in (closed.parent, *closed.parent.parents[:3]):
            folder.chmod(folder.stat().st_mode | 0o055)
        said = subprocess.run([BASE_PYTHON, "-c", code], capture_output=True, text=True, check=False)
        assert said.stdout.strip() == f"no right to write in {closed} (owner root)", said.stderr
        return
    site.variables["modelyard_home"] = "/modelyard"
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)})]
    assert "cannot work there: no right to write in / (owner root)" in refused(site).output


@pytest.mark.parametrize(
    ("version", "said"),
    [("3.6", "/old is 3.6"), ("", "on the host; none was found")],
)
def test_a_python_that_is_too_old_for_ansible_is_said_before_any_module_fails(site: Site, version: str, said: str) -> None:
    old = site.folder / "old"
    old.write_text(f"#!/bin/sh\n[ -n '{version}' ] && printf '%s {version}' \"$0\"\n", encoding="utf-8")
    old.chmod(0o755)
    site.variables["ansible_python_interpreter"] = str(old)
    run = refused(site)
    assert "PF-PYTHON-OLD" in run.output
    assert said in run.output
    assert "SyntaxError" not in run.output


def test_several_refusals_come_together(site: Site, listener: tuple[int, int]) -> None:
    site.services = [
        service(
            site.home,
            listen={"base_port": listener[1]},
            engine={"max_modle_len": 4096, "swap_space": 4},
            topology={"tensor_parallel_size": 512},
        )
    ]
    run = refused(site)
    for id in ("PF-MODEL-MISSING", "PF-PORT-BUSY", "PL-ENGINE-KEY-UNKNOWN", "PL-ENGINE-KEY-REMOVED", "PL-CARDS"):
        assert id in run.output


def test_mistakes_in_the_inventory_come_together(site: Site) -> None:
    site.services = [service(site.home, topolgy={}, listen={"base_port": "http"}, supervisor="upstart")]
    site.variables["modelyard_restrat"] = True
    run = refused(site)
    for words in ("did you mean topology?", "did you mean modelyard_restart?", "upstart", "http"):
        assert words in run.output


def test_preflight_alone_says_the_same_and_changes_nothing(site: Site) -> None:
    run = site.play("preflight")
    assert run.rc != 0
    assert "PF-MODEL-MISSING" in run.output
    assert not site.home.exists()


def test_check_mode_on_a_fresh_host_shows_everything_and_makes_nothing(site: Site) -> None:
    site.services = [service(site.home, model={"id": "tiny", "path": f"{site.home}/models/tiny", "recipe": "tiny_qwen3.py"})]
    run = site.play("deploy", "--check --diff")
    assert run.rc == 0, run.output[-3000:]
    assert run.changed == 5  # runtime, model, the files of the service, its manifest, the start
    assert "+  --served-model-name" in run.output
    assert not site.home.exists()
    assert not (site.folder / "runtimes").exists()


def test_teardown_on_a_fresh_host_has_nothing_to_do(site: Site) -> None:
    run = site.play("teardown", "--check")
    assert (run.rc, run.changed) == (0, 0), run.output[-2000:]
    assert "nothing to stop" in run.output


def test_a_full_disk_stops_a_deploy_with_advice_and_a_teardown_goes_on(site: Site, model: Path, small_disk: Path) -> None:
    home = small_disk / "home"
    home.mkdir()
    site.variables["modelyard_home"] = str(home)
    site.services = [service(home, model={"id": "tiny", "path": str(model)})]
    fill = os.open(str(small_disk / "fill"), os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(fill, b"x" * 4096)
    os.close(fill)
    deploy = site.play("deploy")
    assert deploy.rc != 0
    assert "could not be taken: [Errno 28] No space left on device" in deploy.output
    assert "Free some space there first" in deploy.output
    assert sorted(p.name for p in home.iterdir()) == []
    teardown = site.play("teardown")
    assert teardown.rc == 0, teardown.output[-2000:]
    assert "the disk of" in teardown.output
    assert "going on without a lock" in teardown.output


def test_a_lock_of_another_control_node_is_respected(site: Site, model: Path) -> None:
    site.home.mkdir()
    holder = {"run": "elsewhere 0000 12 34", "what": "deploy", "by": "eve on elsewhere", "since": "2026-11-29 03:00:00 UTC"}
    (site.home / "lock").write_text(json.dumps(holder), encoding="utf-8")
    site.services = [service(site.home, model={"id": "tiny", "path": str(model)})]
    run = site.play("deploy")
    assert run.rc != 0
    assert "PF-LOCK-HELD" in run.output
    assert "deploy by eve on elsewhere since 2026-11-29 03:00:00 UTC" in run.output
    assert [p.name for p in site.home.iterdir()] == ["lock"]
