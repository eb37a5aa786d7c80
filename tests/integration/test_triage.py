"""Why a service failed, as an admin asks it at night: the playbook over the logs of a real engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness import ROOT, Site

LOGS = ROOT / "tests/fixtures/vllm-logs-0.32.0-cpu"
KEY = "modelyard-secret-0a1b2c3d"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(tmp_path_factory.mktemp("triage"), [])
    for service, log in (("killed", "worker-sigkilled"), ("refused", "startup-failed-numa")):
        folder = made.home / f"services/{service}/instance-0/logs"
        folder.mkdir(parents=True)
        shutil.copy(LOGS / f"{log}.log", folder / "1.log")
        (made.home / f"services/{service}/service.json").write_text("{}")
        (made.home / f"services/{service}/api_key").write_text(KEY)
    with (made.home / "services/refused/instance-0/logs/1.log").open("a") as stream:
        stream.write(f"RuntimeError: Engine core initialization failed for {KEY}\n")
    return made


def test_each_service_is_explained_and_nothing_is_changed(site: Site) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(site.home).rglob("*")}
    run = site.play("triage")
    assert (run.rc, run.changed) == (0, 0), run.output[-4000:]
    for said in (
        "Cause: worker_killed_signal",
        "ended by signal 9 (SIGKILL)",
        "Not enough allowed NUMA nodes",
        "A restart is of use after the guarded teardown",
        "Nothing of an old start is alive.",
    ):
        assert said in run.output
    assert KEY not in run.output
    assert {path: path.stat().st_mtime_ns for path in Path(site.home).rglob("*")} == before


def test_a_service_that_is_not_there_is_refused_with_those_that_are(site: Site) -> None:
    run = site.play("triage", triage_service="nope")
    assert run.rc != 0
    assert "No service nope was deployed below" in run.output and "killed, refused" in run.output
