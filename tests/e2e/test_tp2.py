"""One service over two CPU ranks with the real engine, from the first deploy on. In order; the files test_tp2* share it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from e2e_site import TP2 as NAME
from e2e_site import get
from harness import Site, session_of

pytestmark = pytest.mark.e2e


def test_a_first_deploy_ends_with_an_accepted_service(first: str, site: Site, port: int, key: str) -> None:
    for step in ("process", "port", "health", "models", "chat", "schema", "logprobs", "serial"):
        assert f"pass  {NAME}/0 {step}:" in first
    assert "max_model_len 4096" in first
    assert re.search(r"core 0 +pass .*\n +core 1 +pass .*\n +all-reduce tiny-tp2/0 +pass ", first), "each core has computed"
    assert f"curl -s http://127.0.0.1:{port}/v1/chat/completions" in first
    assert "teardown_service=tiny-tp2" in first
    status, models = get(port, "/v1/models", key)
    assert (status, models["data"][0]["id"]) == (200, "tiny")
    comms = sorted(p["comm"] for p in session_of(site.state(NAME)["keeper"]["pid"]))
    assert comms.count("VLLM::Worker_TP") == 2
    assert comms.count("VLLM::EngineCor") == 1


def test_the_result_is_kept_for_programs(first: str, site: Site) -> None:
    results = list((site.home / "services" / NAME / "acceptance").glob("*.json"))
    assert len(results) == 1
    result = json.loads(results[0].read_text(encoding="utf-8"))
    assert result["passed"] is True
    assert [s["id"] for s in result["steps"]][:2] == ["process", "port"]


def test_waiting_shows_what_the_engine_does(first: str) -> None:
    for words in ("reading the model's configuration", "starting the engine and its workers", "answers on /health"):
        assert f"{NAME}/0: {words}" in first


def test_the_key_protects_the_service_and_never_shows(first: str, site: Site, port: int, key: str) -> None:
    assert get(port, "/v1/models")[0] == 401
    assert key not in first
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key.encode() not in cmdline.read_bytes(), cmdline
        except OSError:
            continue
    holders = [p for p in site.home.rglob("*") if p.is_file() and not p.is_symlink() and key.encode() in p.read_bytes()]
    assert [p.name for p in holders] == ["api_key"]
    assert holders[0].stat().st_mode & 0o777 == 0o600


def test_every_process_carries_the_marker(first: str, site: Site) -> None:
    for process in session_of(site.state(NAME)["keeper"]["pid"]):
        environ = Path(f"/proc/{process['pid']}/environ").read_bytes().split(b"\0")
        assert b"MODELYARD_SERVICE=tiny-tp2" in environ, process


def test_a_second_deploy_changes_nothing(first: str, site: Site) -> None:
    before = session_of(site.state(NAME)["keeper"]["pid"])
    run = site.play("deploy")
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert run.tasks <= 40
    assert "passed earlier, by these very processes" in run.output
    assert [p["pid"] for p in session_of(site.state(NAME)["keeper"]["pid"])] == [p["pid"] for p in before]


def test_check_mode_on_a_deployed_host_shows_no_change(first: str, site: Site) -> None:
    run = site.play("deploy", "--check --diff")
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]


def test_acceptance_alone_walks_the_ladder_again(first: str, site: Site) -> None:
    run = site.play("acceptance", "", acceptance_steps=["health", "logprobs"])
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert "pass  tiny-tp2/0 logprobs: 8 tokens, 5 alternatives each" in run.output
    assert "tiny-tp2/0 serial" not in run.output
